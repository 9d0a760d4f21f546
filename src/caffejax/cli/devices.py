"""The device that a command runs on."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..errors import CaffejaxError
from . import flags

if TYPE_CHECKING:
    import jax


def add_flags(parser: argparse.ArgumentParser, gpu: str = "run on the GPU of this number") -> None:
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
