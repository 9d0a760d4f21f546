"""How much memory a program may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..machine import free_memory

if TYPE_CHECKING:
    import jax

_SHARE = 0.9  # of what is free: others want some, and estimates are estimates


def available_memory(device: jax.Device) -> int:
    """Return the bytes that a program may take: of the CPU nine tenths of what is free, within its cgroup's limit."""
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    return int(_SHARE * free_memory())
