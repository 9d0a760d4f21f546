"""What emitters are given: a layer, the values that it reads, and ways to add steps."""

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
    """Return the order of n axes with Caffe's axis 1 behind the others."""
    return (0, *range(2, n), 1) if n > 2 else tuple(range(n))


def stored_shape(shape: Shape) -> tuple[int | str, ...]:
    """Return the shape that a blob has in source, as input or output: its channels last, any number of rows."""
    return ("batch", *(shape[axis] for axis in channels_last(len(shape))[1:])) if shape else ()


def as_in_caffe(n: int) -> Order:
    """Return Caffe's own order of n axes."""
    return tuple(range(n))


@dataclass
class Builder:
    """Steps and values as they are added."""

    subject: Subject
    steps: list[Step] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    helpers: set[str] = field(default_factory=set)
    shared: dict[tuple[Any, ...], Part] = field(default_factory=dict)

    def value(self, blob: str, shape: Shape, order: Order, flat: tuple[Shape, Order] | None = None) -> Value:
        """Add a value."""
        made = Value(len(self.values), blob, shape, order, flat)
        self.values.append(made)
        return made


@dataclass
class Emission:
    """A layer to be written.

    Attributes:
        builder: where its steps go.
        layer: the layer.
        bottoms: the values of its bottoms.
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
        """The shapes of its tops, as Caffe has them."""
        return tuple(tuple(self.builder.subject.net.graph.blobs[top].shape) for top in self.layer.tops)

    @cached_property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Its params and state, in Caffe's order."""
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
        """Add a step that makes one value: like the first that it reads, unless told otherwise."""
        like = reads[0] if reads else None
        shape = shape if shape is not None else like.shape if like else ()
        order = order if order is not None else like.order if like and len(like.order) == len(shape) else None
        made = self.builder.value(
            self.called(self.layer.tops[0]) if blob is None else blob, shape, order or channels_last(len(shape)), flat
        )
        self.builder.helpers.update(helpers)
        self.builder.steps.append(
            Step(self.layer.name, text, tuple(v.number for v in reads), (made.number,), part, after=after)
        )
        return made

    def called(self, top: str) -> str:
        """Return a blob's name in the prototxt; one that is written over has its layer's name behind its own."""
        return top.removesuffix(f"/{self.layer.key}")

    def elementwise(self, text: str, *reads: Value, part: Part | None = None, helpers: Sequence[str] = ()) -> Value:
        """Add a step that computes each number of its top from those at the same place of what it reads."""
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
        """Add a step that makes a value for each top, in the order of what it reads."""
        self.builder.helpers.update(helpers)
        named = zip(self.layer.tops, shapes, strict=True)
        made = tuple(self.builder.value(self.called(top), shape, read.order) for top, shape in named)
        self.builder.steps.append(Step(self.layer.name, text, (read.number,), tuple(v.number for v in made)))
        return made

    def part(
        self, maker: str, kind: str, weights: Mapping[str, np.ndarray], *, positional: int = 0, **given: Any
    ) -> Part:
        """Return a module with the layer's params: the one that another layer made of the same, if there is one.

        Raises:
            LayerError: if it shares params with a layer that makes something else of them.
        """
        random = given.pop("random", True)
        owners = tuple(param.owner for param in self.layer.all_params)
        made = Part(maker, tuple(given.items()), kind, positional, weights, random, owners)
        same = [part for others, part in self.builder.shared.items() if set(others) & set(owners)]
        if not same:
            self.builder.shared[owners] = made
            return made
        equal = same[0] == made and same[0].owners == owners
        equal = equal and all(np.array_equal(array, same[0].weights[name]) for name, array in weights.items())
        require(equal, "shares params with a layer that is written as another module; give it params of its own")
        return same[0]

    def ordered(self, value: Value, order: Order) -> Value:
        """Return a value with its axes stored in an order, and features in Caffe's: by a transposition if need be."""
        value = self._unmixed(value)
        if value.order == order:
            return value
        kept = [axis for axis in value.order if value.shape[axis] != 1]
        if kept == [axis for axis in order if value.shape[axis] != 1]:
            wanted = tuple(value.shape[axis] for axis in order)
            return self.call(reshaped(wanted), value, order=order, blob=value.blob)
        axes = ", ".join(str(value.order.index(axis)) for axis in order)
        return self.call(f"{{0}}.transpose({axes})", value, order=order, blob=value.blob)

    def last(self, value: Value) -> Value:
        """Return a value with its channels behind the other axes."""
        return self.ordered(value, channels_last(len(value.shape)))

    def plain(self, value: Value) -> Value:
        """Return a value as Caffe stores it."""
        return self.ordered(value, as_in_caffe(len(value.shape)))

    def alike(self, values: Sequence[Value]) -> tuple[Value, ...]:
        """Return values of one shape in one order."""
        first = values[0]
        if all(v.order == first.order and v.flat == first.flat for v in values):
            return tuple(values)
        first = self._unmixed(first)
        return (first, *(self.ordered(v, first.order) for v in values[1:]))

    def row_major(self, value: Value, axis: int = 0) -> bool:
        """Return whether the axes from `axis` on are stored as Caffe stores them, but for axes of length 1."""
        order = [k for k in value.order if value.shape[k] != 1 and k >= axis]
        return value.flat is None and order == sorted(order)

    def _unmixed(self, value: Value) -> Value:
        if value.flat is None:
            return value
        shape, order = value.flat
        sizes = ", ".join(str(shape[axis]) for axis in order)
        back = ", ".join(str(1 + order.index(axis)) for axis in range(len(shape)))
        text = f"{{0}}.reshape(-1, {sizes}).transpose(0, {back}).reshape(-1, {value.shape[1]})"
        return self.call(text, value, blob=value.blob)


