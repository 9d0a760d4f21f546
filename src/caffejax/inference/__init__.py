"""Compilation of nets for inference: constants are folded, weights packed, and layers run as oneDNN programs."""

from .constant_folding import fold, materialize
from .executable import CompiledShapes

__all__ = ["CompiledShapes", "fold", "materialize"]
