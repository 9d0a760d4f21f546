"""Graphs: nets to which Caffe's rules for layers, blobs and shapes have been applied."""

from .build import build_graph
from .graph import UNNAMED_TOP, Graph, Layer, Param, Slot, is_random
from .inference_graph import make_inference_graph
from .resolve import make_net_state

__all__ = [
    "UNNAMED_TOP",
    "Graph",
    "Layer",
    "Param",
    "Slot",
    "build_graph",
    "is_random",
    "make_inference_graph",
    "make_net_state",
]
