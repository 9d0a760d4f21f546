"""Flags that select devices and processes for training, and a context that ends all processes after an error."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import re
import traceback
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING

from ..base.config import DEVICE_VARIABLE, MESH_AXES, BatchOf, Parallel, Shard, read_device_variable
from ..base.errors import CaffejaxError
from ..base.glog import log, start_logging
from ..base.human_readable import format_count
from . import flags
from .supervisor import PEER_LOST_MESSAGE

if TYPE_CHECKING:
    import jax

GROUP_TITLE = "several devices and processes"
_AUTO = "auto"
# patterns of JAX's error messages if a different process does not answer
_PEER_LOST_PATTERN = re.compile(
    r"UNAVAILABLE|DEADLINE_EXCEEDED|[A-Z_]+: .*(gloo|nccl|coordination|connection|socket|barrier failed|heartbeat)",
    re.IGNORECASE,
)


def add_distributed_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags for training on several devices and in several processes."""
    group = flags.get_group(parser, GROUP_TITLE)
    flags.add(
        group,
        "devices",
        "the number of devices that each process trains on; on a CPU they are simulated",
        metavar="N",
        type=flags.parse_positive,
    )
    flags.add_fields(parser, Parallel, ["batch"], GROUP_TITLE)
    add_mesh_flags(parser)
    flags.add(
        group,
        "coordinator",
        "train in several processes: the address of process 0, or auto under SLURM, Open MPI or on a TPU pod",
        metavar="HOST:PORT",
    )
    flags.add(group, "processes", "the number of processes", type=flags.parse_positive, metavar="N")
    flags.add(group, "process_id", "the number of this process, counted from 0", type=flags.parse_count, metavar="I")
    timeout_help = "the time that processes wait for each other at the start, in seconds"
    flags.add(group, "start_timeout", timeout_help, type=flags.parse_positive, metavar="N", default=60)


