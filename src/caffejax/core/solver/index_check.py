"""Checks for indices out of range in layers that select by index, such as Embed.

In a compiled net, an index out of range results in NaN. Indices that come directly from the data are checked when they
are read; see `data.loader`. Indices that a net computes are rare. To check them, the part of the net that computes them
runs an additional time before each pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ...base.errors import LayerError
from ...base.variables import Params
from ..graph import Graph, Layer
from ..graph.index_ranges import count_indexed, find_index_blob, find_indexing_layers, find_out_of_range
from ..layers import SourceInput
from ..program.net import Net


def check_indices(layer: Layer, bottoms: Sequence[Any]) -> None:
    """Check that all indices in a layer's bottoms are in range.

    Args:
        layer: a layer that selects by index.
        bottoms: the layer's bottoms. Only the shapes of bottoms without indices are used.

    Raises:
        LayerError: if an index is out of range; the message has the layer, the index and the range.
    """
    (bottom,) = layer.index_bottoms
    _check_range(layer, bottoms[bottom], count_indexed(layer, bottoms))


def _check_range(layer: Layer, indices: Any, count: int) -> None:
    values, padding = np.asarray(indices), layer.context.evaluate(layer.type.gradient.indices.ignore_label)
    invalid = find_out_of_range(values, count, padding)
    if invalid.any():
        position = [int(i) for i in np.argwhere(invalid)[0]]
        message = (
            f"index {values[invalid].flat[0]:g} at {position} of bottom '{find_index_blob(layer)}' is out of range: "
            f"it must be from 0 to {count - 1}{'' if padding is None else f', or {padding}'}"
        )
        raise LayerError(layer.make_problem(message))


class IndexCheck:
    """Checks the indices that a net computes, before each pass.

    Args:
        net: the net.

    Attributes:
        is_needed: whether the net computes any indices.
    """

    def __init__(self, net: Net) -> None:
        self._layers = [
            layer for layer in find_indexing_layers(net.graph.layers) if not _is_read_from_data(net.graph, layer)
        ]
        self.is_needed = bool(self._layers)
        self._net, self._jitted_indices = net, net.jit(self._compute_indices)

    def __call__(self, params: Params, state: Params, batch: Mapping[str, Any], key: jax.Array) -> None:
        """Check all indices of a pass. The arguments are the same as in `Net.loss`.

        Raises:
            LayerError: if an index is out of range; the message has the layer, the index and the range.
        """
        if not self.is_needed:
            return
        results = self._jitted_indices(params, state, batch, key)
        for layer, (indices, count) in zip(self._layers, results, strict=True):
            _check_range(layer, indices, int(count))

    def _compute_indices(self, params: Params, state: Params, batch: Mapping[str, Any], key: jax.Array) -> Any:
        names = {name for layer in self._layers for name in layer.bottoms}
        values, _ = self._net.apply(params, state, batch, key=key, blobs=names)
        return [
            (values[layer.bottoms[i]], count_indexed(layer, (values[name] for name in layer.bottoms)))
            for layer in self._layers
            for i in layer.index_bottoms
        ]


def _is_read_from_data(graph: Graph, layer: Layer) -> bool:
    producers = {top: producer for producer in graph.layers for top in producer.tops}
    pending_layers = [producers[layer.bottoms[i]] for i in layer.index_bottoms]
    while pending_layers:
        producer = pending_layers.pop()
        if not isinstance(producer.type.implementation, SourceInput) and producer.type.traits.data_movement != "all":
            return False
        pending_layers += [producers[name] for name in producer.bottoms]
    return True
