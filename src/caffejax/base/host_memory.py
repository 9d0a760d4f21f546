"""Memory and cores of the machine, within the limits of this process, and memory of JAX's devices."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .human_readable import format_bytes

if TYPE_CHECKING:
    import jax

_USABLE_FRACTION = 0.9  # the usable share of the free memory: other programs need memory, and estimates are not exact
_GROUPS_ROOT, _GROUP_LIST = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def count_available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def get_total_memory() -> int:
    """Return the machine's memory in bytes, or the smallest limit of this process's control groups if that is less.

    The value is cached.
    """
    machine_memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine_memory, *(size for size, _ in read_group_limits())])


def find_memory_problem(size: int, purpose: str, remedy: str, available: int | None = None) -> str | None:
    """Return an error message if arrays are larger than the memory of this machine, or None if they fit.

    Args:
        size: the size of the arrays in bytes.
        purpose: a noun phrase for the arrays: "a batch".
        remedy: advice for the user.
        available: the memory in bytes, or None for this machine's memory.
    """
    total = get_total_memory() if available is None else available
    if size <= total:
        return None
    return f"needs {format_bytes(size)} for {purpose}, but only {format_bytes(total)} of memory are available: {remedy}"


def get_free_memory() -> int:
    """Return the free memory in bytes: the minimum over the machine and its control groups."""
    return min([_read_free_machine_memory(), *(unused for _, unused in read_group_limits())])


def get_device_memory(device: jax.Device) -> int | None:
    """Return a device's memory in bytes, or None for a CPU and for devices that do not report it."""
    stats = device.memory_stats() if device.platform != "cpu" else None
    return int(stats["bytes_limit"]) if stats and "bytes_limit" in stats else None


def get_memory_budget(device: jax.Device) -> int:
    """Return the bytes that a program may use: a device's memory, or nine tenths of the free memory for a CPU."""
    size = get_device_memory(device)
    return int(_USABLE_FRACTION * get_free_memory()) if size is None else size


def read_group_limits(root: Path = _GROUPS_ROOT, group_list: Path = _GROUP_LIST) -> Iterator[tuple[int, int]]:
    """Yield the memory limit of each of this process's control groups and their parents, and its unused part, in bytes.

    Versions 1 and 2 of control groups are read. Cached files that can be evicted count as unused.

    Args:
        root: the folder where the control groups are mounted.
        group_list: the file that lists the groups of this process.
    """
    try:
        names = [line.split(":", 2)[2].strip("/") for line in group_list.read_text().splitlines() if ":" in line]
    except OSError:
        return
    folders = {
        folder
        for top in (root, root / "memory")
        for name in names
        for folder in (top / name, *(top / name).parents)
        if folder.is_relative_to(top)
    }
    for folder in sorted(folders):
        for limit_file, usage_file in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            try:
                size = int((folder / limit_file).read_text())
                yield size, size - int((folder / usage_file).read_text()) + _read_evictable_bytes(folder)
            except (OSError, ValueError):  # no limit, or "max"
                continue


def _read_free_machine_memory() -> int:
    try:
        return 1024 * int(re.findall(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())[0])
    except (OSError, IndexError):  # not Linux
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _read_evictable_bytes(folder: Path) -> int:
    """Return the bytes of inactive cached files, which count as used but can be evicted."""
    match = re.search(r"^(?:total_)?inactive_file (\d+)", (folder / "memory.stat").read_text(), re.MULTILINE)
    return int(match[1]) if match else 0
