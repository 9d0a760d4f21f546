"""A blob as Caffe's Python interface shows it: two arrays of one shape that anybody may write into."""

from __future__ import annotations

import math
import operator

import numpy as np


class Blob:
    """Data and diff, float32, of one shape; both zero until written to.

    Args:
        shape: any number of axes.
    """

    def __init__(self, *shape: int) -> None:
        self._shape = tuple(shape)
        self._stores: dict[str, np.ndarray] = {}

    def __repr__(self) -> str:
        return f"Blob({', '.join(map(str, self._shape))})"

    @property
    def data(self) -> np.ndarray:
        """The values; writing into the array changes the blob."""
        return self._view("data")

    @property
    def diff(self) -> np.ndarray:
        """The gradient, or in a solver's net after a step the update; writing into the array changes the blob."""
        return self._view("diff")

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self._shape

    @property
    def count(self) -> int:
        """How many values there are."""
        return math.prod(self._shape)

    @property
    def num(self) -> int:
        """Axis 0, for blobs of at most four axes; 1 if there is none."""
        return self._legacy(0)

    @property
    def channels(self) -> int:
        """Axis 1, likewise."""
        return self._legacy(1)

    @property
    def height(self) -> int:
        """Axis 2, likewise."""
        return self._legacy(2)

    @property
    def width(self) -> int:
        """Axis 3, likewise."""
        return self._legacy(3)

    def reshape(self, *shape: int) -> None:
        """Take another shape. As in Caffe the memory stays the same as long as the new shape fits into it."""
        new = tuple(map(operator.index, shape))
        if any(n < 0 for n in new):
            raise ValueError(f"a blob cannot have shape {shape}")
        self._shape = new

    def _legacy(self, axis: int) -> int:
        if len(self._shape) > 4:
            raise ValueError(f"a blob of {len(self._shape)} axes has no num, channels, height and width; use shape")
        return self._shape[axis] if axis < len(self._shape) else 1

    def _view(self, which: str) -> np.ndarray:
        store = self._stores.get(which)
        if store is None or store.size < self.count:
            store = self._stores[which] = np.zeros(self.count, np.float32)
        return store[: self.count].reshape(self._shape)
