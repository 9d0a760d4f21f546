"""Devices that a compiler can compile for, though none may be there: see `process.compile_for_absent_devices`."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from typing import Any

from jax.experimental import topologies

from ..errors import CaffejaxError
from .targets import Chip, Target

_REMEDY = "in Python, call caffejax.process.compile_for_absent_devices() before JAX is first used"
_SLICE = {"v4": (2, 2, 1), "v5e": (2, 2), "v5p": (2, 2, 1), "v6e": (2, 2)}  # the smallest that libtpu lays out


def devices(target: Target) -> Sequence[Any]:
    """Return the target's devices.

    Raises:
        CaffejaxError: if the compiler is not installed, and how to install it; or if there is no such layout.
    """
    return _tpus(target) if target.chip.platform == "tpu" else _gpus(target)


def _tpus(target: Target) -> Sequence[Any]:
    if importlib.util.find_spec("libtpu") is None:
        raise CaffejaxError('compiling for TPUs takes libtpu: pip install "caffejax[plan-tpu]"')
    smallest = _SLICE.get(target.chip.name, (2, 2))
    shape = target.shape if math.prod(target.shape) >= math.prod(smallest) else smallest
    shape = (*shape, *(1,) * (len(smallest) - len(shape)))
    layout = "x".join(map(str, shape))
    try:
        found = topologies.get_topology_desc(platform="tpu", topology_name=f"{target.chip.name}:{layout}").devices
    except Exception as error:  # whatever libtpu raises for names and shapes that it does not have
        raise CaffejaxError(f"libtpu has no {target}: {_why(error)}") from error
    if len(found) < target.devices:
        raise CaffejaxError(f"libtpu lays {target} out as {len(found)} devices, not {target.devices}")
    return found[: target.devices]


def _gpus(target: Target) -> Sequence[Any]:
    if importlib.util.find_spec("jax_plugins") is None or importlib.util.find_spec("jax_plugins.xla_cuda12") is None:
        raise CaffejaxError('compiling for GPUs takes jax\'s CUDA plugin: pip install "caffejax[plan-cuda]"')
    text, layout = _config(target.chip), f"1x1x{target.devices}"
    try:
        found = topologies.get_topology_desc(topology_name="", platform="cuda", target_config=text, topology=layout)
    except Exception as error:  # likewise
        raise CaffejaxError(f"the CUDA compiler does not take {target}: {_why(error)}") from error
    return found.devices


def _config(chip: Chip) -> str:
    """Return XLA's GpuTargetConfigProto in text form."""
    facts = dict(chip.compiler)
    capability = " ".join(f"{name}: {facts.pop(name)}" for name in ("major", "minor") if name in facts)
    facts |= {"memory_bandwidth": int(chip.bandwidth), "device_memory_size": int(chip.memory)}
    info = " ".join(f"{name}: {value}" for name, value in facts.items())
    return (
        f"gpu_device_info {{ {info} cuda_compute_capability {{ {capability} }} }} "
        'platform_name: "CUDA" dnn_version_info { major: 9 minor: 10 patch: 0 } '
        f'device_description_str: "{chip.name}"'
    )


def _why(error: Exception) -> str:
    line = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    # what JAX says of a compiler that it did not load, as it was told of other platforms, or of none
    return f"{line}; {_REMEDY}" if "not implemented" in line or "not found" in line.lower() else line
