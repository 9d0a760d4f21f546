"""Converters for element-wise arithmetic, comparisons, selections and casts, and for reductions and sorts."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..builder import Shape, Value, node_output
from .converters import Equation, cannot, converts

_SAME = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "max": "Max", "min": "Min", "neg": "Neg", "exp": "Exp",
    "log": "Log", "tanh": "Tanh", "logistic": "Sigmoid", "sqrt": "Sqrt", "abs": "Abs", "sign": "Sign",
    "floor": "Floor", "ceil": "Ceil", "pow": "Pow", "erf": "Erf", "sin": "Sin", "cos": "Cos", "tan": "Tan",
    "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh",
    "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "gt": "Greater", "lt": "Less",
    "ge": "GreaterOrEqual", "le": "LessOrEqual", "eq": "Equal", "add_any": "Add",
}  # fmt: skip
# the neutral element of each operation; for sub and div only of the second operand
_NEUTRAL = {"add": 0, "add_any": 0, "mul": 1, "sub": 0, "div": 1}


def broadcast(*values: Value) -> Shape:
    """Return the shape to which the held shapes of values broadcast. Values without axes broadcast to any rank."""
    rank = max(len(v.held) for v in values)
    shapes = [(1,) * (rank - len(v.held)) + v.held for v in values]
    return tuple(
        next((n for n in sizes if not (isinstance(n, int) and n == 1)), 1) for sizes in zip(*shapes, strict=True)
    )


def apply(eqn: Equation, op: str, *values: Value, dtype: Any = None, **attributes: Any) -> Value:
    """Add a node for an operator that broadcasts its operands; return its output."""
    name = eqn.builder.node(op, [eqn.builder.name_stored(v) for v in values], **attributes)
    held = broadcast(*values)
    shape = max((v.shape for v in values), key=len)
    return Value(shape, np.dtype(dtype or values[0].dtype), name, held)


def number(like: Value, value: float) -> Value:
    """Return a scalar constant with the dtype of `like`."""
    array = np.asarray(value, like.dtype)
    return Value((), array.dtype, array, ())


@converts(*_SAME, elementwise=True)
def same(eqn: Equation) -> Value:
    """Convert to the equivalent ONNX operator. If an operand is neutral, as in x + 0, return the other operand."""
    neutral = _NEUTRAL.get(eqn.name)
    if neutral is not None:
        x, y = eqn.inputs
        for one, other in ((x, y), (y, x))[: 1 if eqn.name in ("sub", "div") else 2]:
            if other.number == neutral and one.shape == eqn.shape:
                return one
    if eqn.inputs[0].dtype == bool:
        inputs = [_cast(eqn, v, np.int32) for v in eqn.inputs]
        result = apply(eqn, _SAME[eqn.name], *inputs, dtype=eqn.dtype if eqn.dtype == bool else np.int32)
        return result if result.dtype == eqn.dtype else _cast(eqn, result, eqn.dtype)
    return apply(eqn, _SAME[eqn.name], *eqn.inputs, dtype=eqn.dtype)


@converts("and", "or", "xor", "not", elementwise=True)
def logical(eqn: Equation) -> Value:
    """Convert to a logical operator for booleans, or to a bitwise operator for integers."""
    word = eqn.name.capitalize()
    if eqn.dtype == bool:
        return apply(eqn, word, *eqn.inputs)
    if eqn.builder.opset < 18:
        raise cannot("operates on the bits of integers, which needs opset 18")
    return apply(eqn, f"Bitwise{word}", *eqn.inputs)


@converts("ne", elementwise=True)
def not_equal(eqn: Equation) -> Value:
    """Convert x != y."""
    return apply(eqn, "Not", apply(eqn, "Equal", *eqn.inputs, dtype=bool))


@converts("rsqrt", elementwise=True)
def rsqrt(eqn: Equation) -> Value:
    """Convert 1 / sqrt(x)."""
    return apply(eqn, "Reciprocal", apply(eqn, "Sqrt", *eqn.inputs))


@converts("square", elementwise=True)
def square(eqn: Equation) -> Value:
    """Convert x * x."""
    return apply(eqn, "Mul", *eqn.inputs, *eqn.inputs)


@converts("integer_pow", elementwise=True)
def integer_pow(eqn: Equation) -> Value:
    """Convert a power with an integer exponent."""
    (x,), y = eqn.inputs, eqn.params["y"]
    if y == 2:
        return apply(eqn, "Mul", x, x)
    return apply(eqn, "Reciprocal", x) if y == -1 else apply(eqn, "Pow", x, number(x, y))


@converts("expm1", elementwise=True)
def expm1(eqn: Equation) -> Value:
    """Convert exp(x) - 1."""
    (x,) = eqn.inputs
    return apply(eqn, "Sub", apply(eqn, "Exp", x), number(x, 1))


@converts("log1p", elementwise=True)
def log1p(eqn: Equation) -> Value:
    """Convert log(1 + x)."""
    (x,) = eqn.inputs
    return apply(eqn, "Log", apply(eqn, "Add", x, number(x, 1)))


@converts("exp2", elementwise=True)
def exp2(eqn: Equation) -> Value:
    """Convert 2 ** x."""
    (x,) = eqn.inputs
    return apply(eqn, "Pow", number(x, 2), x)


@converts("cbrt", elementwise=True)
def cbrt(eqn: Equation) -> Value:
    """Convert the cube root."""
    (x,) = eqn.inputs
    root = apply(eqn, "Pow", apply(eqn, "Abs", x), number(x, 1 / 3))
    return apply(eqn, "Mul", apply(eqn, "Sign", x), root)


@converts("atan2", elementwise=True)
def atan2(eqn: Equation) -> Value:
    """Convert the angle of (x, y), computed from the arctangent of y / x."""
    y, x = eqn.inputs
    zero, pi = number(x, 0), number(x, np.pi)
    angle = apply(eqn, "Atan", apply(eqn, "Div", y, x))
    turned = apply(eqn, "Where", apply(eqn, "Less", y, zero, dtype=bool), number(x, -np.pi), pi)
    is_negative = apply(eqn, "Less", x, zero, dtype=bool)
    both = apply(eqn, "And", apply(eqn, "Equal", x, zero, dtype=bool), apply(eqn, "Equal", y, zero, dtype=bool))
    angle = apply(eqn, "Where", is_negative, apply(eqn, "Add", angle, turned), angle, dtype=eqn.dtype)
    return apply(eqn, "Where", both, zero, angle, dtype=eqn.dtype)


@converts("round", elementwise=True)
def round_(eqn: Equation) -> Value:
    """Convert rounding to the nearest integer, with halves to even or away from zero."""
    (x,) = eqn.inputs
    if int(eqn.params["rounding_method"]) == 1:
        return apply(eqn, "Round", x)
    rounded = apply(eqn, "Floor", apply(eqn, "Add", apply(eqn, "Abs", x), number(x, 0.5)))
    return apply(eqn, "Mul", apply(eqn, "Sign", x), rounded)


@converts("rem", elementwise=True)
def rem(eqn: Equation) -> Value:
    """Convert the remainder, with the sign of the dividend."""
    return apply(eqn, "Mod", *eqn.inputs, fmod=1)


@converts("is_finite", elementwise=True)
def is_finite(eqn: Equation) -> Value:
    """Convert a test for finite numbers."""
    (x,) = eqn.inputs
    return apply(eqn, "Less", apply(eqn, "Abs", x), number(x, np.inf), dtype=bool)


@converts("clamp", elementwise=True)
def clamp(eqn: Equation) -> Value:
    """Convert clipping between bounds."""
    low, x, high = eqn.inputs
    if low.number is not None and high.number is not None:
        bounds = [Value((), v.dtype, v.array.reshape(()), ()) for v in (low, high) if v.array is not None]
        return apply(eqn, "Clip", x, *bounds)
    return apply(eqn, "Min", apply(eqn, "Max", x, low), high)


@converts("select_n", elementwise=True)
def select(eqn: Equation) -> Value:
    """Convert a selection among cases by the first operand, a boolean or an index."""
    which, *cases = eqn.inputs
    if which.dtype == bool:
        return _where(eqn, which, cases[1], cases[0])
    result = cases[-1]
    for i, case in reversed(list(enumerate(cases[:-1]))):
        at = apply(eqn, "Equal", which, number(which, i), dtype=bool)
        result = _where(eqn, at, case, result)
    return result


@converts("shift_left", "shift_right_arithmetic", elementwise=True)
def shift(eqn: Equation) -> Value:
    """Convert a bit shift: a product with a power of 2, or a quotient rounded down."""
    x, by = eqn.inputs
    factor = apply(eqn, "Pow", number(x, 2), by)
    if eqn.name == "shift_left":
        return apply(eqn, "Mul", x, factor)
    return apply(eqn, "Div", apply(eqn, "Sub", x, apply(eqn, "Mod", x, factor)), factor)


def _where(eqn: Equation, at: Value, yes: Value, no: Value) -> Value:
    b, values = eqn.builder, (at, yes, no)
    name = b.where(b.name_stored(at), b.name_stored(yes), b.name_stored(no), yes.dtype)
    return Value(max((v.shape for v in values), key=len), yes.dtype, name, broadcast(*values))


@converts("convert_element_type", elementwise=True)
def convert_element_type(eqn: Equation) -> Value:
    """Convert a cast. If the dtype does not change, return the operand."""
    return _cast(eqn, eqn.inputs[0], eqn.dtype)


def _cast(eqn: Equation, value: Value, dtype: Any) -> Value:
    if value.dtype == dtype:
        return value
    if value.array is not None:
        array = value.array.astype(dtype)
        return Value(value.shape, array.dtype, array, value.held)
    name = eqn.builder.name_stored(value)
    if np.issubdtype(value.dtype, np.floating) and np.issubdtype(dtype, np.integer):
        name = _representable(eqn, name, value.dtype, dtype)
    return Value(value.shape, np.dtype(dtype), eqn.builder.cast(name, dtype), value.held)


def _representable(eqn: Equation, name: str, floats: Any, integers: Any) -> str:
    """Clip floats to the range of an integer dtype, with NaN as 0; return the name of the result.

    XLA's cast does the same. In ONNX, casts of numbers out of range are undefined.
    """
    b, ends = eqn.builder, np.iinfo(integers)
    numbers = b.where(b.node("IsNaN", [name]), b.constant(np.zeros((), floats)), name, floats)
    most = np.nextafter(floats.type(ends.max), floats.type(0)) if float(floats.type(ends.max)) > ends.max else ends.max
    clipped: str = b.node("Clip", [numbers, *(b.constant(np.asarray(end, floats)) for end in (ends.min, most))])
    return clipped


@converts(
    "copy", "copy_p", "stop_gradient", "reduce_precision", "optimization_barrier", "device_put",
    "sharding_constraint", "pvary",
)  # fmt: skip
def identity(eqn: Equation) -> list[Value]:
    """Return the operands, because the primitive concerns only gradients or devices."""
    return list(eqn.inputs)


_OPS = {"reduce_sum": "ReduceSum", "reduce_max": "ReduceMax", "reduce_min": "ReduceMin", "reduce_prod": "ReduceProd"}
_TRUTH = {"reduce_and": "ReduceMin", "reduce_or": "ReduceMax"}


@converts(*_OPS, *_TRUTH)
def reduce(eqn: Equation) -> Value:
    """Convert a reduction over axes."""
    (x,), b = eqn.inputs, eqn.builder
    axes = [int(i) for i in eqn.params["axes"]]
    if not axes:
        return x
    name = b.broadcast(x)
    if eqn.name in _TRUTH:
        reduced = b.cast(b.reduce(_TRUTH[eqn.name], b.cast(name, np.int32), axes), bool)
    else:
        reduced = b.reduce(_OPS[eqn.name], name, axes)
    return node_output(reduced, eqn.shape, eqn.dtype)


@converts("argmax", "argmin")
def arg(eqn: Equation) -> Value:
    """Convert argmax or argmin: the index of the first of equal numbers."""
    (x,), b = eqn.inputs, eqn.builder
    (axis,) = eqn.params["axes"]
    name = b.cast(b.broadcast(x), np.int32) if x.dtype == bool else b.broadcast(x)
    op = "ArgMax" if eqn.name == "argmax" else "ArgMin"
    return node_output(b.cast(b.node(op, [name], axis=int(axis), keepdims=0), eqn.dtype), eqn.shape, eqn.dtype)


@converts("cumsum")
def cumsum(eqn: Equation) -> Value:
    """Convert an inclusive cumulative sum."""
    (x,), b = eqn.inputs, eqn.builder
    axis = b.constant(np.int64(eqn.params["axis"]))
    return node_output(
        b.node("CumSum", [b.broadcast(x), axis], reverse=int(eqn.params["reverse"])), eqn.shape, eqn.dtype
    )


@converts("top_k")
def top_k(eqn: Equation) -> list[Value]:
    """Convert to the k largest numbers along an axis, and their indices."""
    (x,), axis = eqn.inputs, eqn.params.get("axis", -1) % len(eqn.inputs[0].shape)
    values, indices = _emit_top_k(eqn, x, axis, eqn.params["k"], largest=True)
    return [values, indices]


@converts("sort")
def sort(eqn: Equation) -> list[Value]:
    """Convert a stable ascending sort by the first `num_keys` operands."""
    axis, keys, b = eqn.params["dimension"], eqn.params["num_keys"], eqn.builder
    values = [b.expand(v) for v in eqn.inputs]
    for key in reversed(range(keys)):  # the last key first: a stable sort keeps the earlier order of equal numbers
        chosen, indices = _emit_top_k(eqn, values[key], axis, values[key].shape[axis], largest=False)
        order = b.cast(b.broadcast(indices), np.int64)
        values = [
            chosen
            if i == key and v.dtype != bool
            else node_output(b.node("GatherElements", [b.broadcast(v), order], axis=axis), v.shape, v.dtype)
            for i, v in enumerate(values)
        ]
    return values


def _emit_top_k(eqn: Equation, x: Value, axis: int, n: Any, *, largest: bool) -> tuple[Value, Value]:
    b = eqn.builder
    name = b.cast(b.broadcast(x), np.int32) if x.dtype == bool else b.broadcast(x)
    values, indices = b.node("TopK", [name, b.sizes.one(n)], outputs=2, axis=axis, largest=int(largest), sorted=1)
    shape = (*x.shape[:axis], n, *x.shape[axis + 1 :])
    return node_output(values, shape, x.dtype), node_output(b.cast(indices, np.int32), shape, np.int32)
