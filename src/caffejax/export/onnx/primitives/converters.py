"""Registry of converters from JAX primitives to ONNX nodes."""

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
        builder: the model.
        name: the primitive's name.
        inputs: its operands.
        shapes, dtypes: shapes and dtypes of its results.
        params: its parameters.
        inline: `inline(closed jaxpr, inputs)` converts a jaxpr among its parameters.
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
        """Shape of the only result."""
        return self.shapes[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the only result."""
        return self.dtypes[0]

    def emit(self, op: str, *inputs: Value, **attributes: Any) -> Value:
        """Add a node and return its output as the only result. inputs: full-shape; default: the equation's operands."""
        return self.builder.emit(op, inputs or self.inputs, self.shape, self.dtype, **attributes)


def converts(*names: str, elementwise: bool = False) -> Callable[[Handler], Handler]:
    """Register a converter for primitives of these names.

    Args:
        names: names of the primitives.
        elementwise: whether the primitive is element-wise, with operands that broadcast.
    """

    def register(handler: Handler) -> Handler:
        _handlers.update(dict.fromkeys(names, handler))
        if elementwise:
            _elementwise.update(names)
        return handler

    return register


def handler(name: str) -> Handler:
    """Return the converter of a primitive.

    Raises:
        LayerError: if the primitive has no converter.
    """
    if name not in _handlers:
        raise cannot(f"computes with JAX's {name}, for which ONNX has no operator")
    return _handlers[name]


def is_elementwise(name: str) -> bool:
    """Return whether a primitive is registered as element-wise."""
    return name in _elementwise


def cannot(reason: str) -> LayerError:
    """Return the error for a layer that cannot be exported."""
    return LayerError(f"cannot be exported to ONNX: {reason}")
