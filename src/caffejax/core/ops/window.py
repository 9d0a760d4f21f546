"""The sliding window of convolution and pooling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

Shape = tuple[int, ...]


def half_width(size: int, n: int) -> int:
    """Return how many cells of a window are on each side of its center.

    Args:
        size: the number of cells of the window.
        n: the length of the axis; the result is at most n - 1.
    """
    return min(size // 2, n - 1)


@dataclass(frozen=True)
class Window:
    """A sliding window. Each attribute has an entry for each spatial axis.

    Attributes:
        kernel: the number of cells of a window.
        stride: the distance between neighbouring windows, in cells of the input.
        padding: the number of cells added at the (low, high) ends of the input. Negative numbers remove cells.
        dilation: the distance between neighbouring cells of a window, in cells of the input.
    """

    kernel: Shape
    stride: Shape
    padding: tuple[tuple[int, int], ...]
    dilation: Shape

    @classmethod
    def symmetric(cls, kernel: Shape, stride: Shape, pad: Shape, dilation: Shape | None = None) -> Window:
        """Return a window with equal padding at both ends of each axis. The default dilation is 1."""
        return cls(kernel, stride, tuple((p, p) for p in pad), dilation or (1,) * len(kernel))

    @property
    def low(self) -> Shape:
        """The padding at the low end of each axis."""
        return tuple(low for low, _ in self.padding)

    @property
    def extent(self) -> Shape:
        """The number of input cells that the dilated kernel spans along each axis."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    def output_size(self, size: Sequence[int]) -> Shape:
        """Return the number of windows along each axis of an input of this size."""
        axes = zip(size, self.extent, self.stride, self.padding, strict=True)
        return tuple((n + low + high - e) // s + 1 for n, e, s, (low, high) in axes)

    def cells(self, num_windows: Sequence[int]) -> Iterator[tuple[slice, ...]]:
        """Yield, for each kernel position in row-major order, a tuple of slices of the padded input.

        The slices select the cell at this position in each of the windows.
        """
        for offset in product(*map(range, self.kernel)):
            axes = zip(offset, num_windows, self.stride, self.dilation, strict=True)
            yield tuple(slice(i * d, i * d + (n - 1) * s + 1, s) for i, n, s, d in axes)

    def fit_padding(self, size: Sequence[int], num_windows: Sequence[int]) -> Window:
        """Return the window with a high padding such that the padded input ends where the last window ends.

        Args:
            size: the spatial size of the input.
            num_windows: the number of windows along each axis.
        """
        axes = zip(size, num_windows, self.extent, self.stride, self.low, strict=True)
        return replace(self, padding=tuple((low, (o - 1) * s + e - n - low) for n, o, e, s, low in axes))

    def drop_negative_padding(self, size: Sequence[int]) -> Window:
        """Return the window with negative high padding set to 0, or `self` if this changes the number of windows."""
        if all(high >= 0 for _, high in self.padding):
            return self
        window = replace(self, padding=tuple((low, max(high, 0)) for low, high in self.padding))
        return window if window.output_size(size) == self.output_size(size) else self

    def equalize_padding(self, size: Sequence[int]) -> Window:
        """Return the window with high padding raised to the low padding, or `self` if this would add a window."""
        window = replace(self, padding=tuple((low, max(low, high)) for low, high in self.padding))
        return window if window.output_size(size) == self.output_size(size) else self

    def transpose(self) -> Window:
        """Return the window of the transposed convolution, which slides with stride 1 over the output's diff.

        The diff must be dilated by the stride of this window, and the kernel flipped.
        """
        padding = tuple((e - 1 - low, e - 1 - high) for e, (low, high) in zip(self.extent, self.padding, strict=True))
        return replace(self, stride=(1,) * len(self.stride), padding=padding)
