"""Layer types of which ONNX has the operators."""

from . import convolution, moving, neuron, normalization, pooling  # noqa: F401  they register
from .normalization import batch_normalization, normalises_by_stored
from .registry import OPERATORS, Call, Operators

__all__ = ["OPERATORS", "Call", "Operators", "batch_normalization", "normalises_by_stored"]
