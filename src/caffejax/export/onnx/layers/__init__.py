"""Layer types of which ONNX has the operators."""

from . import convolution, moving, neuron, normalization, pooling  # noqa: F401  they register
from .registry import OPERATORS, Call, Operators

__all__ = ["OPERATORS", "Call", "Operators"]
