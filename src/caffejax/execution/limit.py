"""How much memory a program may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..machine import free_memory

if TYPE_CHECKING:
    import jax

_SHARE = 0.9  # of what is free: others want some, and estimates are estimates


def available_memory(device: jax.Device) -> int:
    """Return the bytes that a program may take: of the CPU nine tenths of what is free, within its cgroup's limit."""
    own = own_memory(device)
    return int(_SHARE * free_memory()) if own is None else own


def own_memory(device: jax.Device) -> int | None:
    """Return the bytes of a device that has memory of its own; None of the CPU, and where it does not say."""
    stats = device.memory_stats() if device.platform != "cpu" else None
    return int(stats["bytes_limit"]) if stats and "bytes_limit" in stats else None
