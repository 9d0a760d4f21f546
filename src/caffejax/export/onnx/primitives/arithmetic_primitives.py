"""Converters for element-wise arithmetic, comparisons, selections and casts, and for reductions and sorts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..onnx_builder import OnnxValue, Shape, node_output
from .converters import Equation, register_converter, unsupported_error

_DIRECT_OPERATORS = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "max": "Max", "min": "Min", "neg": "Neg", "exp": "Exp",
    "log": "Log", "tanh": "Tanh", "logistic": "Sigmoid", "sqrt": "Sqrt", "abs": "Abs", "sign": "Sign",
    "floor": "Floor", "ceil": "Ceil", "pow": "Pow", "erf": "Erf", "sin": "Sin", "cos": "Cos", "tan": "Tan",
    "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh",
    "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "gt": "Greater", "lt": "Less",
    "ge": "GreaterOrEqual", "le": "LessOrEqual", "eq": "Equal", "add_any": "Add",
}  # fmt: skip
# the neutral element of each operation; for sub and div, only the second operand can be neutral
_NEUTRAL_ELEMENTS = {"add": 0, "add_any": 0, "mul": 1, "sub": 0, "div": 1}


def broadcast_stored_shapes(*values: OnnxValue) -> Shape:
    """Return the shape to which the stored shapes of values broadcast, aligned at their last axes as in NumPy."""
    rank = max(len(v.stored_shape) for v in values)
    shapes = [(1,) * (rank - len(v.stored_shape)) + v.stored_shape for v in values]
    return tuple(
        next((n for n in sizes if not (isinstance(n, int) and n == 1)), 1) for sizes in zip(*shapes, strict=True)
    )


def apply(eqn: Equation, op: str, *values: OnnxValue, dtype: Any = None, **attributes: Any) -> OnnxValue:
    """Add a node whose operator broadcasts the stored shapes of `values`; return its output."""
    name = eqn.builder.add_node(op, [_add_operand(eqn, v, values) for v in values], **attributes)
    stored_shape = broadcast_stored_shapes(*values)
    shape = max((v.shape for v in values), key=len)
    return OnnxValue(shape, np.dtype(dtype or values[0].dtype), name, stored_shape)


def _add_operand(eqn: Equation, value: OnnxValue, values: Sequence[OnnxValue]) -> str:
    """Return the name of an operand; a constant has no leading axes of length 1 that another operand has as well.

    OpenCV 5 merges MatMul with the Add behind it, but takes no bias of more than two axes.
    """
    if value.array is None or not any(v.array is None and v.stored_shape for v in values):
        return eqn.builder.add_stored(value)
    rank = max(len(v.stored_shape) for v in values if v.array is None)
    shape = value.array.shape
    while shape and shape[0] == 1 and len(shape) <= rank:
        shape = shape[1:]
    return eqn.builder.add_constant(value.array.reshape(shape))


def scalar_like(reference: OnnxValue, value: float) -> OnnxValue:
    """Return the constant `value` as a scalar with the dtype of `reference`."""
    array = np.asarray(value, reference.dtype)
    return OnnxValue((), array.dtype, array, ())


@register_converter(*_DIRECT_OPERATORS, elementwise=True)
def convert_directly(eqn: Equation) -> OnnxValue:
    """Convert to the equivalent ONNX operator, or return x if the equation is neutral, such as x + 0."""
    neutral = _NEUTRAL_ELEMENTS.get(eqn.name)
    if neutral is not None:
        x, y = eqn.inputs
        for operand, constant in ((x, y), (y, x))[: 1 if eqn.name in ("sub", "div") else 2]:
            if constant.uniform_value == neutral and operand.shape == eqn.shape:
                return operand
    if eqn.inputs[0].dtype == bool:
        inputs = [_cast(eqn, v, np.int32) for v in eqn.inputs]
        result = apply(eqn, _DIRECT_OPERATORS[eqn.name], *inputs, dtype=eqn.dtype if eqn.dtype == bool else np.int32)
        return result if result.dtype == eqn.dtype else _cast(eqn, result, eqn.dtype)
    return apply(eqn, _DIRECT_OPERATORS[eqn.name], *eqn.inputs, dtype=eqn.dtype)


@register_converter("and", "or", "xor", "not", elementwise=True)
def logical(eqn: Equation) -> OnnxValue:
    """Convert to a logical operator for booleans, or to a bitwise operator for integers."""
    op = eqn.name.capitalize()
    if eqn.dtype == bool:
        return apply(eqn, op, *eqn.inputs)
    if eqn.builder.opset < 18:
        raise unsupported_error(f"it uses bitwise operators, which need opset 18, not {eqn.builder.opset}")
    return apply(eqn, f"Bitwise{op}", *eqn.inputs)


@register_converter("ne", elementwise=True)
def not_equal(eqn: Equation) -> OnnxValue:
    """Convert x != y; for booleans to Xor, since OpenCV 5 has no Equal of booleans."""
    if eqn.inputs[0].dtype == bool:
        return apply(eqn, "Xor", *eqn.inputs)
    return apply(eqn, "Not", apply(eqn, "Equal", *eqn.inputs, dtype=bool))


@register_converter("rsqrt", elementwise=True)
def rsqrt(eqn: Equation) -> OnnxValue:
    """Convert 1 / sqrt(x)."""
    return apply(eqn, "Reciprocal", apply(eqn, "Sqrt", *eqn.inputs))


@register_converter("square", elementwise=True)
def square(eqn: Equation) -> OnnxValue:
    """Convert x * x."""
    return apply(eqn, "Mul", *eqn.inputs, *eqn.inputs)


@register_converter("integer_pow", elementwise=True)
def integer_pow(eqn: Equation) -> OnnxValue:
    """Convert x ** n with a constant integer n."""
    (x,), y = eqn.inputs, eqn.params["y"]
    if y == 2:
        return apply(eqn, "Mul", x, x)
    return apply(eqn, "Reciprocal", x) if y == -1 else apply(eqn, "Pow", x, scalar_like(x, y))


@register_converter("expm1", elementwise=True)
def expm1(eqn: Equation) -> OnnxValue:
    """Convert exp(x) - 1."""
    (x,) = eqn.inputs
    return apply(eqn, "Sub", apply(eqn, "Exp", x), scalar_like(x, 1))


@register_converter("log1p", elementwise=True)
def log1p(eqn: Equation) -> OnnxValue:
    """Convert log(1 + x)."""
    (x,) = eqn.inputs
    return apply(eqn, "Log", apply(eqn, "Add", x, scalar_like(x, 1)))


@register_converter("exp2", elementwise=True)
def exp2(eqn: Equation) -> OnnxValue:
    """Convert 2 ** x."""
    (x,) = eqn.inputs
    return apply(eqn, "Pow", scalar_like(x, 2), x)


@register_converter("cbrt", elementwise=True)
def cbrt(eqn: Equation) -> OnnxValue:
    """Convert the cube root of x."""
    (x,) = eqn.inputs
    root = apply(eqn, "Pow", apply(eqn, "Abs", x), scalar_like(x, 1 / 3))
    return apply(eqn, "Mul", apply(eqn, "Sign", x), root)


@register_converter("atan2", elementwise=True)
def atan2(eqn: Equation) -> OnnxValue:
    """Convert atan2(y, x), the angle of the point (x, y), to operations that use the arctangent of y / x."""
    y, x = eqn.inputs
    zero, pi = scalar_like(x, 0), scalar_like(x, np.pi)
    angle = apply(eqn, "Atan", apply(eqn, "Div", y, x))
    shift = apply(eqn, "Where", apply(eqn, "Less", y, zero, dtype=bool), scalar_like(x, -np.pi), pi)
    is_negative = apply(eqn, "Less", x, zero, dtype=bool)
    is_origin = apply(
        eqn,
        "And",
        apply(eqn, "Equal", x, zero, dtype=bool),
        apply(eqn, "Equal", y, zero, dtype=bool),
    )
    angle = apply(eqn, "Where", is_negative, apply(eqn, "Add", angle, shift), angle, dtype=eqn.dtype)
    return apply(eqn, "Where", is_origin, zero, angle, dtype=eqn.dtype)


@register_converter("round", elementwise=True)
def round_(eqn: Equation) -> OnnxValue:
    """Convert rounding to the nearest integer, with halves rounded to even or away from zero."""
    (x,) = eqn.inputs
    if int(eqn.params["rounding_method"]) == 1:
        return apply(eqn, "Round", x)
    rounded_magnitude = apply(eqn, "Floor", apply(eqn, "Add", apply(eqn, "Abs", x), scalar_like(x, 0.5)))
    return apply(eqn, "Mul", apply(eqn, "Sign", x), rounded_magnitude)


@register_converter("rem", elementwise=True)
def rem(eqn: Equation) -> OnnxValue:
    """Convert the remainder of a division, which has the sign of the dividend."""
    return apply(eqn, "Mod", *eqn.inputs, fmod=1)


@register_converter("is_finite", elementwise=True)
def is_finite(eqn: Equation) -> OnnxValue:
    """Convert a test that is True for finite numbers, and False for infinity and NaN."""
    (x,) = eqn.inputs
    return apply(eqn, "Less", apply(eqn, "Abs", x), scalar_like(x, np.inf), dtype=bool)


@register_converter("clamp", elementwise=True)
def clamp(eqn: Equation) -> OnnxValue:
    """Convert clamp, which limits x to the range from a lower to an upper bound."""
    low, x, high = eqn.inputs
    if low.uniform_value is not None and high.uniform_value is not None:
        bounds = [OnnxValue((), v.dtype, v.array.reshape(()), ()) for v in (low, high) if v.array is not None]
        return apply(eqn, "Clip", x, *bounds)
    return apply(eqn, "Min", apply(eqn, "Max", x, low), high)


@register_converter("select_n", elementwise=True)
def select(eqn: Equation) -> OnnxValue:
    """Convert select_n: the first operand, a boolean or an index, selects one of the others for each element."""
    selector, *cases = eqn.inputs
    if selector.dtype == bool:
        return _where(eqn, selector, cases[1], cases[0])
    result = cases[-1]
    for i, case in reversed(list(enumerate(cases[:-1]))):
        condition = apply(eqn, "Equal", selector, scalar_like(selector, i), dtype=bool)
        result = _where(eqn, condition, case, result)
    return result


@register_converter("shift_left", "shift_right_arithmetic", elementwise=True)
def shift(eqn: Equation) -> OnnxValue:
    """Convert a left shift to a product with a power of 2, and a right shift to a quotient that is rounded down."""
    x, num_bits = eqn.inputs
    factor = apply(eqn, "Pow", scalar_like(x, 2), num_bits)
    if eqn.name == "shift_left":
        return apply(eqn, "Mul", x, factor)
    return apply(eqn, "Div", apply(eqn, "Sub", x, apply(eqn, "Mod", x, factor)), factor)


def _where(eqn: Equation, condition: OnnxValue, on_true: OnnxValue, on_false: OnnxValue) -> OnnxValue:
    b, values = eqn.builder, (condition, on_true, on_false)
    shape, limit = broadcast_stored_shapes(*values), eqn.builder.engine.max_selected
    if limit is not None and all(isinstance(n, int) for n in shape) and math.prod(shape) > limit:
        name = _select_in_parts(eqn, values, shape, limit)
    else:
        name = b.where(b.add_stored(condition), b.add_stored(on_true), b.add_stored(on_false), on_true.dtype)
    return OnnxValue(max((v.shape for v in values), key=len), on_true.dtype, name, shape)


def _select_in_parts(eqn: Equation, values: Sequence[OnnxValue], shape: Shape, limit: int) -> str:
    """Add a Where for each part of the longest axis, for an engine that takes at most `limit` values at once."""
    b, axis = eqn.builder, max(range(len(shape)), key=lambda i: int(shape[i]))
    step = max(1, shape[axis] * limit // math.prod(shape))
    names = [b.add_stored(v) for v in values]
    parts = []
    for start in range(0, shape[axis], step):
        operands = []
        for value, name in zip(values, names, strict=True):
            own_axis = axis - len(shape) + len(value.stored_shape)
            if own_axis >= 0 and value.stored_shape[own_axis] > 1:
                bounds = ([start], [min(start + step, shape[axis])], [own_axis])
                name = b.add_node("Slice", [name, *map(b.add_int64_vector, bounds)])
            operands.append(name)
        parts.append(b.where(operands[0], operands[1], operands[2], values[1].dtype))
    output: str = b.add_node("Concat", parts, axis=axis)
    return output


@register_converter("convert_element_type", elementwise=True)
def convert_element_type(eqn: Equation) -> OnnxValue:
    """Convert a cast. If the dtype does not change, return the operand."""
    return _cast(eqn, eqn.inputs[0], eqn.dtype)


def _cast(eqn: Equation, value: OnnxValue, dtype: Any) -> OnnxValue:
    if value.dtype == dtype:
        return value
    if value.array is not None:
        array = value.array.astype(dtype)
        return OnnxValue(value.shape, array.dtype, array, value.stored_shape)
    name = eqn.builder.add_stored(value)
    if np.issubdtype(value.dtype, np.floating) and np.issubdtype(dtype, np.integer):
        name = _clip_to_integer_range(eqn, name, value.dtype, dtype)
    return OnnxValue(value.shape, np.dtype(dtype), eqn.builder.cast(name, dtype), value.stored_shape)


def _clip_to_integer_range(eqn: Equation, name: str, float_dtype: Any, integer_dtype: Any) -> str:
    """Clip floats to the range of an integer dtype and replace NaN with 0; return the name of the result.

    XLA's cast does the same. ONNX does not define the cast of values that are out of range.
    """
    b, info = eqn.builder, np.iinfo(integer_dtype)
    finite_name = b.where(b.add_node("IsNaN", [name]), b.add_constant(np.zeros((), float_dtype)), name, float_dtype)
    upper_bound = (
        np.nextafter(float_dtype.type(info.max), float_dtype.type(0))
        if float(float_dtype.type(info.max)) > info.max
        else info.max
    )
    clipped_name: str = b.add_node(
        "Clip", [finite_name, *(b.add_constant(np.asarray(bound, float_dtype)) for bound in (info.min, upper_bound))]
    )
    return clipped_name


@register_converter(
    "copy", "copy_p", "stop_gradient", "name", "reduce_precision", "optimization_barrier", "device_put",
    "sharding_constraint", "pvary",
)  # fmt: skip
def identity(eqn: Equation) -> list[OnnxValue]:
    """Return the operands unchanged, because the primitive affects only gradients or the placement on devices."""
    return list(eqn.inputs)


_REDUCTIONS = {
    "reduce_sum": "ReduceSum",
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
    "reduce_prod": "ReduceProd",
}
_BOOLEAN_REDUCTIONS = {"reduce_and": "ReduceMin", "reduce_or": "ReduceMax"}


@register_converter(*_REDUCTIONS, *_BOOLEAN_REDUCTIONS)
def reduce(eqn: Equation) -> OnnxValue:
    """Convert a reduction over axes."""
    (x,), b = eqn.inputs, eqn.builder
    axes = [int(i) for i in eqn.params["axes"]]
    if not axes:
        return x
    name, reduced_axes = b.add_broadcast(x), axes if len(axes) < len(x.shape) else None
    if eqn.name in _BOOLEAN_REDUCTIONS:
        reduced_name = b.cast(b.reduce(_BOOLEAN_REDUCTIONS[eqn.name], b.cast(name, np.int32), reduced_axes), bool)
    else:
        reduced_name = b.reduce(_REDUCTIONS[eqn.name], name, reduced_axes)
    return node_output(reduced_name, eqn.shape, eqn.dtype)


@register_converter("argmax", "argmin")
def arg_extremum(eqn: Equation) -> OnnxValue:
    """Convert argmax or argmin, in which the first index wins a tie."""
    (x,), b = eqn.inputs, eqn.builder
    (axis,) = eqn.params["axes"]
    name = b.cast(b.add_broadcast(x), np.int32) if x.dtype == bool else b.add_broadcast(x)
    op = "ArgMax" if eqn.name == "argmax" else "ArgMin"
    return node_output(b.cast(b.add_node(op, [name], axis=int(axis), keepdims=0), eqn.dtype), eqn.shape, eqn.dtype)


@register_converter("cumsum")
def cumsum(eqn: Equation) -> OnnxValue:
    """Convert an inclusive cumulative sum."""
    (x,), b = eqn.inputs, eqn.builder
    axis = b.add_constant(np.int64(eqn.params["axis"]))
    return node_output(
        b.add_node("CumSum", [b.add_broadcast(x), axis], reverse=int(eqn.params["reverse"])), eqn.shape, eqn.dtype
    )


@register_converter("top_k")
def top_k(eqn: Equation) -> list[OnnxValue]:
    """Convert top_k to TopK, which returns the k largest values along an axis and their indices."""
    (x,), axis = eqn.inputs, eqn.params.get("axis", -1) % len(eqn.inputs[0].shape)
    values, indices = _emit_top_k(eqn, x, axis, eqn.params["k"], largest=True)
    return [values, indices]


@register_converter("sort")
def sort(eqn: Equation) -> list[OnnxValue]:
    """Convert a stable ascending sort of all operands, in which the first `num_keys` operands are the keys."""
    axis, num_keys, b = eqn.params["dimension"], eqn.params["num_keys"], eqn.builder
    values = [b.expand(v) for v in eqn.inputs]
    for key in reversed(range(num_keys)):  # the last key first: a stable sort keeps the earlier order of equal values
        sorted_values, indices = _emit_top_k(eqn, values[key], axis, values[key].shape[axis], largest=False)
        order = b.cast(b.add_broadcast(indices), np.int64)
        values = [
            sorted_values
            if i == key and v.dtype != bool
            else node_output(b.add_node("GatherElements", [b.add_broadcast(v), order], axis=axis), v.shape, v.dtype)
            for i, v in enumerate(values)
        ]
    return values


def _emit_top_k(eqn: Equation, x: OnnxValue, axis: int, n: Any, *, largest: bool) -> tuple[OnnxValue, OnnxValue]:
    b, engine, size = eqn.builder, eqn.builder.engine, x.shape[axis]
    num_sorted = n if engine.sorts_stably else size
    if engine.max_sorted is not None and not (isinstance(num_sorted, int) and num_sorted <= engine.max_sorted):
        raise unsupported_error(f"it sorts {num_sorted} values, and {engine.title} sorts at most {engine.max_sorted}")
    name = b.cast(b.add_broadcast(x), np.int32) if x.dtype == bool else b.add_broadcast(x)
    values, indices = b.add_node(
        "TopK", [name, b.sizes.add_size_vector(num_sorted)], num_outputs=2, axis=axis, largest=int(largest), sorted=1
    )
    if not engine.sorts_stably:
        indices = _restore_order(eqn, values, indices, axis, size)
        if not (isinstance(n, int) and n == size):
            bounds = b.add_int64_vector([0]), b.sizes.add_size_vector(n), b.add_int64_vector([axis])
            values, indices = (b.add_node("Slice", [name, *bounds]) for name in (values, indices))
    shape = (*x.shape[:axis], n, *x.shape[axis + 1 :])
    return node_output(values, shape, x.dtype), node_output(b.cast(indices, np.int32), shape, np.int32)


def _restore_order(eqn: Equation, values: str, indices: str, axis: int, size: Any) -> str:
    """Return the name of the indices of sorted values; indices of equal values rise.

    The second sort has no equal values: it sorts the sums of an index and the size times the number of smaller groups
    of equal values.
    """
    b, axes = eqn.builder, eqn.builder.add_int64_vector([axis])
    sizes = b.sizes.add_size_vector(size)
    first, second = b.add_int64_vector([0]), b.add_int64_vector([1])
    next_values = b.add_node("Slice", [values, second, sizes, axes])
    previous_values = b.add_node("Slice", [values, first, b.add_int64_vector([-1]), axes])
    differs = b.cast(b.add_node("Not", [b.add_node("Equal", [next_values, previous_values])]), np.int64)
    zero = b.add_node("Sub", [*[b.add_node("Slice", [indices, first, second, axes])] * 2])
    steps = b.add_node("Concat", [zero, differs], axis=axis)
    offsets = b.add_node("Mul", [b.add_node("CumSum", [steps, b.add_constant(np.int64(axis))]), sizes])
    keys, _ = b.add_node(
        "TopK", [b.add_node("Add", [offsets, indices]), sizes], num_outputs=2, axis=axis, largest=0, sorted=1
    )
    order: str = b.add_node("Sub", [keys, offsets])
    return order