def add_mesh_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--mesh`, `--shard` and `--reduce_dtype`, which arrange devices in a mesh and shard arrays over it."""
    group = flags.get_group(parser, GROUP_TITLE)
    flags.add(
        group,
        "mesh",
        "arrange all devices in a mesh, such as data=4,model=2 for 4 rows of 2 devices; each row processes a different "
        "batch and shards large weights over its devices",
        metavar="AXES",
        type=_parse_mesh,
    )
    flags.add_fields(parser, Parallel, ["shard", "reduce_dtype"], GROUP_TITLE, shard=None)


def is_multiprocess(options: argparse.Namespace) -> bool:
    """Return whether `--coordinator` is set, which means that several processes train together."""
    return getattr(options, "coordinator", None) is not None


def make_parallel_config(options: argparse.Namespace, batch: BatchOf | None = None) -> Parallel:
    """Return the `Parallel` settings from the flags. Commands without the flag `--batch` pass `batch` instead."""
    shard: Shard = options.shard or ("optimizer" if options.mesh else "none")
    model = (options.mesh or {}).get("model", 1)
    return Parallel(batch or options.batch, model, shard, options.reduce_dtype)


def initialize_distributed_from_flags(options: argparse.Namespace) -> None:
    """Connect to the other training processes if the flags name a coordinator. Call this before JAX is used.

    Afterwards process 0 logs everything, and the other processes log only warnings and errors.

    Raises:
        CaffejaxError: if the flags contradict each other, or a process does not start in time.
    """
    settle_device(options)
    num_simulated_devices = options.devices or (
        options.coordinator is None and math.prod((options.mesh or {}).values())
    )
    if num_simulated_devices > 1 and _uses_cpu(options):
        import jax

        with suppress(RuntimeError):  # if JAX already runs in a user's program, its devices are fixed
            jax.config.update("jax_num_cpu_devices", num_simulated_devices)
    process_flags = [name for name in ("processes", "process_id") if getattr(options, name) is not None]
    if options.coordinator is None:
        if process_flags:
            raise CaffejaxError(f"--{process_flags[0]} needs --coordinator=HOST:PORT, the address of process 0")
        _warn_about_separate_tasks()
        return
    if options.coordinator == _AUTO:
        if process_flags:
            raise CaffejaxError(
                f"--{process_flags[0]} cannot be combined with --coordinator=auto, which detects this value"
            )
    elif len(process_flags) < 2 or ":" not in options.coordinator:
        raise CaffejaxError(
            "to run several processes, pass --coordinator=HOST:PORT, --processes=N and --process_id=I to each of them"
        )
    elif options.process_id >= options.processes:
        raise CaffejaxError(
            f"--process_id={options.process_id} must be from 0 to {options.processes - 1} with "
            f"--processes={options.processes}"
        )
    import jax

    from ..core.parallel.multihost import initialize_distributed

    address = None if options.coordinator == _AUTO else options.coordinator
    gpu_indices = [] if options.gpu == "all" else _parse_gpu_indices(options.gpu)
    initialize_distributed(address, options.processes, options.process_id, gpu_indices, options.start_timeout)
    start_logging(process=jax.process_index())
    log.info("Process %d of %d; %d devices in total", jax.process_index(), jax.process_count(), jax.device_count())


def pick_devices(options: argparse.Namespace, prefer_gpu: bool, device_id: int) -> Sequence[jax.Device] | jax.Device:
    """Return the device or devices to train on.

    Raises:
        CaffejaxError: if the flags name devices that do not exist, or contradict each other.
    """
    import jax

    settle_device(options)
    mesh_size = math.prod((options.mesh or {}).values())
    if jax.process_count() > 1:
        devices = _pick_process_devices(options)
    elif options.gpu is not None and (options.gpu == "all" or "," in options.gpu):
        gpu_indices = _parse_gpu_indices(options.gpu)
        gpus = list_devices("gpu")
        devices = gpus if gpu_indices is None else [get_device("gpu", str(n)) for n in gpu_indices]
    elif options.devices or mesh_size > 1:
        is_selected = options.device is not None or options.gpu is not None
        platform = pick_device(options, prefer_gpu, device_id).platform if is_selected else jax.default_backend()
        devices = list_devices(platform)
        num_devices = options.devices or mesh_size
        if len(devices) < num_devices:
            raise CaffejaxError(
                f"{num_devices} devices are needed, but JAX has {format_count(len(devices), f'{platform} device')}"
            )
        devices = devices[:num_devices]
    else:
        return pick_device(options, prefer_gpu, device_id)
    check_mesh(options, len(devices))
    return devices


def _pick_process_devices(options: argparse.Namespace) -> Sequence[jax.Device]:
    import jax

    if ":" in (options.device or ""):
        raise CaffejaxError(
            f"--device={options.device}: with several processes, each process trains on all devices of a kind; "
            "--gpu=N picks one GPU"
        )
    platform = options.device or ("gpu" if options.gpu is not None else jax.default_backend())
    local_devices, devices = list_devices(platform), jax.devices(platform)
    if not options.devices:
        return devices
    if len(local_devices) < options.devices:
        available = format_count(len(local_devices), f"{platform} device")
        raise CaffejaxError(f"{options.devices} devices are needed, but JAX has {available}")
    process_groups = itertools.groupby(
        sorted(devices, key=lambda d: (d.process_index, d.id)), lambda d: d.process_index
    )
    return [device for _, group in process_groups for device in itertools.islice(group, options.devices)]


def check_mesh(options: argparse.Namespace, num_devices: int, location: str = "") -> None:
    """Raise `CaffejaxError` if `--mesh` is set and does not have exactly `num_devices` devices."""
    mesh_size = math.prod((options.mesh or {}).values())
    if options.mesh and mesh_size != num_devices:
        raise CaffejaxError(f"--mesh has {mesh_size} devices, but there are {num_devices}{location}")


@contextmanager
def abort_all_on_error() -> Iterator[None]:
    """Return a context in which an error or the loss of another training process ends all processes at once."""
    try:
        yield
    except BaseException as error:
        import jax

        if not jax.distributed.is_initialized():
            raise
        from ..core.parallel.coordination import end_all

        problems = _format_error(error)
        end_all(*problems, is_lost=problems[0].startswith(PEER_LOST_MESSAGE))


def _format_error(error: BaseException) -> list[str]:
    import jax

    for cause in _walk_causes(error):
        reason = next(iter(str(cause).splitlines()), "")[:300]
        if isinstance(cause, jax.errors.JaxRuntimeError | ValueError) and _PEER_LOST_PATTERN.match(reason):
            return [f"{PEER_LOST_MESSAGE} ({reason})"]
    if isinstance(error, CaffejaxError):
        return [str(problem) for problem in error.problems]
    if isinstance(error, KeyboardInterrupt):
        return ["interrupted"]
    return traceback.format_exception(error)


def _walk_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _uses_cpu(options: argparse.Namespace) -> bool:
    """Return whether the flags select the CPU or, if they select no device, JAX has only the CPU."""
    if options.gpu is not None:
        return False
    if options.device is not None:
        return bool(options.device.partition(":")[0] == "cpu")
    return os.environ.get("JAX_PLATFORMS", "") == "cpu" or not _has_accelerator_plugin()


def _has_accelerator_plugin() -> bool:
    """Return whether a JAX plugin for GPUs or TPUs is installed. JAX is not started."""
    from importlib.util import find_spec

    return any(find_spec(name) for name in ("jax_cuda12_plugin", "jax_cuda13_plugin", "jax_rocm7_plugin", "libtpu"))


def _parse_gpu_indices(gpu: str | None) -> list[int] | None:
    if gpu is None or gpu == "all":
        return None
    parts = flags.split_commas(gpu)
    if not all(part.isdigit() for part in parts):
        raise CaffejaxError(f"--gpu={gpu} must be numbers of GPUs separated by commas, or all")
    return [int(part) for part in parts]


def _parse_mesh(text: str) -> dict[str, int]:
    """Parse a mesh, such as "data=4,model=2", and return its axis sizes by name."""
    axes: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = part.partition("=")
        if name not in MESH_AXES or name in axes or not size.isdecimal() or int(size) == 0:
            message = f"'{text}' is not a mesh such as data=4,model=2, with the sizes of the axes as positive integers"
            raise argparse.ArgumentTypeError(message)
        axes[name] = int(size)
    return axes


def _warn_about_separate_tasks() -> None:
    """Warn if SLURM or Open MPI started several processes without `--coordinator`, because each would train alone."""
    for name in ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"):
        if os.environ.get(name, "1").isdecimal() and int(os.environ.get(name, "1")) > 1:
            log.warning("%s is %s: processes train together only with --coordinator=auto", name, os.environ[name])


def add_device_flags(parser: argparse.ArgumentParser, gpu_help: str = "run on the GPU with this number") -> None:
    """Add `--device` and `--gpu`; `gpu_help` is the help text of `--gpu`."""
    group = flags.get_group(parser, "where it runs")
    flags.add(group, "gpu", gpu_help, metavar="N", type=lambda text: text or None)  # as in Caffe, --gpu= sets no GPU
    flags.add(group, "device", "run on the device of this kind and number: cpu, gpu:1, tpu", metavar="KIND[:N]")


def settle_device(options: argparse.Namespace) -> None:
    """Set the option `device` from the environment unless a flag sets it. The CPU, or the variable, replaces `--gpu`.

    So scripts with `-gpu 0` run unchanged on a machine without a GPU.

    Raises:
        CaffejaxError: if `--gpu` and `--device` both name accelerators.
    """
    source = "--device"
    if options.device is None:
        options.device, source = read_device_variable(), DEVICE_VARIABLE
    elif options.gpu is not None and options.device.partition(":")[0] != "cpu":
        raise CaffejaxError(f"--gpu={options.gpu} and --device={options.device}: give --gpu or --device, not both")
    if options.device is not None and options.gpu is not None:
        log.info("%s=%s replaces --gpu=%s", source, options.device, options.gpu)
        options.gpu = None


def default_device_scope(options: argparse.Namespace) -> AbstractContextManager[object]:
    """Return a context in which JAX computes on the device that `--gpu` or `--device` names; the default is the CPU."""
    import jax

    return jax.default_device(pick_device(options, prefer_gpu=False))


def pick_device(options: argparse.Namespace, prefer_gpu: bool, device_id: int = 0) -> jax.Device:
    """Return the device that `--gpu` or `--device` names, or the default device.

    The default is a GPU or TPU if `prefer_gpu` is True and JAX finds one, and otherwise the CPU.

    Args:
        options: the command's flags.
        prefer_gpu: True if the solver's solver_mode is GPU.
        device_id: the number of the GPU that the solver names.

    Raises:
        CaffejaxError: if the flags name a device that does not exist.
    """
    import jax

    settle_device(options)
    if options.gpu is not None or options.device is not None:
        platform, _, number = (options.device or f"gpu:{options.gpu}").partition(":")
        return get_device(platform, number or "0")
    if prefer_gpu:
        if jax.default_backend() != "cpu":
            return get_device(jax.default_backend(), str(device_id))
        log.warning("solver_mode is GPU, but JAX sees no GPU here: running on the CPU")
    return jax.devices("cpu")[0]


def get_device(platform: str, device_index: str) -> jax.Device:
    """Return the device with this kind ("cpu", "gpu" or "tpu") and number.

    Raises:
        CaffejaxError: if the device does not exist.
    """
    if not device_index.isdigit():
        raise CaffejaxError(
            f"'{device_index}' is not a device number; only train takes several devices (--gpu=0,1 or --gpu=all)"
        )
    devices = list_devices(platform)
    if len(device_index) > 9 or int(device_index) >= len(devices):
        raise CaffejaxError(
            f"there is no {platform} {device_index}; the {platform} devices have the numbers 0 to {len(devices) - 1}"
        )
    return devices[int(device_index)]


def list_devices(platform: str) -> list[jax.Device]:
    """Return all devices of this kind ("cpu", "gpu" or "tpu") in this process.

    Raises:
        CaffejaxError: if JAX sees no such device.
    """
    import jax

    try:
        return list(jax.local_devices(backend=platform))
    except RuntimeError as error:
        raise CaffejaxError(
            f"JAX sees no {platform} device here; --device cpu runs on the CPU, also beside --gpu, and so do all "
            f"scripts with {DEVICE_VARIABLE}=cpu in the environment. A GPU needs jax's CUDA packages: "
            'pip install ".[cuda]" in a clone of caffejax, or pip install "jax[cuda12]"'
        ) from error
