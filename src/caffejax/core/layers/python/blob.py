"""Blobs of Caffe's Python interface: two writable arrays of one shape, data and diff."""

from __future__ import annotations

import math
import operator

import numpy as np

from ....base.errors import ArgumentTypeError, ArgumentValueError, ReadOnlyError


class Blob:
    """The arrays data and diff, float32 and of one shape, both initially zero.

    Args:
        shape: the length of each axis. The number of axes is not limited.

    Raises:
        TypeError: if a length is not an integer.
        ValueError: if a length is negative.
    """

    def __init__(self, *shape: int) -> None:
        self._shape = _check_shape(shape)
        self._arrays: dict[str, np.ndarray] = {}
        self._memory_owner: Blob | None = None

    def __repr__(self) -> str:
        return f"Blob({', '.join(map(str, self.shape))})"

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("data", "diff") and _is_same_memory(value, getattr(self, name)):
            return  # `blob.data += x` has written to the array, and assigns the array
        if name in _REMEDIES:
            raise ReadOnlyError(f"a blob's {name} cannot be assigned to; {_REMEDIES[name]}")
        super().__setattr__(name, value)

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
        return self._shape if self._memory_owner is None else self._memory_owner.shape

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

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
            TypeError: if a length is not an integer.
            ValueError: if a length is negative.
        """
        new_shape = _check_shape(shape)
        if self._memory_owner is not None:
            self._memory_owner.reshape(*new_shape)
        else:
            self._shape = new_shape

    def share_memory(self, other: Blob) -> None:
        """Be the same as another blob from now on, with its memory and its shape."""
        self._memory_owner = other

    @property
    def is_shared(self) -> bool:
        """True if the blob uses the memory of another blob, see `share_memory`, or of a net of pycaffe."""
        return self._memory_owner is not None

    def _legacy_size(self, axis: int) -> int:
        shape = self.shape
        if len(shape) > 4:
            raise ArgumentValueError(f"a blob with {len(shape)} axes has no num, channels, height and width; use shape")
        return shape[axis] if axis < len(shape) else 1

    def _view(self, name: str) -> np.ndarray:
        if self._memory_owner is not None:
            return self._memory_owner._view(name)
        array = self._arrays.get(name)
        if array is None or array.size < self.count:
            array = self._arrays[name] = np.zeros(self.count, np.float32)
        return array[: self.count].reshape(self._shape)


def _is_same_memory(value: object, array: np.ndarray) -> bool:
    return isinstance(value, np.ndarray) and (value.ctypes.data, value.shape) == (array.ctypes.data, array.shape)


def _check_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape as a tuple of integers, or raise an error if it is not a shape."""
    try:
        lengths = tuple(map(operator.index, shape))
    except TypeError as error:
        hint = "; give each length as an argument, as in reshape(*shape)" * any(
            isinstance(n, list | tuple) for n in shape
        )
        text = ", ".join(map(repr, shape))
        raise ArgumentTypeError(
            f"a blob cannot have shape ({text}): the lengths of axes must be integers{hint}: {error}"
        ) from None
    if any(n < 0 for n in lengths):
        raise ArgumentValueError(f"a blob cannot have shape {lengths}: the lengths of axes must not be negative")
    return lengths


_WRITE = "write into its array, as in blob.{}[...] = values"
_RESHAPE = "call blob.reshape(*shape)"
_REMEDIES = {  # for attributes that cannot be assigned to
    **{name: _WRITE.format(name) for name in ("data", "diff")},
    **dict.fromkeys(("shape", "count", "num", "channels", "height", "width"), _RESHAPE),
}
