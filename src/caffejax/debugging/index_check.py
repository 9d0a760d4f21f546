"""Indices out of range: looked for where layers pick things by number, before anything is done with what they pick.

In a compiled net an index out of range gives NaN. What stands in the data is looked at as it is read (see
`data.loader`); for the rest, of which most nets have none, the part of the net that computes indices runs once more,
before each pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ..errors import LayerError
from ..graph import Graph, Layer
from ..graph.traits import count_indexed, index_blob, indexing_layers, out_of_range
from ..layers import Reads
from ..net import Net, Params


def check_indices(layer: Layer, bottoms: Sequence[Any]) -> None:
    """Check the indices that a layer is given.

    Args:
        layer: a layer that picks things by number.
        bottoms: its bottoms; of those that hold no indices only the shapes count.

    Raises:
        LayerError: for an index out of range, with the layer, the index and the range.
    """
    (bottom,) = layer.index_bottoms
    _check(layer, bottoms[bottom], count_indexed(layer, bottoms))


def _check(layer: Layer, indices: Any, count: int) -> None:
    numbers = np.asarray(indices)
    bad = out_of_range(numbers, count)
    if bad.any():
        place = [int(i) for i in np.argwhere(bad)[0]]
        message = (
            f"index {numbers[bad].flat[0]:g} at {place} of bottom '{index_blob(layer)}' is out of range: "
            f"it must be one of 0 to {count - 1}"
        )
        raise LayerError(layer.problem(message))


class IndexCheck:
    """Stops a run at an index out of range, where the net computes indices.

    Args:
        net: the net.

    Attributes:
        needed: whether there is anything to look at.
    """

    def __init__(self, net: Net) -> None:
        self._layers = [layer for layer in indexing_layers(net.graph) if not _as_read(net.graph, layer)]
        self.needed = bool(self._layers)
        self._run = net.jit(lambda params, state, batch, key: self._found(net, params, state, batch, key))

    def __call__(self, params: Params, state: Params, batch: Mapping[str, Any], key: jax.Array) -> None:
        """Check a pass, given as to `Net.loss`.

        Raises:
            LayerError: for an index out of range, with the layer, the index and the range.
        """
        if not self.needed:
            return
        found = self._run(params, state, batch, key)
        for layer, (indices, count) in zip(self._layers, found, strict=True):
            _check(layer, indices, int(count))

    def _found(self, net: Net, params: Params, state: Params, batch: Mapping[str, Any], key: jax.Array) -> Any:
        """Compute each layer's indices, and how many things they number; of other bottoms only the shapes count."""
        names = {name for layer in self._layers for name in layer.bottoms}
        values, _ = net.apply(params, state, batch, key=key, blobs=names)
        return [
            (values[layer.bottoms[i]], count_indexed(layer, (values[name] for name in layer.bottoms)))
            for layer in self._layers
            for i in layer.index_bottoms
        ]


def _as_read(graph: Graph, layer: Layer) -> bool:
    """Return whether a layer's indices stand in the data as they are."""
    makers = {top: other for other in graph.layers for top in other.tops}
    waiting = [makers[layer.bottoms[i]] for i in layer.index_bottoms]
    while waiting:
        maker = waiting.pop()
        if not isinstance(maker.type.implementation, Reads) and maker.type.traits.data_movement != "whole":
            return False
        waiting += [makers[name] for name in maker.bottoms]
    return True
