"""List the devices that JAX sees on this machine, with their names, memory and capabilities."""

from __future__ import annotations

import argparse
from typing import Any

from ..base.errors import CaffejaxError
from ..base.glog import log, start_logging
from . import device_flags, flags

HELP = "list the devices that JAX sees"
EXAMPLE = "caffejax device_query --gpu=all"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    flags.add(
        parser, "gpu", "only the GPUs with these numbers, separated by commas, or all GPUs (default: all devices)"
    )
    flags.add_json_flag(parser, "print JSON; the log goes to stderr")


def run(options: argparse.Namespace) -> None:
    """List the devices."""
    start_logging()
    import jax

    devices = (
        _select_gpus(options.gpu)
        if options.gpu
        else [*_list_devices("gpu"), *_list_devices("tpu"), *jax.devices("cpu")]
    )
    descriptions = [_describe_device(device) for device in devices]
    for properties in descriptions:
        for name, value in properties.items():
            log.info("%-30s %s", f"{name}:", value)
    if options.json:
        flags.print_json(descriptions)


def _describe_device(device: Any) -> dict[str, Any]:
    from ..cpu.kernels import onednn
    from ..cpu.process_settings import is_freed_memory_kept

    properties: dict[str, Any] = {"Device id": f"{device.platform}:{device.id}", "Name": device.device_kind}
    memory = device.memory_stats() or {}
    properties |= {
        _format_title(n): memory[n] for n in ("bytes_limit", "bytes_in_use", "peak_bytes_in_use") if n in memory
    }
    properties |= {
        _format_title(n): getattr(device, n) for n in ("compute_capability", "core_count") if hasattr(device, n)
    }
    if device.platform == "cpu":
        reason = onednn.unavailable_reason()
        properties["Convolutions"] = f"XLA, not oneDNN: {reason}" if reason else "oneDNN"
        properties["Freed memory"] = "kept for later steps" if is_freed_memory_kept() else "returned to the system"
    return properties | {"Process": device.process_index}


def _format_title(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _list_devices(platform: str) -> list[Any]:
    import jax

    try:
        return list(jax.devices(platform))
    except RuntimeError:  # JAX has no backend for this platform
        return []


def _select_gpus(text: str) -> list[Any]:
    if text == "all":
        gpus = _list_devices("gpu")
        if not gpus:
            raise CaffejaxError("JAX sees no GPU on this machine; omit --gpu to list the other devices")
        return gpus
    return [device_flags.get_device("gpu", device_index) for device_index in flags.split_commas(text)]
