"""ONNX operators of layer types, by Caffe's type name: for those of which ONNX has the like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ....layers import Context
from ..builder import Builder
from ..values import Shape, Value, computed

Tops = Value | Sequence[Value]
Emitter = Callable[["Call"], Tops | None]


@dataclass(frozen=True)
class Call:
    """A layer to be put into a model.

    Attributes:
        builder: the model.
        context: what the layer computes with.
        blobs: its params and state.
        bottoms: its bottoms.
        shapes: its tops' shapes.
        prefix: what its initializers' names begin with.
    """

    builder: Builder
    context: Context
    blobs: Sequence[np.ndarray]
    bottoms: Sequence[Value]
    shapes: Sequence[Shape]
    prefix: str

    @property
    def param(self) -> Any:
        """The type's own parameter message."""
        return self.context.param

    @property
    def x(self) -> Value:
        """The first bottom."""
        return self.bottoms[0]

    @property
    def like(self) -> jax.ShapeDtypeStruct:
        """What has the first bottom's shape and dtype."""
        return jax.ShapeDtypeStruct(self.x.shape, self.x.dtype)

    def name(self, value: Value) -> str:
        """Return the name of a whole value."""
        return self.builder.whole(value)

    def array(self, array: Any, name: str | int) -> str:
        """Return the name of an initializer, `layer/name`."""
        return self.builder.constant(np.asarray(array), f"{self.prefix}/{name}")

    def blob(self, i: int) -> str:
        """Return the name of one of its blobs."""
        return self.array(self.blobs[i], i)

    def emit(self, op: str, *inputs: str, bottom: int = 0, **attributes: Any) -> Value:
        """Add a node on a bottom and further inputs; return it as the top of that number."""
        name = self.builder.node(op, [self.name(self.bottoms[bottom]), *inputs], **attributes)
        return self.top(name, bottom)

    def top(self, name: str, i: int = 0) -> Value:
        """Return a top."""
        return computed(name, self.shapes[i], self.x.dtype)


@dataclass(frozen=True)
class Scaled:
    """How a type is put into a model together with a factor and a bias for each channel that follow it.

    Attributes:
        holds: whether that can be done with a layer.
        emit: gives the only top of both.
    """

    holds: Callable[[Call], bool]
    emit: Callable[[Call, np.ndarray, np.ndarray], Value]


@dataclass(frozen=True)
class Operators:
    """How a type is put into a model.

    Attributes:
        emit: gives the tops; None where the layer's settings are such that it goes the general way.
        words: the operators, for the table in the documentation.
        unless: when it goes the general way, in words.
        scaled: how it takes in a factor and a bias by channel that follow.
    """

    emit: Emitter
    words: str
    unless: str = ""
    scaled: Scaled | None = None


OPERATORS: dict[str, Operators] = {}


def emits(*types: str, operators: str, unless: str = "", scaled: Scaled | None = None) -> Callable[[Emitter], Emitter]:
    """Register the operators of types; see `Operators`."""

    def register(emitter: Emitter) -> Emitter:
        OPERATORS.update(dict.fromkeys(types, Operators(emitter, operators, unless, scaled)))
        return emitter

    return register
