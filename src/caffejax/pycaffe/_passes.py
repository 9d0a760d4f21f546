"""Passes that have run: what can still be asked of them, and what a layer read in them."""

from __future__ import annotations

from ..graph import Graph, Layer
from ._execution import Args, Section, Seeds, Stretch
from ._synced import Memory


class Pass:
    """A forward pass, which can be computed again for what it has not returned.

    Attributes:
        stretch: the layers that it ran.
        args: what it was given.
        time: when it was done: memories of a later version have been written to since.
        waiting: the memories of blobs that it has not returned.
    """

    def __init__(self, stretch: Stretch, args: Args) -> None:
        self.stretch, self.args = stretch, args
        self.time = -1
        self.waiting: dict[str, Memory] = {}

    def resolve(self) -> None:
        """Computes the blobs that were not returned."""
        values = self.stretch.forward(self.args, self.stretch.makes).values
        for name, memory in self.waiting.items():
            memory.fill(self, values[name])


class BackwardPass:
    """A backward pass likewise.

    Args:
        work: the forward pass before it.
        seeds: what it started from.
        section: the layers that it ran.
    """

    def __init__(self, work: Pass, seeds: Seeds, section: Section) -> None:
        self.work, self.seeds, self.section = work, seeds, section
        self.waiting: dict[str, Memory] = {}

    def resolve(self) -> None:
        """Computes the diffs that were not returned."""
        stretch = self.work.stretch
        diffs = stretch.backward(self.work.args, self.seeds, self.section, self.section.writes)
        for name, memory in self.waiting.items():
            memory.fill(self, diffs.blobs[name])


def in_place(layer: Layer) -> frozenset[str]:
    """The bottoms that a layer writes its tops over: afterwards no memory holds what it read."""
    return frozenset(layer.bottoms).intersection(layer.tops)


def maker(graph: Graph, i: int, name: str) -> int:
    """The index of the layer that makes of a blob what layer `i` reads of it."""
    return max(j for j, layer in enumerate(graph.layers[:i]) if name in layer.tops)
