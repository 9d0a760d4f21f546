"""Nets out of pickles: built anew from their definition."""

from __future__ import annotations

from typing import Any

from ..graph import Graph
from ..layers.context import Phase
from ..schema.caffe_pb2 import NetParameter, NetState


def rebuilt(kind: Any, message: bytes, state: bytes, options: dict[str, Any], as_: Phase | Graph) -> Any:
    """Return a net of this class as it was: in a phase of its definition, or with a graph made of that."""
    net = kind(NetParameter.FromString(message), state=NetState.FromString(state), **options)
    return net._with_graph(as_, reshaped=True) if isinstance(as_, Graph) else net.in_phase(as_)
