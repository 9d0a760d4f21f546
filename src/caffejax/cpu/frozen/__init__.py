"""Compilation of nets for inference: fold constants, pack weights, and run layers as oneDNN programs."""

from .compiled_net import CompiledNet
from .constant_folding import fold, materialize

__all__ = ["CompiledNet", "fold", "materialize"]
