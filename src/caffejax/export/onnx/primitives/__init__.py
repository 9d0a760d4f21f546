"""Conversion of JAX primitives to ONNX nodes, for layers that `layer_converters.py` does not convert."""

from . import arithmetic_primitives, control_flow, convolution_primitives, index_primitives, shape_primitives  # noqa: F401  they register
from .converters import Equation, get_converter, is_elementwise, unsupported_error

__all__ = ["Equation", "get_converter", "is_elementwise", "unsupported_error"]
