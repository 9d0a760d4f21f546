"""Which devices do a collective together, as the texts of compiled programs write it."""

from __future__ import annotations

import math
import re

import numpy as np

_LISTED = re.compile(r"replica_groups=\{\{([\d,]*)\}")
# "[groups,devices]<=[shape]T(axes)": the devices' numbers in that shape, its axes in that order
_COUNTED = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
# "mesh['a'=2,'b'=4], device_ids=([shape]T(axes)) {'a'}": groups along these axes of such a mesh
_OF_MESH = re.compile(
    r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\))? \{([^}]*)\}"
)
_PAIR = re.compile(r"source_target_pairs=\{\{(\d+),(\d+)\}")


def group_of(attributes: str) -> tuple[int, int]:
    """Return how many devices a collective's first group has, and how far apart they are; (1, 1) if it says nothing."""
    if pair := _PAIR.search(attributes):
        return 2, abs(int(pair[2]) - int(pair[1])) or 1
    first = _first_group(attributes)
    return max(1, len(first)), first[1] - first[0] if len(first) > 1 else 1


def _first_group(attributes: str) -> list[int]:
    if found := _LISTED.search(attributes):
        return _numbers(found[1])
    if found := _COUNTED.search(attributes):
        groups: list[int] = _ordered(found[2], found[3]).reshape(_numbers(found[1]))[0].tolist()
        return groups
    if found := _OF_MESH.search(attributes):
        axes = dict(part.split("=") for part in found[1].split(","))
        sizes = [int(size) for size in axes.values()]
        devices = _ordered(found[2] or str(math.prod(sizes)), found[3]).reshape(sizes)
        along = found[4].split(",")
        group: list[int] = devices[tuple(slice(None) if name in along else 0 for name in axes)].ravel().tolist()
        return group
    return []


def _ordered(shape: str, axes: str | None) -> np.ndarray:
    numbers = np.arange(math.prod(_numbers(shape))).reshape(_numbers(shape))
    return numbers.transpose(_numbers(axes)) if axes else numbers


def _numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",") if n]
