"""The plan of a net, or of a range of its layers: the passes in their order."""

from __future__ import annotations

from ..graph import Graph
from .cut import cut_round_host
from .fuse import fuse
from .model import Schedule, schedule_of


def plan(graph: Graph, first: int = 0, last: int | None = None) -> Schedule:
    """Plan how a graph's layers from number `first` to `last` run (all unless given): cut round host layers, fused."""
    return fuse(cut_round_host(schedule_of(graph, first, last), trim=graph.has_host_layers))
