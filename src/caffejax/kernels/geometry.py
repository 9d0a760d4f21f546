"""How the windows of a convolution lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Geometry(NamedTuple):
    """Stride, padding (low, high) and dilation along each spatial axis, and the number of groups."""

    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int = 1

    def output(self, size: Sequence[int], kernel: Sequence[int]) -> tuple[int, ...]:
        """The number of windows along each axis of an input of that size."""
        axes = zip(size, kernel, *self[:3], strict=True)
        return tuple((n + low + high - d * (k - 1) - 1) // s + 1 for n, k, s, (low, high), d in axes)

    def without_rest(self, size: Sequence[int], kernel: Sequence[int]) -> Geometry:
        """The same windows, without padding of less than 0 where that only takes away what is left over."""
        g = self._replace(padding=tuple((low, max(high, 0)) for low, high in self.padding))
        return g if g.output(size, kernel) == self.output(size, kernel) else self

    def transposed(self, kernel: Sequence[int]) -> Geometry:
        """With stride 1: what leads from the windows back to the input, with the flipped kernel."""
        extents = [d * (k - 1) for k, d in zip(kernel, self.dilation, strict=True)]
        padding = tuple((e - low, e - high) for e, (low, high) in zip(extents, self.padding, strict=True))
        return self._replace(padding=padding)
