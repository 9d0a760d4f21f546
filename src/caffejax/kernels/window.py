"""The sliding window of convolution and pooling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

Shape = tuple[int, ...]


def reach(size: int, n: int) -> int:
    """Return how many of n cells a centred window of `size` covers on each side of its centre."""
    return min(size // 2, n - 1)


@dataclass(frozen=True)
class Window:
    """A sliding window, with an entry for each spatial axis.

    Attributes:
        kernel: its sizes in cells.
        stride: the distance between neighbouring windows, in cells.
        padding: the number of cells added at the (low, high) ends of the input; negative numbers remove cells.
        dilation: the distance between neighbouring cells of a window.
    """

    kernel: Shape
    stride: Shape
    padding: tuple[tuple[int, int], ...]
    dilation: Shape

    @classmethod
    def symmetric(cls, kernel: Shape, stride: Shape, pad: Shape, dilation: Shape | None = None) -> Window:
        """Make a window with the same padding at both ends; default dilation: 1."""
        return cls(kernel, stride, tuple((p, p) for p in pad), dilation or (1,) * len(kernel))

    @property
    def low(self) -> Shape:
        """The padding at the low ends."""
        return tuple(low for low, _ in self.padding)

    @property
    def extent(self) -> Shape:
        """The number of cells that the dilated kernel spans."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    def output(self, size: Sequence[int]) -> Shape:
        """Return the number of windows along each axis of an input of this size."""
        axes = zip(size, self.extent, self.stride, self.padding, strict=True)
        return tuple((n + low + high - e) // s + 1 for n, e, s, (low, high) in axes)

    def cells(self, out: Sequence[int]) -> Iterator[tuple[slice, ...]]:
        """Yield, for each position of the kernel in row-major order, its cells of `out` windows in the padded input."""
        for place in product(*map(range, self.kernel)):
            axes = zip(place, out, self.stride, self.dilation, strict=True)
            yield tuple(slice(i * d, i * d + (n - 1) * s + 1, s) for i, n, s, d in axes)

    def ending(self, size: Sequence[int], out: Sequence[int]) -> Window:
        """Set the high padding so that the padded input ends with the last of `out` windows."""
        axes = zip(size, out, self.extent, self.stride, self.low, strict=True)
        return replace(self, padding=tuple((low, (o - 1) * s + e - n - low) for n, o, e, s, low in axes))

    def without_rest(self, size: Sequence[int]) -> Window:
        """Remove negative high padding if no window reaches the cells that it removes."""
        window = replace(self, padding=tuple((low, max(high, 0)) for low, high in self.padding))
        return window if window.output(size) == self.output(size) else self

    def evened(self, size: Sequence[int]) -> Window:
        """Increase the high padding to the low padding if that adds no window."""
        window = replace(self, padding=tuple((low, max(low, high)) for low, high in self.padding))
        return window if window.output(size) == self.output(size) else self

    def transposed(self) -> Window:
        """Return the window of the transposed convolution: over the dilated output, with the kernel flipped."""
        padding = tuple((e - 1 - low, e - 1 - high) for e, (low, high) in zip(self.extent, self.padding, strict=True))
        return replace(self, stride=(1,) * len(self.stride), padding=padding)
