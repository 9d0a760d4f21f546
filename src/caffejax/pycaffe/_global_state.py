"""Process-wide state of Caffe's interface: device, random seed, limits, log, and the alias `caffe`."""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from ..base.config import DEVICE_VARIABLE, LIMIT_FIELDS, NetConfig, read_device_variable
from ..base.errors import ArgumentValueError, CaffejaxError, did_you_mean
from ..base.glog import log_to_stderr, start_logging
from ..base.import_alias import declared_packages
from ..core.layers import layer_types
from ..core.layers.bucketed_random import fold_in_bits, make_key
from ..core.schema.caffe_pb2 import TEST, TRAIN
from ..cpu.process_settings import alias_package
from ._arguments import as_integer

__all__ = ["TEST", "TRAIN"]

_log = logging.getLogger("caffejax.pycaffe")


class _Process:
    """The settings of the process: mode, GPU number, solvers, random seed, log, limits."""

    def __init__(self) -> None:
        self.mode = ""  # "cpu" or "gpu"; "" for JAX's default device
        self.gpu_number = 0
        self.solver_count, self.rank, self.multiprocess = 1, 0, False
        self.seed: int | None = None
        self.key: jax.Array | None = None
        self.num_keys = 0
        self.has_warned = False
        self.is_logging = True
        self.limits: dict[str, Any] = {}
        self.lock = threading.Lock()


_process = _Process()


def set_mode_cpu() -> None:
    """Run nets on the CPU from now on."""
    _process.mode = "cpu"


def set_mode_gpu() -> None:
    """Run nets on the GPU from now on. If JAX finds no GPU, they run on the CPU, with one warning."""
    _process.mode = "gpu"


def set_device(device_id: int) -> None:
    """Select the GPU, by its number, on which nets run after `set_mode_gpu`.

    Raises:
        ValueError: if JAX finds GPUs, but none with this number.
    """
    gpus, device_id = _find_gpus(), as_integer(device_id, "the number of a GPU")
    if device_id < 0 or (gpus and device_id >= len(gpus)):
        raise ArgumentValueError(f"there is no GPU {device_id}; the GPUs have the numbers 0 to {len(gpus) - 1}")
    _process.gpu_number = device_id


def get_device() -> jax.Device:
    """Return the current device: the CPU or GPU of the mode, or JAX's default device if no mode was set.

    The environment variable `CAFFEJAX_DEVICE` replaces it; see `read_device_variable`.

    Raises:
        CaffejaxError: if the variable names a device that does not exist.
    """
    if (forced := read_device_variable()) is not None:
        return _find_device(forced)
    if _process.mode == "cpu":
        return jax.devices("cpu")[0]
    if _process.mode == "gpu":
        if gpus := _find_gpus():
            return gpus[_process.gpu_number]
        if not _process.has_warned:
            _process.has_warned = True
            warnings.warn("set_mode_gpu: JAX finds no GPU here, so nets run on the CPU", stacklevel=2)
        return jax.devices("cpu")[0]
    return jax.devices()[0]


def set_random_seed(seed: int) -> None:
    """Set the seed for the fillers and data layers of new nets, and for random layers of all nets."""
    with _process.lock:
        _process.seed, _process.key, _process.num_keys = as_integer(seed, "the seed"), None, 0


def set_limits(**limits: Any) -> None:
    """Set limits for reading files from now on. Their names are the fields of `caffejax.NetConfig`.

    Args:
        limits: `max_image_pixels`, `max_hdf5_bytes` or `no_python_layers`; other limits stay unchanged.

    Raises:
        CaffejaxError: for unknown names and invalid values.
    """
    if unknown_names := [name for name in limits if name not in LIMIT_FIELDS]:
        raise CaffejaxError(f"there is no limit '{name}'{did_you_mean(name, LIMIT_FIELDS)}" for name in unknown_names)
    NetConfig(**limits)
    _process.limits |= limits


def make_config() -> NetConfig:
    """Return the `NetConfig` of new nets: the defaults with the limits of `set_limits`."""
    return NetConfig(**_process.limits)


def next_key() -> tuple[jax.Array, np.uint32]:
    """Return a new random key as a pair: a key, and a number that must be folded into it."""
    with _process.lock:
        if _process.seed is None:
            _process.seed = secrets.randbits(31)
        if _process.key is None:
            _process.key = make_key(_process.seed)
        _process.num_keys += 1
        return _process.key, np.uint32(_process.num_keys)


def next_seed() -> int:
    """Return a new seed, 0 to 2**31 - 1, for random numbers on the host."""
    return fold_in_bits(*next_key()) & 0x7FFFFFFF


