"""Registry of converters from JAX primitives to ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import LayerError
from ..builder import OnnxBuilder, OnnxValue, Shape

Handler = Callable[["Equation"], OnnxValue | Sequence[OnnxValue]]
_handlers: dict[str, Handler] = {}
_elementwise: set[str] = set()


@dataclass(frozen=True)
class Equation:
    """One equation of a jaxpr.

    Attributes:
        builder: the model.
        name: the primitive's name.
        inputs: the operands.
        shapes, dtypes: shapes and dtypes of the results.
        params: the primitive's parameters.
        inline: a function `inline(jaxpr, inputs)` that converts a closed jaxpr and returns its results.
    """

    builder: OnnxBuilder
    name: str
    inputs: Sequence[OnnxValue]
    shapes: Sequence[Shape]
    dtypes: Sequence[np.dtype[Any]]
    params: dict[str, Any]
    inline: Callable[[Any, Sequence[OnnxValue]], list[OnnxValue]]

    @property
    def shape(self) -> Shape:
        """The shape of the first result."""
        return self.shapes[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the first result."""
        return self.dtypes[0]

    def emit(self, op: str, *inputs: OnnxValue, **attributes: Any) -> OnnxValue:
        """Add a node; return its output as the equation's first result.

        Inputs are expanded to their full shapes. By default, they are the equation's operands.
        """
        return self.builder.emit(op, inputs or self.inputs, self.shape, self.dtype, **attributes)


def converts(*names: str, elementwise: bool = False) -> Callable[[Handler], Handler]:
    """Return a decorator that registers a converter for primitives.

    Args:
        names: names of the primitives.
        elementwise: True if the primitives are element-wise and broadcast their operands.
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
        raise cannot(f"it uses the JAX primitive {name}, for which ONNX has no operator")
    return _handlers[name]


def is_elementwise(name: str) -> bool:
    """Return whether a primitive is registered as element-wise."""
    return name in _elementwise


def cannot(reason: str) -> LayerError:
    """Return the error for a layer that cannot be exported."""
    return LayerError(f"cannot be exported to ONNX: {reason}")
