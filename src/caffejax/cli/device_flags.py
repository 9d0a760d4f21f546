"""Flags of training on several devices and in several processes, and how processes end together."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ..errors import CaffejaxError
from ..glog import log, start_logging
from ..human_readable import counted
from ..options import MESH_AXES, BatchOf, Parallel, Shard
from . import flags
from .supervisor import LOST

if TYPE_CHECKING:
    import jax

TITLE = "several devices and processes"
_AUTO = "auto"
# what JAX's errors say, of several kinds, where another process does not answer
_LOST = re.compile(
    r"UNAVAILABLE|DEADLINE_EXCEEDED|[A-Z_]+: .*(gloo|nccl|coordination|connection|socket)", re.IGNORECASE
)


def add_distributed_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    spread = flags.group(parser, TITLE)
    flags.add(
        spread,
        "devices",
        "train on so many devices, of each process; a CPU simulates them",
        metavar="N",
        type=flags.positive,
    )
    flags.add_fields(parser, Parallel, ["batch"], TITLE)
    add_mesh_flags(parser)
    flags.add(
        spread,
        "coordinator",
        "train in several processes: where process 0 is; auto, under SLURM, Open MPI or on a TPU pod",
        metavar="HOST:PORT",
    )
    flags.add(spread, "processes", "how many processes there are", type=flags.positive, metavar="N")
    flags.add(spread, "process_id", "which of them this is, from 0 on", type=flags.count, metavar="I")
    flags.add(
        spread, "start_timeout", "seconds to wait for all processes", type=flags.positive, metavar="N", default=60
    )


def add_mesh_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of how devices are arranged, and what they share."""
    spread = flags.group(parser, TITLE)
    flags.add(
        spread,
        "mesh",
        "arrange all devices, as data=4,model=2: in 4 rows that take a batch each, large weights cut over 2",
        metavar="AXES",
        type=_mesh,
    )
    flags.add_fields(parser, Parallel, ["shard", "reduce_dtype"], TITLE, shard=None)


def trains_with_others(options: argparse.Namespace) -> bool:
    """Return whether a command of these flags is one of several processes that train together."""
    return getattr(options, "coordinator", None) is not None


def parallel_of(options: argparse.Namespace, batch: BatchOf | None = None) -> Parallel:
    """Return how training is spread, by the flags; by those of `add_mesh_flags` where `batch` is given."""
    shard: Shard = options.shard or ("optimizer" if options.mesh else "none")
    model = (options.mesh or {}).get("model", 1)
    return Parallel(batch or options.batch, model, shard, options.reduce_dtype)


def join_processes(options: argparse.Namespace) -> None:
    """Join the other processes, if there are any; only the first logs what is no warning. Before JAX is used.

    Raises:
        CaffejaxError: if the flags do not fit each other, or processes do not come.
    """
    simulated = options.devices or (options.coordinator is None and math.prod((options.mesh or {}).values()))
    if simulated > 1 and _on_cpu(options):
        import jax

        with suppress(RuntimeError):  # JAX runs already, in a program of the user's: it has the devices that it has
            jax.config.update("jax_num_cpu_devices", simulated)
    given = [name for name in ("processes", "process_id") if getattr(options, name) is not None]
    if options.coordinator is None:
        if given:
            raise CaffejaxError(f"--{given[0]} needs --coordinator=HOST:PORT, where process 0 is")
        _warn_of_tasks()
        return
    if options.coordinator == _AUTO:
        if given:
            raise CaffejaxError(f"--coordinator=auto finds out by itself: leave out --{given[0]}")
    elif len(given) < 2 or ":" not in options.coordinator:
        raise CaffejaxError("several processes need --coordinator=HOST:PORT, --processes=N and --process_id=I, each")
    elif options.process_id >= options.processes:
        raise CaffejaxError(f"--process_id={options.process_id} must be one of 0 to {options.processes - 1}")
    import jax

    from ..parallel import start_processes

    address = None if options.coordinator == _AUTO else options.coordinator
    gpus = [] if options.gpu == "all" else _numbers(options.gpu)
    start_processes(address, options.processes, options.process_id, gpus, options.start_timeout)
    start_logging(process=jax.process_index())
    log.info("Process %d of %d; %d devices in all", jax.process_index(), jax.process_count(), jax.device_count())


