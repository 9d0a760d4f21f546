"""Params as a forward pass of Caffe leaves them: some types write into theirs."""

from __future__ import annotations

from typing import Any

from ..graph import Graph
from ..variables import Params


def rewritten(graph: Graph, params: Params) -> Params:
    """Return the params with those replaced that a type writes into, see `ParamSpec`."""
    new = dict(params)
    for layer in graph.layers:
        for param in layer.params:
            if param.owned and param.spec.rewritten is not None:
                blobs: list[Any] = list(new[layer.key])
                blobs[param.slot.index] = param.spec.rewritten(blobs[param.slot.index])
                new[layer.key] = tuple(blobs)
    return new
