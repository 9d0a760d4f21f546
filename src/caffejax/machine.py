"""The machine's memory, within the limits of the control groups that this process is in."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_GROUPS, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


class Limit(NamedTuple):
    """A control group's limit in bytes, and how much of it is left; files that would give way count as left."""

    size: int
    left: int


def memory() -> int:
    """Return the bytes that the machine has, or the narrowest of its control groups."""
    own = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([own, *(limit.size for limit in limits())])


def free_memory() -> int:
    """Return the bytes that are free, in the machine and in each control group."""
    return min([_free(), *(limit.left for limit in limits())])


def limits(root: Path = _GROUPS, own: Path = _OWN) -> Iterator[Limit]:
    """Yield the limit of each control group that this process is in, of either version."""
    try:
        names = [line.split(":", 2)[2].strip("/") for line in own.read_text().splitlines() if ":" in line]
    except OSError:
        return
    folders = {folder for name in names for top in (root, root / "memory") for folder in _up(top, top / name)}
    for folder in sorted(folders):
        for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            try:
                size = int((folder / limit).read_text())
                yield Limit(size, size - int((folder / used).read_text()) + _cached(folder))
            except (OSError, ValueError):  # no such limit; "max"
                continue


def _free() -> int:
    try:
        return 1024 * int(re.findall(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())[0])
    except (OSError, IndexError):  # not Linux
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _up(top: Path, folder: Path) -> list[Path]:
    return [folder, *(p for p in folder.parents if p.is_relative_to(top))]


def _cached(folder: Path) -> int:
    """Return the bytes of files, which count as used and give way."""
    found = re.search(r"^(?:total_)?inactive_file (\d+)", (folder / "memory.stat").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0
