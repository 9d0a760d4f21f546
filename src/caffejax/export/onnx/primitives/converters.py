"""How each of JAX's primitives becomes nodes, by its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import LayerError
from ..builder import Builder, Shape, Value

Handler = Callable[["Equation"], Value | Sequence[Value]]
_handlers: dict[str, Handler] = {}
_elementwise: set[str] = set()


@dataclass(frozen=True)
class Equation:
    """One equation of a jaxpr.

    Attributes:
        builder: what it adds its nodes to.
        name: the primitive's name.
        inputs: its operands.
        shapes, dtypes: its results'.
        params: its params.
        inline: `inline(closed jaxpr, inputs)` converts a jaxpr among its params.
    """

    builder: Builder
    name: str
    inputs: Sequence[Value]
    shapes: Sequence[Shape]
    dtypes: Sequence[np.dtype[Any]]
    params: dict[str, Any]
    inline: Callable[[Any, Sequence[Value]], list[Value]]

    @property
    def shape(self) -> Shape:
        """The shape of its only result."""
        return self.shapes[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of its only result."""
        return self.dtypes[0]

    def emit(self, op: str, *inputs: Value, **attributes: Any) -> Value:
        """Add a node on whole inputs, its own unless given; return it as the equation's only result."""
        return self.builder.emit(op, inputs or self.inputs, self.shape, self.dtype, **attributes)


def converts(*names: str, elementwise: bool = False) -> Callable[[Handler], Handler]:
    """Register a function for primitives of these names.

    Args:
        names: the primitives.
        elementwise: whether each number of the result depends on the numbers at its place only, and operands
            broadcast.
    """

    def register(handler: Handler) -> Handler:
        _handlers.update(dict.fromkeys(names, handler))
        if elementwise:
            _elementwise.update(names)
        return handler

    return register


def handler(name: str) -> Handler:
    """Return what converts a primitive.

    Raises:
        LayerError: if nothing does.
    """
    if name not in _handlers:
        raise cannot(f"computes with JAX's {name}, for which ONNX has no operator")
    return _handlers[name]


def is_elementwise(name: str) -> bool:
    """Return whether a primitive is one of those that broadcast."""
    return name in _elementwise


def cannot(reason: str) -> LayerError:
    """Return the error of a layer that cannot be exported."""
    return LayerError(f"cannot be exported to ONNX: {reason}")
