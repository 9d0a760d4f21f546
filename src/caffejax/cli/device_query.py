"""List the devices that JAX sees on this machine, with their names, memory and capabilities."""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import CaffejaxError
from ..glog import log, start_logging
from . import device_flags, flags

HELP = "list the devices that JAX sees"
EXAMPLE = "caffejax device_query --gpu=all"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    flags.add(
        parser, "gpu", "only the GPUs with these numbers, separated by commas, or all GPUs (default: all devices)"
    )


def run(options: argparse.Namespace) -> None:
    """List the devices."""
    start_logging()
    import jax

    from ..kernels import onednn
    from ..process import keeps_memory

    for device in _gpus(options.gpu) if options.gpu else [*_devices("gpu"), *_devices("tpu"), *jax.devices("cpu")]:
        log.info("Device id:                     %s:%d", device.platform, device.id)
        log.info("Name:                          %s", device.device_kind)
        for name, value in (device.memory_stats() or {}).items():
            if name in ("bytes_limit", "bytes_in_use", "peak_bytes_in_use"):
                log.info("%-30s %d", name.replace("_", " ").capitalize() + ":", value)
        for name in ("compute_capability", "core_count"):
            if hasattr(device, name):
                log.info("%-30s %s", name.replace("_", " ").capitalize() + ":", getattr(device, name))
        if device.platform == "cpu":
            reason = onednn.missing()
            log.info("Convolutions:                  %s", f"XLA, not oneDNN: {reason}" if reason else "oneDNN")
            log.info("Memory of a run:               %s", "kept for the next" if keeps_memory() else "freed")
        log.info("Process:                       %d", device.process_index)


def _devices(kind: str) -> list[Any]:
    import jax

    try:
        return list(jax.devices(kind))
    except RuntimeError:  # JAX has no backend for this platform
        return []


def _gpus(text: str) -> list[Any]:
    if text == "all":
        gpus = _devices("gpu")
        if not gpus:
            raise CaffejaxError("JAX sees no GPU here; leave out --gpu to list the other devices")
        return gpus
    return [device_flags.device_of("gpu", number) for number in text.split(",")]
