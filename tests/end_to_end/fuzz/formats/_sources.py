"""Data layers in nets, read for some batches."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from caffejax import Net

_MAX_NUMBERS = 1 << 16  # numbers; batches of more take long and are no damage
_MAX_PIXELS = 1 << 22  # pixels of an image: the default lets one take more memory than a case may
GOLDEN = Path(__file__).parents[3] / "golden" / "data"


def read_net_batches(net: str, folder: Path, count: int = 3, phase: str = "TEST") -> list[tuple[np.ndarray, ...]]:
    """Build a net beside the data that it reads, and return its one data layer's first batches.

    Raises:
        AssertionError: if a batch is not of the shapes that the net was told.
    """
    (folder / "net.prototxt").write_text(net)
    return read_batches(folder / "net.prototxt", count, phase)


def read_batches(path: Path, count: int = 3, phase: str = "TEST") -> list[tuple[np.ndarray, ...]]:
    """Likewise of a net's file."""
    net = Net(path, phase, seed=1, max_image_pixels=_MAX_PIXELS)  # type: ignore[arg-type]
    sources = net.sources()
    batches = []
    try:
        for source in sources.values():
            numbers_per_batch = sum(math.prod(top.shape) for top in source.tops)
            for _ in range(count if numbers_per_batch < _MAX_NUMBERS else 0):
                batch = next(source)
                assert [a.ndim for a in batch] == [len(top.shape) for top in source.tops]
                batches.append(batch)
    finally:
        for source in sources.values():
            source.close()
    return batches
