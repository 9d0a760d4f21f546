"""The interface of emitters, which are the functions that write layers as flax source."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import LayerError, require
from ...graph import Layer
from ..inference_model import Subject
from .ir import Order, Part, Shape, Step, Value


def channels_last(n: int) -> Order:
    """Return the order of n of Caffe's axes with axis 1, the channels, last: (0, 2, 3, 1) for n = 4."""
    return (0, *range(2, n), 1) if n > 2 else tuple(range(n))


def stored_shape(shape: Shape) -> tuple[int | str, ...]:
    """Return the shape of an input or output in the source: channels last, and "batch" as the first size."""
    return ("batch", *(shape[axis] for axis in channels_last(len(shape))[1:])) if shape else ()


def caffe_order(n: int) -> Order:
    """Return Caffe's order of n axes: (0, 1, 2, 3) for n = 4."""
    return tuple(range(n))


@dataclass
class Builder:
    """A program under construction: its steps, values, helpers and shared modules."""

    subject: Subject
    steps: list[Step] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    helpers: set[str] = field(default_factory=set)
    shared: dict[tuple[Any, ...], Part] = field(default_factory=dict)

    def value(self, blob: str, shape: Shape, order: Order, flat: tuple[Shape, Order] | None = None) -> Value:
        """Add a value to the program; return the value. The arguments are the attributes of `Value`."""
        value = Value(len(self.values), blob, shape, order, flat)
        self.values.append(value)
        return value


@dataclass
class Emission:
    """A layer to write as flax source.

    Attributes:
        builder: the program.
        layer: the layer.
        bottoms: the values of the layer's bottoms.
    """

    builder: Builder
    layer: Layer
    bottoms: tuple[Value, ...]

    @property
    def p(self) -> Any:
        """The parameter message of the layer's type."""
        return self.layer.context.param

    @cached_property
    def tops(self) -> tuple[Shape, ...]:
        """The shapes of the tops in Caffe's axis order."""
        return tuple(tuple(self.builder.subject.net.graph.blobs[top].shape) for top in self.layer.tops)

    @cached_property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The layer's parameters and state as float32 arrays, in Caffe's order and shapes."""
        return tuple(np.asarray(array, np.float32) for array in self.builder.subject.arrays(self.layer))

    def call(
        self,
        text: str,
        *reads: Value,
        part: Part | None = None,
        helpers: Sequence[str] = (),
        shape: Shape | None = None,
        order: Order | None = None,
        flat: tuple[Shape, Order] | None = None,
        blob: str | None = None,
        after: bool = False,
    ) -> Value:
        """Add a step that computes one value; return the value.

        Args:
            text: the expression, with `{0}`, `{1}` for the values in `reads` and `{part}` for the module.
            reads: the values that the expression reads.
            part: the module that the expression calls.
            helpers: names of helper functions in the expression.
            shape, order, flat, blob: attributes of the value; default: from the first value in `reads` and the top.
            after: True if the expression may be nested with the previous step's expression in one statement.
        """
        like = reads[0] if reads else None
        shape = shape if shape is not None else like.shape if like else ()
        order = order if order is not None else like.order if like and len(like.order) == len(shape) else None
        value = self.builder.value(
            self.blob_name(self.layer.tops[0]) if blob is None else blob,
            shape,
            order or channels_last(len(shape)),
            flat,
        )
        self.builder.helpers.update(helpers)
        self.builder.steps.append(
            Step(self.layer.name, text, tuple(v.number for v in reads), (value.number,), part, after=after)
        )
        return value

    def blob_name(self, top: str) -> str:
        """Return the name of a top in the prototxt, without the suffix `/layer` of a blob that is overwritten later."""
        return top.removesuffix(f"/{self.layer.key}")

    def elementwise(self, text: str, *reads: Value, part: Part | None = None, helpers: Sequence[str] = ()) -> Value:
        """Add an element-wise step; return its value. The arguments are the same as in `call`."""
        like = reads[0]
        return self.call(
            text,
            *reads,
            part=part,
            helpers=helpers,
            shape=like.shape,
            order=like.order,
            flat=like.flat,
            after=len(reads) == 1,
        )

    def split(self, text: str, read: Value, shapes: Sequence[Shape], helpers: Sequence[str] = ()) -> tuple[Value, ...]:
        """Add a step that computes one value for each top, in the stored order of `read`; return the values."""
        self.builder.helpers.update(helpers)
        named = zip(self.layer.tops, shapes, strict=True)
        values = tuple(self.builder.value(self.blob_name(top), shape, read.order) for top, shape in named)
        self.builder.steps.append(Step(self.layer.name, text, (read.number,), tuple(v.number for v in values)))
        return values

    def part(
        self, maker: str, kind: str, weights: Mapping[str, np.ndarray], *, positional: int = 0, **arguments: Any
    ) -> Part:
        """Return a module with the layer's parameters. Layers that share all parameters share the module.

        Args:
            maker: the class or function that creates the module, such as `nnx.Conv`.
            kind: a short word for the module, used in names.
            weights: the module's arrays by path, such as `kernel`.
            positional: number of arguments that are passed by position.
            arguments: the arguments of `maker`.

        Raises:
            LayerError: if another layer with the same parameters is written as a different module.
        """
        random = arguments.pop("random", True)
        owners = tuple(param.owner for param in self.layer.all_params)
        part = Part(maker, tuple(arguments.items()), kind, positional, weights, random, owners)
        same = [part for others, part in self.builder.shared.items() if set(others) & set(owners)]
        if not same:
            self.builder.shared[owners] = part
            return part
        equal = same[0] == part and same[0].owners == owners
        equal = equal and all(np.array_equal(array, same[0].weights[name]) for name, array in weights.items())
        require(equal, "shares params with a layer that is written as another module; give it params of its own")
        return same[0]

    def reorder(self, value: Value, order: Order) -> Value:
        """Return a value with axes in `order` and features in Caffe's order. A transposition is added if needed."""
        value = self._restore_feature_order(value)
        if value.order == order:
            return value
        large_axes = [axis for axis in value.order if value.shape[axis] != 1]
        if large_axes == [axis for axis in order if value.shape[axis] != 1]:
            target = tuple(value.shape[axis] for axis in order)
            return self.call(reshape_expression(target), value, order=order, blob=value.blob)
        axes = ", ".join(str(value.order.index(axis)) for axis in order)
        return self.call(f"{{0}}.transpose({axes})", value, order=order, blob=value.blob)

    def last(self, value: Value) -> Value:
        """Return a value with its channels last. A transposition is added if needed."""
        return self.reorder(value, channels_last(len(value.shape)))

    def plain(self, value: Value) -> Value:
        """Return a value in Caffe's axis order. A transposition is added if needed."""
        return self.reorder(value, caffe_order(len(value.shape)))

    def alike(self, values: Sequence[Value]) -> tuple[Value, ...]:
        """Return values of equal shape in the same axis order. Transpositions are added if needed."""
        first = values[0]
        if all(v.order == first.order and v.flat == first.flat for v in values):
            return tuple(values)
        first = self._restore_feature_order(first)
        return (first, *(self.reorder(v, first.order) for v in values[1:]))

    def row_major(self, value: Value, axis: int = 0) -> bool:
        """Return whether the axes from `axis` on are stored in Caffe's order. Axes of length 1 are ignored."""
        order = [k for k in value.order if value.shape[k] != 1 and k >= axis]
        return value.flat is None and order == sorted(order)

    def _restore_feature_order(self, value: Value) -> Value:
        if value.flat is None:
            return value
        shape, order = value.flat
        sizes = ", ".join(str(shape[axis]) for axis in order)
        back = ", ".join(str(1 + order.index(axis)) for axis in range(len(shape)))
        text = f"{{0}}.reshape(-1, {sizes}).transpose(0, {back}).reshape(-1, {value.shape[1]})"
        return self.call(text, value, blob=value.blob)


