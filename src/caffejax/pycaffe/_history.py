"""The passes that layers ran in last, and what has been written since over what they read."""

from __future__ import annotations

from collections.abc import Iterable

import jax

from ..graph import Layer
from . import _modes
from ._memories import Memories
from ._passes import Pass, new_pass
from ._range import Ranges


class History:
    """The pass that each layer ran in last.

    Args:
        ranges: the ranges of the graph's layers.
        memories: what passes read and write.
    """

    def __init__(self, ranges: Ranges, memories: Memories) -> None:
        self._ranges, self._memories = ranges, memories
        self._layers = ranges.graph.layers
        self._last: list[Pass | None] = []
        self.forget()

    def forget(self) -> None:
        """Have backward passes begin from what stands in the memories."""
        self._last = [None] * len(self._layers)

    def add(self, done: Pass) -> None:
        """Take a pass that has just run."""
        self._last[done.range.first : done.range.last + 1] = [done] * len(done.range.layers)

    def last(self, i: int) -> Pass | None:
        """Return the pass that layer `i` ran in last."""
        return self._last[i]

    def to_go_back(self, i: int) -> Pass:
        """Return the pass for layer `i` to go back through: its last, or a new one if what it read has changed since.

        What a layer wrote over by working in place is made again if nothing else was written there.
        """
        last, layer = self._last[i], self._layers[i]
        layers = self._ranges.of(i, i)
        if last is None:
            found = new_pass(layers, self._memories, _modes.next_key())
        else:
            overwritten = [name for name in _in_place(layer) if not self._remade(i, name, last)]
            if len(overwritten) == len(_in_place(layer)) and not self._written(layer, last):
                return last
            found = new_pass(layers, self._memories, last.args.key)
            blobs = {**found.args.blobs, **self._read(i, last, overwritten)}
            found.args = found.args._replace(state=last.args.state, blobs=blobs)
        if layers.on_host:
            found.args = found.args._replace(tops=self._memories.values(layers.makes))
        return found

    def _remade(self, i: int, name: str, last: Pass) -> bool:
        """Return whether the layer that makes what layer `i` reads of a blob ran after it."""
        maker = max(j for j, layer in enumerate(self._layers[:i]) if name in layer.tops)
        made = self._last[maker]
        return made is not None and made.time > last.time

    def _written(self, layer: Layer, last: Pass) -> bool:
        """Return whether something that a layer's backward pass depends on changed after its pass.

        What it works on in place does not count: later values there, its own and those of layers after it, are not
        what it read.
        """
        blobs = [self._memories.blobs[name] for name in layer.bottoms if name not in _in_place(layer)]
        params = [self._memories.slots[p.owner] for p in layer.params if p.spec.learnable]
        return any(blob.data_memory.settled_version() >= last.time for blob in (*blobs, *params))

    def _read(self, i: int, last: Pass, names: Iterable[str]) -> dict[str, jax.Array]:
        """Return what layer `i` read in its last pass of blobs that it then wrote over."""
        names = tuple(sorted(names))
        first = last.range.first
        if first == i or not names:
            return {name: last.args.blobs[name] for name in names}
        return self._ranges.of(first, i - 1).forward(last.args, names).values


def _in_place(layer: Layer) -> frozenset[str]:
    """Return the bottoms that a layer writes its tops over: afterwards no memory holds what it read."""
    return frozenset(layer.bottoms).intersection(layer.tops)
