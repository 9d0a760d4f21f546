"""Params as a forward pass of Caffe leaves them: some types write into theirs."""

from __future__ import annotations

from ..graph import Graph
from ..graph.graph import tree_of
from ..variables import Params


def rewritten(graph: Graph, params: Params) -> Params:
    """Return the params with those replaced that a type writes into, see `ParamSpec`."""
    changes = tree_of(graph.learnable, lambda p: p.spec.rewritten and p.spec.rewritten(p.array(params, {})))
    return {**params, **{layer: {**params[layer], **blobs} for layer, blobs in changes.items()}}
