"""Freezing a graph: constants folded, weights packed for the device, layers run as programs."""

from .constant_folding import fold, materialize
from .executable import CompiledShapes

__all__ = ["CompiledShapes", "fold", "materialize"]
