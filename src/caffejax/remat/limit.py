"""How much memory there is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jax

_SHARE = 0.9  # of what is free: others want some, and estimates are estimates


def available_memory(device: jax.Device) -> int:
    """Bytes that a program may take on a device: of the CPU nine tenths of what is free, within its cgroup's limit."""
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    return int(_SHARE * min([_free(), *_cgroups(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"))]))


def _free() -> int:
    try:
        return 1024 * int(re.findall(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())[0])
    except (OSError, IndexError):  # not Linux
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cgroups(root: Path, own: Path) -> Iterator[int]:
    """What is left of the limit of each control group that this process is in, of either version."""
    try:
        names = [line.split(":", 2)[2].strip("/") for line in own.read_text().splitlines() if ":" in line]
    except OSError:
        return
    folders = {folder for name in names for top in (root, root / "memory") for folder in _up(top, top / name)}
    for folder in sorted(folders):
        for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            try:
                yield int((folder / limit).read_text()) - int((folder / used).read_text()) + _cached(folder)
            except (OSError, ValueError):  # no such limit; "max"
                continue


def _up(top: Path, folder: Path) -> list[Path]:
    return [folder, *(p for p in folder.parents if p.is_relative_to(top))]


def _cached(folder: Path) -> int:
    """Bytes of files, which count as used and give way."""
    found = re.search(r"^(?:total_)?inactive_file (\d+)", (folder / "memory.stat").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0