def pick_devices(options: argparse.Namespace, prefer_gpu: bool, device_id: int) -> Sequence[jax.Device] | jax.Device:
    """Return the devices to train on, or the one.

    Raises:
        CaffejaxError: if the flags ask for devices that are not there, or do not fit each other.
    """
    import jax

    mesh = math.prod((options.mesh or {}).values())
    if jax.process_count() > 1:
        found = _of_each_process(options)
    elif options.gpu is not None and (options.gpu == "all" or "," in options.gpu):
        if options.device is not None:
            raise CaffejaxError("give --gpu or --device, not both")
        numbers = _numbers(options.gpu)
        every = all_of("gpu")
        found = every if numbers is None else [device_of("gpu", str(n)) for n in numbers]
    elif options.devices or mesh > 1:
        named = options.device is not None or options.gpu is not None
        kind = pick_device(options, prefer_gpu, device_id).platform if named else jax.default_backend()
        found = all_of(kind)
        wanted = options.devices or mesh
        if len(found) < wanted:
            raise CaffejaxError(f"JAX has {counted(len(found), f'{kind} device')} here, not {wanted}")
        found = found[:wanted]
    else:
        return pick_device(options, prefer_gpu, device_id)
    check_mesh(options, len(found))
    return found


def _of_each_process(options: argparse.Namespace) -> Sequence[jax.Device]:
    import jax

    if ":" in (options.device or ""):
        raise CaffejaxError(f"--device={options.device}: one of several processes takes all of a kind, or --gpu=N")
    kind = options.device or ("gpu" if options.gpu is not None else jax.default_backend())
    here, every = all_of(kind), jax.devices(kind)
    if not options.devices:
        return every
    if len(here) < options.devices:
        raise CaffejaxError(f"JAX has {counted(len(here), f'{kind} device')} here, not {options.devices}")
    by_process = itertools.groupby(sorted(every, key=lambda d: (d.process_index, d.id)), lambda d: d.process_index)
    return [device for _, own in by_process for device in itertools.islice(own, options.devices)]


def check_mesh(options: argparse.Namespace, devices: int, where: str = "") -> None:
    """Raise `CaffejaxError` unless `--mesh`, if given, has a place for each of so many devices."""
    places = math.prod((options.mesh or {}).values())
    if options.mesh and places != devices:
        raise CaffejaxError(f"--mesh has places for {places} devices, but there are {devices}{where}")


