"""Indices that a net computes itself, looked at before anything is done with what they pick.

In a compiled net an index out of range gives NaN. What stands in the data is looked at as it is read (see `Loader`);
for the rest, of which most nets have none, the part of the net that computes indices runs once more, before each pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from ..graph.indices import HANDING_ON, check_indices, count_indexed, indexing_layers
from ..graph.model import Graph, Layer
from ..net import Net, Params


class IndexCheck:
    """What stops a run at an index that is out of range, where the net computes indices.

    Args:
        net: the net.

    Attributes:
        needed: whether there is anything to look at.
    """

    def __init__(self, net: Net) -> None:
        self._file = net.graph.file
        self._layers = [layer for layer in indexing_layers(net.graph) if not _as_read(net.graph, layer)]
        self.needed = bool(self._layers)
        self._run = net.jit(lambda params, state, batch, key: self._found(net, params, state, batch, key))

    def __call__(self, params: Params, state: Params, batch: Mapping[str, Any], key: jax.Array) -> None:
        """Looks at a pass, given as to `Net.loss`.

        Raises:
            LayerError: for an index out of range, with the layer, the index and the range.
        """
        if not self.needed:
            return
        found = self._run(params, state, batch, key)
        for layer, (indices, count) in zip(self._layers, found, strict=True):
            check_indices(layer, indices, int(count), self._file)

    def _found(self, net: Net, params: Params, state: Params, batch: Mapping[str, Any], key: jax.Array) -> Any:
        """For each layer its indices and how many things they number; the rest is computed only for its shape."""
        names = {name for layer in self._layers for name in layer.bottoms}
        values, _ = net.apply(params, state, batch, key=key, blobs=names)
        return [
            (values[layer.bottoms[i]], count_indexed(layer, (values[name] for name in layer.bottoms)))
            for layer in self._layers
            for i in layer.index_bottoms
        ]


def _as_read(graph: Graph, layer: Layer) -> bool:
    """Whether a layer's indices stand in the data like that."""
    makers = {top: other for other in graph.layers for top in other.tops}
    waiting = [makers[layer.bottoms[i]] for i in layer.index_bottoms]
    while waiting:
        maker = waiting.pop()
        if maker.type.open_source is None and maker.type.name not in HANDING_ON:
            return False
        waiting += [makers[name] for name in maker.bottoms]
    return True
