"""NetParameter to Graph: Caffe's rules about what a net is."""

from .build import build_graph
from .inference import inference_graph
from .model import AUTOMATIC, Graph, Layer, Param, Slot
from .randomness import is_random
from .rules import net_state

__all__ = ["AUTOMATIC", "Graph", "Layer", "Param", "Slot", "build_graph", "inference_graph", "is_random", "net_state"]