@contextmanager
def ending_together() -> Iterator[None]:
    """End this process at once when something goes wrong in it or in another, so that none waits for those gone."""
    try:
        yield
    except BaseException as error:
        import jax

        if not jax.distributed.is_initialized():
            raise
        for line in _said(error):
            print(f"caffejax: [process {jax.process_index()}] {line}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)  # the end that Python and JAX make would wait for the others, which wait for this one


def _said(error: BaseException) -> list[str]:
    import jax

    for cause in _causes(error):
        reason = next(iter(str(cause).splitlines()), "")[:300]
        if isinstance(cause, jax.errors.JaxRuntimeError | ValueError) and _LOST.match(reason):
            return [f"{LOST} ({reason})"]
    if isinstance(error, CaffejaxError):
        return [str(problem) for problem in error.problems]
    if isinstance(error, KeyboardInterrupt):
        return ["interrupted"]
    return traceback.format_exception(error)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _on_cpu(options: argparse.Namespace) -> bool:
    """Return whether devices are to be simulated: where the CPU is asked for, or JAX sees nothing else."""
    if options.gpu is not None:
        return False
    if options.device is not None:
        return bool(options.device.partition(":")[0] == "cpu")
    return os.environ.get("JAX_PLATFORMS", "") == "cpu" or not _has_accelerator()


def _has_accelerator() -> bool:
    """Return whether JAX would find a GPU or TPU, without starting it."""
    from importlib.util import find_spec

    return any(find_spec(name) for name in ("jax_cuda12_plugin", "jax_cuda13_plugin", "jax_rocm7_plugin", "libtpu"))


def _numbers(gpu: str | None) -> list[int] | None:
    if gpu is None or gpu == "all":
        return None
    parts = gpu.split(",")
    if not all(part.isdigit() for part in parts):
        raise CaffejaxError(f"--gpu={gpu}: give numbers with commas between them, or all")
    return [int(part) for part in parts]


def _mesh(text: str) -> dict[str, int]:
    """Parse "data=4,model=2"."""
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        if name not in MESH_AXES or name in found or not number.isdecimal() or int(number) == 0:
            raise argparse.ArgumentTypeError(f"'{text}' is not of the form data=4,model=2")
        found[name] = int(number)
    return found


def _warn_of_tasks() -> None:
    """Warn where a scheduler has started several of this, which then do not know of each other."""
    for name in ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"):
        if os.environ.get(name, "1").isdecimal() and int(os.environ.get(name, "1")) > 1:
            log.warning("%s is %s: processes train together with --coordinator=auto only", name, os.environ[name])


if TYPE_CHECKING:
    import jax


def add_device_flag(parser: argparse.ArgumentParser, gpu: str = "run on the GPU of this number") -> None:
    """Add `--gpu`, with what it does in words, and `--device`."""
    place = flags.group(parser, "where it runs")
    flags.add(place, "gpu", gpu, metavar="N")
    flags.add(place, "device", "run on this kind of device, and number: cpu, gpu:1, tpu", metavar="KIND[:N]")


def pick_device(options: argparse.Namespace, prefer_gpu: bool, device_id: int = 0) -> jax.Device:
    """Return the device that the flags ask for, else a GPU (or TPU) if preferred and there, else the CPU.

    Args:
        options: the command's flags.
        prefer_gpu: whether the solver's solver_mode is GPU.
        device_id: which GPU the solver names.

    Raises:
        CaffejaxError: if the flags ask for a device that is not there.
    """
    import jax

    from ..glog import log

    if options.gpu is not None and options.device is not None:
        raise CaffejaxError("give --gpu or --device, not both")
    if options.gpu is not None or options.device is not None:
        kind, _, number = (options.device or f"gpu:{options.gpu}").partition(":")
        return device_of(kind, number or "0")
    if prefer_gpu:
        if jax.default_backend() != "cpu":
            return device_of(jax.default_backend(), str(device_id))
        log.warning("solver_mode is GPU, but JAX sees no GPU here: running on the CPU")
    return jax.devices("cpu")[0]


def device_of(kind: str, number: str) -> jax.Device:
    """Return the device of that kind ("gpu") and number.

    Raises:
        CaffejaxError: if there is none.
    """
    if not number.isdigit():
        raise CaffejaxError(f"'{number}' is not a device number; several devices are for train, --gpu=0,1 or --gpu=all")
    devices = all_of(kind)
    if len(number) > 9 or int(number) >= len(devices):
        raise CaffejaxError(f"there is no {kind} {number}; {kind} devices here: 0 to {len(devices) - 1}")
    return devices[int(number)]


def all_of(kind: str) -> list[jax.Device]:
    """Return all devices of that kind ("gpu") here.

    Raises:
        CaffejaxError: if there is none.
    """
    import jax

    try:
        return list(jax.local_devices(backend=kind))
    except RuntimeError as error:
        raise CaffejaxError(
            f"JAX sees no {kind} device here; --device cpu runs on the CPU, and a GPU needs jax's CUDA packages"
        ) from error
