"""Compilation of nets for inference: fold constants, pack weights, and run layers as oneDNN programs."""

from .constant_folding import fold, materialize
from .executable import CompiledNet

__all__ = ["CompiledNet", "fold", "materialize"]