def reshape_expression(shape: Sequence[int | str]) -> str:
    """Return an expression that reshapes value `{0}` to a shape but keeps the size of the first axis."""
    sizes = ", ".join(map(str, ("{0}.shape[0]", *shape[1:])))
    return f"{{0}}.reshape({sizes})"


Emit = Callable[[Emission], "Value | Sequence[Value]"]

_EMITTERS: dict[str, Emit] = {}


def writes(*types: str) -> Callable[[Emit], Emit]:
    """Return a decorator that registers an emitter for layer types."""

    def note(emit: Emit) -> Emit:
        _EMITTERS.update(dict.fromkeys(types, emit))
        return emit

    return note


def known_types() -> frozenset[str]:
    """Return the names of the layer types that have an emitter."""
    return frozenset(_EMITTERS)


def emitter_of(layer: Layer) -> Emit:
    """Return the emitter of a layer's type.

    Raises:
        LayerError: if the type has no emitter.
    """
    emitter = _EMITTERS.get(layer.type.name)
    if emitter is None:
        raise LayerError("has no counterpart in flax; export outputs that do not depend on it")
    return emitter


def number(value: float) -> int | float:
    """Return a float32 number in its shortest form: 0.1 instead of 0.10000000149, and 2 instead of 2.0.

    Raises:
        LayerError: if the number is not finite.
    """
    require(math.isfinite(value), f"has a parameter that is {value}, which cannot be written as a number")
    short = float(str(np.float32(value)))
    return int(short) if short.is_integer() and abs(short) < 1e6 else short


def one_or_all(values: Sequence[int]) -> int | tuple[int, ...]:
    """Return the number if all values are equal, else the tuple of values."""
    return values[0] if len(set(values)) == 1 else tuple(values)


def affine_expression(scale: float, shift: float) -> str:
    """Return the expression for scale * x + shift, with `{0}` for x."""
    scale, shift = number(scale), number(shift)
    text = "{0}" if scale == 1 else "-{0}" if scale == -1 else f"{scale} * {{0}}"
    return text if shift == 0 else f"{text} {'-' if shift < 0 else '+'} {abs(shift)}"