def reshaped(shape: Sequence[int | str]) -> str:
    """Return the expression that reshapes to a shape, the first axis of which is as it was."""
    sizes = ", ".join(map(str, ("{0}.shape[0]", *shape[1:])))
    return f"{{0}}.reshape({sizes})"


Emit = Callable[[Emission], "Value | Sequence[Value]"]

_EMITTERS: dict[str, Emit] = {}


def writes(*types: str) -> Callable[[Emit], Emit]:
    """Register what writes layers of these types."""

    def note(emit: Emit) -> Emit:
        _EMITTERS.update(dict.fromkeys(types, emit))
        return emit

    return note


def known_types() -> frozenset[str]:
    """Return the types that can be written, by their names."""
    return frozenset(_EMITTERS)


def emitter_of(layer: Layer) -> Emit:
    """Return what writes a layer.

    Raises:
        LayerError: if nothing does.
    """
    found = _EMITTERS.get(layer.type.name)
    if found is None:
        raise LayerError("has no counterpart in flax; ask for outputs that do not need it")
    return found


def number(value: float) -> int | float:
    """Return a number of a prototxt as it was meant: 0.1 rather than the float32 next to it; 2 rather than 2.0.

    Raises:
        LayerError: if it is not finite.
    """
    require(math.isfinite(value), f"has a parameter that is {value}, which cannot be written as a number")
    short = float(str(np.float32(value)))
    return int(short) if short.is_integer() and abs(short) < 1e6 else short


def one_or_all(values: Sequence[int]) -> int | tuple[int, ...]:
    """Return the number that all of some are, or all of them."""
    return values[0] if len(set(values)) == 1 else tuple(values)


def affine_expression(scale: float, shift: float) -> str:
    """Return the expression of scale * x + shift."""
    scale, shift = number(scale), number(shift)
    text = "{0}" if scale == 1 else "-{0}" if scale == -1 else f"{scale} * {{0}}"
    return text if shift == 0 else f"{text} {'-' if shift < 0 else '+'} {abs(shift)}"
