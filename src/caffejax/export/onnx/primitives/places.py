"""Places in an array, counted along it as if it were flattened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from ..values import Shape, Value
from .registry import Equation

How = Literal["clipped", "filled", "inside"]


def out_of_bounds_are(mode: Any) -> How:
    """Return what becomes of places outside of the array: clipped to it, filled or left out, or promised not to be."""
    name = str(getattr(mode, "name", mode)).upper()
    return "clipped" if "CLIP" in name else "inside" if "PROMISE" in name else "filled"


class Places:
    """Places in an array of a shape; all are names of int64 values that broadcast."""

    def __init__(self, eqn: Equation, shape: Shape) -> None:
        self._b = eqn.builder
        self._shape = shape

    def read(self, indices: Value, axes: Sequence[int]) -> dict[int, str]:
        """Return, for each axis, the indices along it, of their shape without the last axis."""
        b, rank = self._b, len(indices.shape)
        name = b.cast(b.whole(indices), np.int64)
        if len(axes) == 1:
            return {int(axes[0]): b.node("Squeeze", [name, b.integers([rank - 1])])}
        return {
            int(axis): b.node("Gather", [name, b.constant(np.int64(i))], axis=rank - 1) for i, axis in enumerate(axes)
        }

    def along(self, shape: Shape, axis: int) -> str:
        """Return 0, 1, 2, ... along an axis, which broadcasts to a shape."""
        n, b = shape[axis], self._b
        held = tuple(n if i == axis else 1 for i in range(len(shape)))
        if isinstance(n, int):
            return b.constant(np.arange(n).reshape(held))
        end = b.node("Squeeze", [b.sizes.one(n)])
        numbers = b.node("Range", [b.constant(np.int64(0)), end, b.constant(np.int64(1))])
        return b.reshaped(numbers, held)

    def moved(self, start: str, shape: Shape, axes: Sequence[int]) -> str:
        """Return indices with axes of length 1 more, so that their own lie at these places of a shape."""
        return self._b.reshaped(start, tuple(n if i in axes else 1 for i, n in enumerate(shape)))

    def bounded(self, starts: dict[int, str], sizes: Sequence[Any], how: How) -> str | None:
        """Clip where slices start; or return where they lie inside of the array, if it has to be asked."""
        b, found = self._b, list[str]()
        for axis, start in starts.items():
            most = self._shape[axis] - sizes[axis]
            if how == "filled":
                above = b.node("GreaterOrEqual", [start, b.constant(np.int64(0))])
                below = b.node("LessOrEqual", [start, b.node("Squeeze", [b.sizes.one(most)])])
                found.append(b.node("And", [above, below]))
            if how != "inside":
                starts[axis] = self.clipped(start, most)
        for other in found[1:]:
            found[0] = b.node("And", [found[0], other])
        return found[0] if found else None

    def clipped(self, place: str, most: Any) -> str:
        """Hold places between 0 and the most."""
        b = self._b
        name: str = b.node("Max", [b.node("Min", [place, b.sizes.one(most)]), b.integers([0])])
        return name

    def flat(self, parts: Mapping[int, Sequence[str]], shape: Shape) -> str:
        """Return places in the flattened array, of a whole shape, from the sum of parts along each axis."""
        b, step = self._b, 1
        total = b.constant(np.int64(0))
        for axis in reversed(range(len(self._shape))):
            for part in parts.get(axis, ()):
                scaled = part if isinstance(step, int) and step == 1 else b.node("Mul", [part, b.sizes.one(step)])
                total = b.node("Add", [total, scaled])
            step = step * self._shape[axis]
        whole: str = b.node("Expand", [total, b.sizes.vector(shape)])
        return whole
