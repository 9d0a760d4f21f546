"""The target `FLAX`: rules by layer type, the emitters, which add the steps of a layer to the flax program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...base.errors import require
from ...core.graph import Layer
from ...core.program.targets import LayerCall, Target
from ..inference_model import InferenceModel
from .ir import ExpressionStep, ModuleSpec, Order, Shape, Value


def channels_last_order(n: int) -> Order:
    """Return the order of n axes in which Caffe's axis 1, the channels, is last: (0, 2, 3, 1) for n = 4."""
    return (0, *range(2, n), 1) if n > 2 else tuple(range(n))


def channels_last_shape(shape: Shape) -> tuple[int | str, ...]:
    """Return the shape of an input or output for messages: channels last, and "batch" as the first size."""
    return ("batch", *(shape[axis] for axis in channels_last_order(len(shape))[1:])) if shape else ()


def caffe_order(n: int) -> Order:
    """Return Caffe's order of n axes: (0, 1, 2, 3) for n = 4."""
    return tuple(range(n))


@dataclass
class FlaxBuilder:
    """A program under construction.

    Attributes:
        model: the net with its weights.
        steps: the steps of the forward pass.
        values: the values, indexed by number.
        helpers: names of the helper functions and modules in the steps.
        modules_by_owners: the modules, by the owners of their parameters. The owner of a parameter is a pair: the key
            of the layer that stores the parameter, which other layers may share, and its index in that layer.
    """

    model: InferenceModel
    steps: list[ExpressionStep] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    helpers: set[str] = field(default_factory=set)
    modules_by_owners: dict[tuple[Any, ...], ModuleSpec] = field(default_factory=dict)

    def add_value(
        self, blob: str, shape: Shape, order: Order, flattened_from: tuple[Shape, Order] | None = None
    ) -> Value:
        """Add a value to the program; return the value. For the arguments, see the attributes of `Value`."""
        value = Value(len(self.values), blob, shape, order, flattened_from)
        self.values.append(value)
        return value

    def make_call(self, layer: Layer, bottoms: tuple[Value, ...]) -> FlaxCall:
        """Return the argument of a layer's emitter."""
        return FlaxCall(layer, self.model.arrays(layer), bottoms, self.model.net.graph.blobs, self)


