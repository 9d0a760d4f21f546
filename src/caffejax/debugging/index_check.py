"""Checks for indices out of range in layers that select by index, such as Embed.

In a compiled net an index out of range results in NaN. Indices that come directly from the data are checked when they
are read (see `data.loader`). Indices that a net computes are rare. To check them, the part of the net that computes
them runs one additional time before each pass.
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
    """Check that all indices in a layer's bottoms are in range.

    Args:
        layer: a layer that selects by index.
        bottoms: its bottoms; only the shapes of bottoms without indices are used.

    Raises:
        LayerError: for an index out of range, with the layer, the index and the range.
    """
    (bottom,) = layer.index_bottoms
    _check(layer, bottoms[bottom], count_indexed(layer, bottoms))


def _check(layer: Layer, indices: Any, count: int) -> None:
    numbers = np.asarray(indices)
    bad = out_of_range(numbers, count)
    if bad.any():
        index = [int(i) for i in np.argwhere(bad)[0]]
        message = (
            f"index {numbers[bad].flat[0]:g} at {index} of bottom '{index_blob(layer)}' is out of range: "
            f"it must be one of 0 to {count - 1}"
        )
        raise LayerError(layer.problem(message))


class IndexCheck:
    """Checks the indices that a net computes, before each pass.

    Args:
        net: the net.

    Attributes:
        needed: whether the net computes any indices.
    """

    def __init__(self, net: Net) -> None:
        self._layers = [
            layer for layer in indexing_layers(net.graph.layers) if not _is_read_from_data(net.graph, layer)
        ]
        self.needed = bool(self._layers)
        self._run = net.jit(lambda params, state, batch, key: self._indices(net, params, state, batch, key))

    def __call__(self, params: Params, state: Params, batch: Mapping[str, Any], key: jax.Array) -> None:
        """Check all indices of a pass. The arguments are the same as in `Net.loss`.

        Raises:
            LayerError: for an index out of range, with the layer, the index and the range.
        """
        if not self.needed:
            return
        results = self._run(params, state, batch, key)
        for layer, (indices, count) in zip(self._layers, results, strict=True):
            _check(layer, indices, int(count))

    def _indices(self, net: Net, params: Params, state: Params, batch: Mapping[str, Any], key: jax.Array) -> Any:
        """Return for each layer that selects by a computed index the indices and the number of valid indices."""
        names = {name for layer in self._layers for name in layer.bottoms}
        values, _ = net.apply(params, state, batch, key=key, blobs=names)
        return [
            (values[layer.bottoms[i]], count_indexed(layer, (values[name] for name in layer.bottoms)))
            for layer in self._layers
            for i in layer.index_bottoms
        ]


def _is_read_from_data(graph: Graph, layer: Layer) -> bool:
    """Return whether a layer's indices come unchanged from a data layer."""
    makers = {top: other for other in graph.layers for top in other.tops}
    waiting = [makers[layer.bottoms[i]] for i in layer.index_bottoms]
    while waiting:
        maker = waiting.pop()
        if not isinstance(maker.type.implementation, Reads) and maker.type.traits.data_movement != "whole":
            return False
        waiting += [makers[name] for name in maker.bottoms]
    return True
