"""Layer types that oneDNN computes."""

from . import convolution, moving, neuron, normalization, pooling  # noqa: F401  they register
from .registry import LOWERINGS, Call

__all__ = ["LOWERINGS", "Call"]
