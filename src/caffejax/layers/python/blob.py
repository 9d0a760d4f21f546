"""Blobs of Caffe's Python interface: two writable arrays of one shape, data and diff."""

from __future__ import annotations

import math
import operator

import numpy as np


class Blob:
    """The arrays data and diff, float32 and of one shape, both initially zero.

    Args:
        shape: the length of each axis. The number of axes is not limited.
    """

    def __init__(self, *shape: int) -> None:
        self._shape = tuple(shape)
        self._arrays: dict[str, np.ndarray] = {}
        self._memory_owner: Blob | None = None

    def __repr__(self) -> str:
        return f"Blob({', '.join(map(str, self._shape))})"

    @property
    def data(self) -> np.ndarray:
        """The values. Writing to the array changes the blob."""
        return self._view("data")

    @property
    def diff(self) -> np.ndarray:
        """The gradient or, after a step of a solver, the update. Writing to the array changes the blob."""
        return self._view("diff")

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self._shape

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self._shape)

    @property
    def num(self) -> int:
        """The length of axis 0, or 1 if it is missing. Only for blobs of at most four axes."""
        return self._legacy_size(0)

    @property
    def channels(self) -> int:
        """The length of axis 1, or 1 if it is missing. Only for blobs of at most four axes."""
        return self._legacy_size(1)

    @property
    def height(self) -> int:
        """The length of axis 2, or 1 if it is missing. Only for blobs of at most four axes."""
        return self._legacy_size(2)

    @property
    def width(self) -> int:
        """The length of axis 3, or 1 if it is missing. Only for blobs of at most four axes."""
        return self._legacy_size(3)

    def reshape(self, *shape: int) -> None:
        """Change the shape. As in Caffe, the memory stays the same if the new shape fits into it.

        Raises:
            ValueError: if a length is negative.
        """
        new_shape = tuple(map(operator.index, shape))
        if any(n < 0 for n in new_shape):
            raise ValueError(f"a blob cannot have shape {shape}: the lengths of axes must not be negative")
        self._shape = new_shape

    def share_memory(self, other: Blob) -> None:
        """Use the memory of another blob of the same shape from now on."""
        self._memory_owner = other

    @property
    def is_shared(self) -> bool:
        """True if the blob uses the memory of another blob, see `share_memory`."""
        return self._memory_owner is not None

    def _legacy_size(self, axis: int) -> int:
        if len(self._shape) > 4:
            raise ValueError(f"a blob with {len(self._shape)} axes has no num, channels, height and width; use shape")
        return self._shape[axis] if axis < len(self._shape) else 1

    def _view(self, name: str) -> np.ndarray:
        if self._memory_owner is not None:
            return self._memory_owner._view(name)
        array = self._arrays.get(name)
        if array is None or array.size < self.count:
            array = self._arrays[name] = np.zeros(self.count, np.float32)
        return array[: self.count].reshape(self._shape)
