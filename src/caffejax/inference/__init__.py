"""Freezing a graph: constants folded, weights packed for the device, layers run as programs."""

from .folding import fold, materialize
from .ready import Ready

__all__ = ["Ready", "fold", "materialize"]
