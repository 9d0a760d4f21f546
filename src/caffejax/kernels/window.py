"""The window that convolution and pooling slide over space."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

Shape = tuple[int, ...]


def reach(size: int, n: int) -> int:
    """Return how far a centred window of `size` reaches to either side, along an axis of n cells, and no further."""
    return min(size // 2, n - 1)


@dataclass(frozen=True)
class Window:
    """A sliding window, with an entry for each spatial axis.

    Attributes:
        kernel: its cells.
        stride: the steps it takes.
        padding: how many cells are added at the (low, high) ends of the input; negative ones are cut off.
        dilation: the steps between its cells.
    """

    kernel: Shape
    stride: Shape
    padding: tuple[tuple[int, int], ...]
    dilation: Shape

    @classmethod
    def symmetric(cls, kernel: Shape, stride: Shape, pad: Shape, dilation: Shape | None = None) -> Window:
        """Make a window with the same padding at both ends; without dilation unless given."""
        return cls(kernel, stride, tuple((p, p) for p in pad), dilation or (1,) * len(kernel))

    @property
    def low(self) -> Shape:
        """The padding at the low ends."""
        return tuple(low for low, _ in self.padding)

    @property
    def extent(self) -> Shape:
        """What the kernel spans, holes included."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    def output(self, size: Sequence[int]) -> Shape:
        """Return the number of windows along each axis of an input of that size."""
        axes = zip(size, self.extent, self.stride, self.padding, strict=True)
        return tuple((n + low + high - e) // s + 1 for n, e, s, (low, high) in axes)

    def cells(self, out: Sequence[int]) -> Iterator[tuple[slice, ...]]:
        """Yield, for each place of the kernel in row-major order, where `out` windows have it in the padded input."""
        for place in product(*map(range, self.kernel)):
            axes = zip(place, out, self.stride, self.dilation, strict=True)
            yield tuple(slice(i * d, i * d + (n - 1) * s + 1, s) for i, n, s, d in axes)

    def ending(self, size: Sequence[int], out: Sequence[int]) -> Window:
        """Set the high padding such that it ends where the last of `out` windows does."""
        axes = zip(size, out, self.extent, self.stride, self.low, strict=True)
        return replace(self, padding=tuple((low, (o - 1) * s + e - n - low) for n, o, e, s, low in axes))

    def without_rest(self, size: Sequence[int]) -> Window:
        """Drop negative high padding where all that it cuts off is left over anyway."""
        found = replace(self, padding=tuple((low, max(high, 0)) for low, high in self.padding))
        return found if found.output(size) == self.output(size) else self

    def evened(self, size: Sequence[int]) -> Window:
        """Pad the high ends as much as the low ones where no window more comes of it."""
        found = replace(self, padding=tuple((low, max(low, high)) for low, high in self.padding))
        return found if found.output(size) == self.output(size) else self

    def transposed(self) -> Window:
        """Return what leads from the windows, spread out by the stride, back to the input, with the flipped kernel."""
        padding = tuple((e - 1 - low, e - 1 - high) for e, (low, high) in zip(self.extent, self.padding, strict=True))
        return replace(self, stride=(1,) * len(self.stride), padding=padding)
