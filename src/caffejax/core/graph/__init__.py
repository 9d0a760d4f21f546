"""Graphs: nets to which Caffe's rules for layers, blobs and shapes have been applied."""

from .build import build_graph as build_graph
from .graph import UNNAMED_TOP as UNNAMED_TOP
from .graph import Graph as Graph
from .graph import Layer as Layer
from .graph import Param as Param
from .graph import Slot as Slot
from .graph import is_random as is_random
from .inference_graph import make_inference_graph as make_inference_graph
from .resolve import make_net_state as make_net_state
