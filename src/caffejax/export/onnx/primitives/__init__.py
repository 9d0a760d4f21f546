"""JAX's primitives as ONNX nodes: the general way, by which any layer goes that has no operators of its own."""

from . import calls, elementwise, indexing, products, reductions, shape, sorting, windows  # noqa: F401  they register
from .registry import Equation, cannot, handler, is_elementwise, primitives

__all__ = ["Equation", "cannot", "handler", "is_elementwise", "primitives"]
