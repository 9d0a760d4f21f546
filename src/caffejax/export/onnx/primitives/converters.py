"""Registry of converters, which are functions that convert an equation with a JAX primitive to ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....base.errors import LayerError
from ..onnx_builder import OnnxBuilder, OnnxValue, Shape

Converter = Callable[["Equation"], OnnxValue | Sequence[OnnxValue]]
_converters: dict[str, Converter] = {}
_elementwise: set[str] = set()


@dataclass(frozen=True)
class Equation:
    """One equation of a jaxpr.

    Attributes:
        builder: the model.
        name: the primitive's name.
        inputs: the operands, as values of the model.
        shapes, dtypes: shapes and dtypes of the results.
        params: the primitive's parameters.
        inline: a function `inline(jaxpr, inputs)` that adds the nodes of a closed jaxpr and returns its results.
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
        """Add a node with the operator `op`; return its output as the equation's first result.

        The inputs are expanded to their full shapes; see `OnnxValue`. By default, they are the equation's operands.
        """
        return self.builder.emit(op, inputs or self.inputs, self.shape, self.dtype, **attributes)


def register_converter(*names: str, elementwise: bool = False) -> Callable[[Converter], Converter]:
    """Return a decorator that registers a function as the converter of primitives.

    Args:
        names: names of the primitives.
        elementwise: True if the primitives are element-wise and broadcast their operands.
    """

    def register(converter: Converter) -> Converter:
        _converters.update(dict.fromkeys(names, converter))
        if elementwise:
            _elementwise.update(names)
        return converter

    return register


def get_converter(name: str) -> Converter:
    """Return the converter of a primitive.

    Raises:
        LayerError: if the primitive has no converter.
    """
    if name not in _converters:
        raise unsupported_error(f"it uses the JAX primitive {name}, for which ONNX has no operator")
    return _converters[name]


def is_elementwise(name: str) -> bool:
    """Return whether a primitive is registered as element-wise."""
    return name in _elementwise


def unsupported_error(reason: str) -> LayerError:
    """Return the error for a layer that cannot be exported."""
    return LayerError(f"cannot be exported to ONNX: {reason}")