@dataclass
class FlaxCall(LayerCall[Value]):
    """A layer for which flax source is emitted, the argument of an emitter. Its arrays are float32 NumPy arrays.

    Attributes:
        builder: the program to which its steps are added.
    """

    builder: FlaxBuilder

    def add_step(
        self,
        text: str,
        *reads: Value,
        module: ModuleSpec | None = None,
        helpers: Sequence[str] = (),
        shape: Shape | None = None,
        order: Order | None = None,
        flattened_from: tuple[Shape, Order] | None = None,
        blob: str | None = None,
        can_nest: bool = False,
    ) -> Value:
        """Add a step that computes one value; return the value.

        Args:
            text: the expression, in which `{0}`, `{1}` stand for the values in `reads`, and `{module}` for the module.
            reads: the values that the expression reads.
            module: the module that the expression calls, or None.
            helpers: names of helper functions in the expression.
            shape, order, flattened_from, blob: attributes of the value. By default, they come from the first
                value in `reads` (shape and order) and from the layer's first top (blob).
            can_nest: True if the expression may be nested with the previous step's expression in one statement.
        """
        operand = reads[0] if reads else None
        shape = shape if shape is not None else operand.shape if operand else ()
        order = order if order is not None else operand.order if operand and len(operand.order) == len(shape) else None
        value = self.builder.add_value(
            self.blob_name(self.layer.tops[0]) if blob is None else blob,
            shape,
            order or channels_last_order(len(shape)),
            flattened_from,
        )
        self.builder.helpers.update(helpers)
        self.builder.steps.append(
            ExpressionStep(
                self.layer.name, text, tuple(v.number for v in reads), (value.number,), module, can_nest=can_nest
            )
        )
        return value

    def blob_name(self, top: str) -> str:
        """Return the name of a top in the prototxt. In the graph, names of overwritten blobs end in `/layer`."""
        return top.removesuffix(f"/{self.layer.key}")

    def add_elementwise_step(
        self, text: str, *reads: Value, module: ModuleSpec | None = None, helpers: Sequence[str] = ()
    ) -> Value:
        """Add a step that computes an element-wise expression; return its value. For the arguments, see `add_step`."""
        operand = reads[0]
        return self.add_step(
            text,
            *reads,
            module=module,
            helpers=helpers,
            shape=operand.shape,
            order=operand.order,
            flattened_from=operand.flattened_from,
            can_nest=len(reads) == 1,
        )

    def add_multi_output_step(
        self, text: str, operand: Value, shapes: Sequence[Shape], helpers: Sequence[str] = ()
    ) -> tuple[Value, ...]:
        """Add a step that computes one value for each top; return the values.

        Args:
            text: the expression, in which `{0}` stands for `operand`.
            operand: the value that the expression reads. The computed values are stored in its axis order.
            shapes: the shapes of the computed values, in Caffe's axis order.
            helpers: names of helper functions in the expression.
        """
        self.builder.helpers.update(helpers)
        tops = zip(self.layer.tops, shapes, strict=True)
        values = tuple(self.builder.add_value(self.blob_name(top), shape, operand.order) for top, shape in tops)
        self.builder.steps.append(
            ExpressionStep(self.layer.name, text, (operand.number,), tuple(v.number for v in values))
        )
        return values

    def make_module(
        self,
        constructor: str,
        short_name: str,
        weights: Mapping[str, np.ndarray],
        *,
        num_positional: int = 0,
        needs_rngs: bool = True,
        **arguments: Any,
    ) -> ModuleSpec:
        """Return a module with the layer's parameters. Layers that share all parameters share the module.

        Args:
            constructor: the class or function that creates the module, such as `nnx.Conv`.
            short_name: a short word for the module, such as "conv", from which names are made.
            weights: the module's arrays by their path in the module, such as `kernel`.
            num_positional: the number of arguments that are passed by position. The others are passed by keyword.
            needs_rngs: True if the constructor has the argument `rngs`.
            arguments: the other arguments of the constructor.

        Raises:
            LayerError: if another layer shares some of the parameters, but its module is different.
        """
        owners = tuple(param.owner for param in self.layer.all_params)
        module = ModuleSpec(
            constructor, tuple(arguments.items()), short_name, num_positional, weights, needs_rngs, owners
        )
        existing_modules = [
            module for other_owners, module in self.builder.modules_by_owners.items() if set(other_owners) & set(owners)
        ]
        if not existing_modules:
            self.builder.modules_by_owners[owners] = module
            return module
        is_equal = existing_modules[0] == module and existing_modules[0].owners == owners
        is_equal = is_equal and all(
            np.array_equal(array, existing_modules[0].weights[name]) for name, array in weights.items()
        )
        require(is_equal, "shares params with a layer that becomes a different flax module; give it separate params")
        return existing_modules[0]

    def reorder(self, value: Value, order: Order) -> Value:
        """Return the value with its axes in `order`, and flattened features in Caffe's order; transpose if needed."""
        value = self._restore_feature_order(value)
        if value.order == order:
            return value
        large_axes = [axis for axis in value.order if value.shape[axis] != 1]
        if large_axes == [axis for axis in order if value.shape[axis] != 1]:
            target_shape = tuple(value.shape[axis] for axis in order)
            return self.add_step(reshape_expression(target_shape), value, order=order, blob=value.blob)
        axes = ", ".join(str(value.order.index(axis)) for axis in order)
        return self.add_step(f"{{0}}.transpose({axes})", value, order=order, blob=value.blob)

    def to_channels_last(self, value: Value) -> Value:
        """Return the value with its channels last; add a transposition if needed."""
        return self.reorder(value, channels_last_order(len(value.shape)))

    def to_caffe_order(self, value: Value) -> Value:
        """Return the value in Caffe's axis order; add a transposition if needed."""
        return self.reorder(value, caffe_order(len(value.shape)))

    def to_common_order(self, values: Sequence[Value]) -> tuple[Value, ...]:
        """Return values of equal shapes in the axis order of the first value; add transpositions if needed."""
        first = values[0]
        if all(v.order == first.order and v.flattened_from == first.flattened_from for v in values):
            return tuple(values)
        first = self._restore_feature_order(first)
        return (first, *(self.reorder(v, first.order) for v in values[1:]))

    def is_row_major(self, value: Value, axis: int = 0) -> bool:
        """Return whether the axes from `axis` on are stored in Caffe's order, ignoring axes of length 1."""
        order = [k for k in value.order if value.shape[k] != 1 and k >= axis]
        return value.flattened_from is None and order == sorted(order)

    def _restore_feature_order(self, value: Value) -> Value:
        if value.flattened_from is None:
            return value
        shape, order = value.flattened_from
        sizes = ", ".join(str(shape[axis]) for axis in order)
        inverse = ", ".join(str(1 + order.index(axis)) for axis in range(len(shape)))
        text = f"{{0}}.reshape(-1, {sizes}).transpose(0, {inverse}).reshape(-1, {value.shape[1]})"
        return self.add_step(text, value, blob=value.blob)


def reshape_expression(shape: Sequence[int | str]) -> str:
    """Return an expression that reshapes the value `{0}` to a shape, but keeps the size of its first axis."""
    sizes = ", ".join(map(str, ("{0}.shape[0]", *shape[1:])))
    return f"{{0}}.reshape({sizes})"


FLAX = Target[FlaxCall, Value]()


def shorten_float32(value: float) -> int | float:
    """Return the shortest number that equals `value` in float32: 0.1 instead of 0.10000000149, and 2 instead of 2.0.

    Raises:
        LayerError: if the number is not finite.
    """
    require(math.isfinite(value), f"has the parameter value {value}, but flax source supports only finite numbers")
    short = float(str(np.float32(value)))
    return int(short) if short.is_integer() and abs(short) < 1e6 else short


def collapse_equal(values: Sequence[int]) -> int | tuple[int, ...]:
    """Return a single number if all values are equal, otherwise the tuple of values."""
    return values[0] if len(set(values)) == 1 else tuple(values)


def affine_expression(scale: float, shift: float) -> str:
    """Return the expression for scale * x + shift, in which `{0}` stands for x."""
    scale, shift = shorten_float32(scale), shorten_float32(shift)
    text = "{0}" if scale == 1 else "-{0}" if scale == -1 else f"{scale} * {{0}}"
    return text if shift == 0 else f"{text} {'-' if shift < 0 else '+'} {abs(shift)}"