def set_multiprocess(multiprocess: bool) -> None:
    """Store `multiprocess`, which has no effect, because pycaffe's solvers train on one device."""
    _process.multiprocess = bool(multiprocess)


def solver_count() -> int:
    """Return the number of solvers that train together."""
    return _process.solver_count


def set_solver_count(count: int) -> None:
    """Set the number of solvers that train together; only 1 is supported."""
    if as_integer(count, "the number of solvers") != 1:
        raise NotImplementedError(f"{count} solvers: {_NO_NCCL}")
    _process.solver_count = count


def solver_rank() -> int:
    """Return the rank of this solver."""
    return _process.rank


def set_solver_rank(rank: int) -> None:
    """Set the rank of this solver; rank 0 logs and saves."""
    _process.rank = as_integer(rank, "the rank")


def has_nccl() -> bool:
    """Return False: NCCL is not supported."""
    return False


_NO_NCCL = (
    "solvers of one program cannot train together by NCCL here; caffejax train --gpu=all, or "
    "caffejax.Solver(solver, devices=N) in Python, trains on several GPUs"
)


class NCCL:
    """Placeholder for Caffe's class, which trains on several GPUs. The constructor raises NotImplementedError."""

    def __init__(self, solver: Any, uid: str = "") -> None:
        raise NotImplementedError(_NO_NCCL)

    @staticmethod
    def new_uid() -> str:
        """Raise NotImplementedError."""
        raise NotImplementedError(_NO_NCCL)


class Timer:
    """Timer of the wall time between `start` and `stop`."""

    def __init__(self) -> None:
        self._start_time = self._seconds = 0.0

    def start(self) -> None:
        """Start measuring."""
        self._start_time = time.perf_counter()

    def stop(self) -> None:
        """Stop measuring."""
        self._seconds = time.perf_counter() - self._start_time

    @property
    def ms(self) -> float:
        """The last measured time, in milliseconds."""
        return self._seconds * 1e3


def layer_type_list() -> list[str]:
    """Return the names of all registered layer types."""
    return list(layer_types())


_LEVELS = {0: logging.INFO, 1: logging.WARNING, 2: logging.ERROR}  # by glog's numbers


def init_log(level: int = 0, to_stderr: bool = True) -> None:
    """Send the process's log to stderr in Caffe's format, including the log of caffejax outside of pycaffe.

    Args:
        level: 0 for all records, 1 for warnings and errors, 2 for errors.
        to_stderr: if False, Python's `logging` handles the log.
    """
    level = as_integer(level, "level")
    if to_stderr:
        start_logging()
    logging.getLogger("caffejax").setLevel(_LEVELS.get(level, logging.CRITICAL))


def set_logging(enabled: bool) -> None:
    """Turn on or off the log that nets and solvers write to stderr. By default it is on, as in Caffe.

    False also undoes `init_log`. `GLOG_minloglevel` in the environment limits the log as in Caffe: 1 to warnings and
    errors, 2 to errors, 3 to nothing.
    """
    _process.is_logging = bool(enabled)
    if not enabled:
        logger = logging.getLogger("caffejax")
        logger.handlers.clear()
        logger.setLevel(logging.NOTSET)
        logger.propagate = True


def set_logging_disabled() -> None:
    """Turn off the log, as in the fork of FlowNet 2."""
    set_logging(False)


@contextmanager
def write_caffe_log() -> Iterator[None]:
    """Return a context or decorator that writes the log to stderr in Caffe's format, unless the log is off."""
    if not _process.is_logging:
        yield
        return
    min_level = os.environ.get("GLOG_minloglevel", "")  # noqa: SIM112  glog's spelling
    with log_to_stderr(_LEVELS.get(int(min_level), logging.CRITICAL) if min_level.isdecimal() else logging.INFO):
        yield


@write_caffe_log()
def log(message: str) -> None:
    """Write a line to the log."""
    _log.info("%s", message)


def _find_device(text: str) -> jax.Device:
    kind, _, number = text.partition(":")
    try:
        return jax.devices(kind)[int(number or "0")]
    except (RuntimeError, ValueError, IndexError):
        message = f"{DEVICE_VARIABLE}={text}: JAX has no such device here; set cpu, or gpu:N with the number of a GPU"
        raise CaffejaxError(message) from None


def _find_gpus() -> list[jax.Device]:
    try:
        return jax.devices("gpu")
    except RuntimeError:
        return []


def install() -> None:
    """Make `import caffe`, `import caffe.io` and so on return this package and its modules from now on.

    They have priority over an installed Caffe. Further calls have no effect.

    Raises:
        CaffejaxError: if a different `caffe` has already been imported.
    """
    alias_package("caffe", declared_packages["caffe"])
