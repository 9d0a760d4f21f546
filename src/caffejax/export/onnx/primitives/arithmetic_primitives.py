"""Number by number: arithmetic, comparisons, choices, casts."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..builder import Shape, Value, computed
from .converters import Equation, cannot, converts

_SAME = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "max": "Max", "min": "Min", "neg": "Neg", "exp": "Exp",
    "log": "Log", "tanh": "Tanh", "logistic": "Sigmoid", "sqrt": "Sqrt", "abs": "Abs", "sign": "Sign",
    "floor": "Floor", "ceil": "Ceil", "pow": "Pow", "erf": "Erf", "sin": "Sin", "cos": "Cos", "tan": "Tan",
    "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh",
    "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "gt": "Greater", "lt": "Less",
    "ge": "GreaterOrEqual", "le": "LessOrEqual", "eq": "Equal", "add_any": "Add",
}  # fmt: skip
_NEUTRAL = {"add": 0, "add_any": 0, "mul": 1, "sub": 0, "div": 1}  # of either operand, or of the second


def broadcast(*values: Value) -> Shape:
    """Return the shape in which a result of these is held; operands without axes go with any."""
    rank = max(len(v.held) for v in values)
    shapes = [(1,) * (rank - len(v.held)) + v.held for v in values]
    return tuple(
        next((n for n in sizes if not (isinstance(n, int) and n == 1)), 1) for sizes in zip(*shapes, strict=True)
    )


def apply(eqn: Equation, op: str, *values: Value, dtype: Any = None, **attributes: Any) -> Value:
    """Add a node that broadcasts."""
    name = eqn.builder.node(op, [eqn.builder.held(v) for v in values], **attributes)
    held = broadcast(*values)
    shape = max((v.shape for v in values), key=len)
    return Value(shape, np.dtype(dtype or values[0].dtype), name, held)


def number(like: Value, value: float) -> Value:
    """Return a number of a value's dtype."""
    array = np.asarray(value, like.dtype)
    return Value((), array.dtype, array, ())


@converts(*_SAME, elementwise=True)
def same(eqn: Equation) -> Value:
    """An operator of the same meaning; none where one operand changes nothing."""
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
    """Of truth values; of whole numbers bit by bit."""
    word = eqn.name.capitalize()
    if eqn.dtype == bool:
        return apply(eqn, word, *eqn.inputs)
    if eqn.builder.opset < 18:
        raise cannot("computes with the bits of whole numbers, which needs opset 18")
    return apply(eqn, f"Bitwise{word}", *eqn.inputs)


@converts("ne", elementwise=True)
def not_equal(eqn: Equation) -> Value:
    """Not equal."""
    return apply(eqn, "Not", apply(eqn, "Equal", *eqn.inputs, dtype=bool))


@converts("rsqrt", elementwise=True)
def rsqrt(eqn: Equation) -> Value:
    """1 / sqrt(x)."""
    return apply(eqn, "Reciprocal", apply(eqn, "Sqrt", *eqn.inputs))


@converts("square", elementwise=True)
def square(eqn: Equation) -> Value:
    """x * x."""
    return apply(eqn, "Mul", *eqn.inputs, *eqn.inputs)


@converts("integer_pow", elementwise=True)
def integer_pow(eqn: Equation) -> Value:
    """x to a whole power."""
    (x,), y = eqn.inputs, eqn.params["y"]
    if y == 2:
        return apply(eqn, "Mul", x, x)
    return apply(eqn, "Reciprocal", x) if y == -1 else apply(eqn, "Pow", x, number(x, y))


@converts("expm1", elementwise=True)
def expm1(eqn: Equation) -> Value:
    """exp(x) - 1."""
    (x,) = eqn.inputs
    return apply(eqn, "Sub", apply(eqn, "Exp", x), number(x, 1))


@converts("log1p", elementwise=True)
def log1p(eqn: Equation) -> Value:
    """log(1 + x)."""
    (x,) = eqn.inputs
    return apply(eqn, "Log", apply(eqn, "Add", x, number(x, 1)))


@converts("exp2", elementwise=True)
def exp2(eqn: Equation) -> Value:
    """2 to the power of x."""
    (x,) = eqn.inputs
    return apply(eqn, "Pow", number(x, 2), x)


@converts("cbrt", elementwise=True)
def cbrt(eqn: Equation) -> Value:
    """The third root."""
    (x,) = eqn.inputs
    root = apply(eqn, "Pow", apply(eqn, "Abs", x), number(x, 1 / 3))
    return apply(eqn, "Mul", apply(eqn, "Sign", x), root)


@converts("atan2", elementwise=True)
def atan2(eqn: Equation) -> Value:
    """The angle of (x, y), by that of y / x."""
    y, x = eqn.inputs
    zero, pi = number(x, 0), number(x, np.pi)
    angle = apply(eqn, "Atan", apply(eqn, "Div", y, x))
    turned = apply(eqn, "Where", apply(eqn, "Less", y, zero, dtype=bool), number(x, -np.pi), pi)
    left = apply(eqn, "Less", x, zero, dtype=bool)
    both = apply(eqn, "And", apply(eqn, "Equal", x, zero, dtype=bool), apply(eqn, "Equal", y, zero, dtype=bool))
    angle = apply(eqn, "Where", left, apply(eqn, "Add", angle, turned), angle, dtype=eqn.dtype)
    return apply(eqn, "Where", both, zero, angle, dtype=eqn.dtype)


@converts("round", elementwise=True)
def round_(eqn: Equation) -> Value:
    """To the nearest whole number: halves to even, or away from zero."""
    (x,) = eqn.inputs
    if int(eqn.params["rounding_method"]) == 1:
        return apply(eqn, "Round", x)
    whole = apply(eqn, "Floor", apply(eqn, "Add", apply(eqn, "Abs", x), number(x, 0.5)))
    return apply(eqn, "Mul", apply(eqn, "Sign", x), whole)


@converts("rem", elementwise=True)
def rem(eqn: Equation) -> Value:
    """The remainder, with the sign of the dividend."""
    return apply(eqn, "Mod", *eqn.inputs, fmod=1)


@converts("is_finite", elementwise=True)
def is_finite(eqn: Equation) -> Value:
    """Neither infinite nor NaN."""
    (x,) = eqn.inputs
    return apply(eqn, "Less", apply(eqn, "Abs", x), number(x, np.inf), dtype=bool)


@converts("clamp", elementwise=True)
def clamp(eqn: Equation) -> Value:
    """Hold between bounds."""
    low, x, high = eqn.inputs
    if low.number is not None and high.number is not None:
        bounds = [Value((), v.dtype, v.array.reshape(()), ()) for v in (low, high) if v.array is not None]
        return apply(eqn, "Clip", x, *bounds)
    return apply(eqn, "Min", apply(eqn, "Max", x, low), high)


@converts("select_n", elementwise=True)
def select(eqn: Equation) -> Value:
    """The case that the first operand names."""
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
    """Times a power of 2, or divided by it and rounded down."""
    x, by = eqn.inputs
    factor = apply(eqn, "Pow", number(x, 2), by)
    if eqn.name == "shift_left":
        return apply(eqn, "Mul", x, factor)
    return apply(eqn, "Div", apply(eqn, "Sub", x, apply(eqn, "Mod", x, factor)), factor)


def _where(eqn: Equation, at: Value, yes: Value, no: Value) -> Value:
    b, values = eqn.builder, (at, yes, no)
    name = b.where(b.held(at), b.held(yes), b.held(no), yes.dtype)
    return Value(max((v.shape for v in values), key=len), yes.dtype, name, broadcast(*values))


@converts("convert_element_type", elementwise=True)
def convert_element_type(eqn: Equation) -> Value:
    """Cast, where it changes anything."""
    return _cast(eqn, eqn.inputs[0], eqn.dtype)


def _cast(eqn: Equation, value: Value, dtype: Any) -> Value:
    if value.dtype == dtype:
        return value
    if value.array is not None:
        array = value.array.astype(dtype)
        return Value(value.shape, array.dtype, array, value.held)
    name = eqn.builder.held(value)
    if np.issubdtype(value.dtype, np.floating) and np.issubdtype(dtype, np.integer):
        name = _representable(eqn, name, value.dtype, dtype)
    return Value(value.shape, np.dtype(dtype), eqn.builder.cast(name, dtype), value.held)


def _representable(eqn: Equation, name: str, floats: Any, integers: Any) -> str:
    """Return numbers that an integer can hold, NaN as 0, as XLA takes them: ONNX leaves open what becomes of others."""
    b, ends = eqn.builder, np.iinfo(integers)
    numbers = b.where(b.node("IsNaN", [name]), b.constant(np.zeros((), floats)), name, floats)
    most = np.nextafter(floats.type(ends.max), floats.type(0)) if float(floats.type(ends.max)) > ends.max else ends.max
    clipped: str = b.node("Clip", [numbers, *(b.constant(np.asarray(end, floats)) for end in (ends.min, most))])
    return clipped


@converts(
    "copy", "copy_p", "stop_gradient", "reduce_precision", "optimization_barrier", "device_put",
    "sharding_constraint", "pvary",
)  # fmt: skip
def unchanged(eqn: Equation) -> list[Value]:
    """What concerns gradients and devices only."""
    return list(eqn.inputs)


_OPS = {"reduce_sum": "ReduceSum", "reduce_max": "ReduceMax", "reduce_min": "ReduceMin", "reduce_prod": "ReduceProd"}
_TRUTH = {"reduce_and": "ReduceMin", "reduce_or": "ReduceMax"}


@converts(*_OPS, *_TRUTH)
def reduce(eqn: Equation) -> Value:
    """Over some axes, which go."""
    (x,), b = eqn.inputs, eqn.builder
    axes = [int(i) for i in eqn.params["axes"]]
    if not axes:
        return x
    name = b.whole(x)
    if eqn.name in _TRUTH:
        found = b.cast(b.reduce(_TRUTH[eqn.name], b.cast(name, np.int32), axes), bool)
    else:
        found = b.reduce(_OPS[eqn.name], name, axes)
    return computed(found, eqn.shape, eqn.dtype)


@converts("argmax", "argmin")
def arg(eqn: Equation) -> Value:
    """The place of the largest or smallest number, the first of equal ones."""
    (x,), b = eqn.inputs, eqn.builder
    (axis,) = eqn.params["axes"]
    name = b.cast(b.whole(x), np.int32) if x.dtype == bool else b.whole(x)
    op = "ArgMax" if eqn.name == "argmax" else "ArgMin"
    return computed(b.cast(b.node(op, [name], axis=int(axis), keepdims=0), eqn.dtype), eqn.shape, eqn.dtype)


@converts("cumsum")
def cumsum(eqn: Equation) -> Value:
    """Sums of all before each and itself."""
    (x,), b = eqn.inputs, eqn.builder
    axis = b.constant(np.int64(eqn.params["axis"]))
    return computed(b.node("CumSum", [b.whole(x), axis], reverse=int(eqn.params["reverse"])), eqn.shape, eqn.dtype)


@converts("top_k")
def top_k(eqn: Equation) -> list[Value]:
    """The k largest along an axis, and their places."""
    (x,), axis = eqn.inputs, eqn.params.get("axis", -1) % len(eqn.inputs[0].shape)
    values, places = _sorted(eqn, x, axis, eqn.params["k"], largest=True)
    return [values, places]


@converts("sort")
def sort(eqn: Equation) -> list[Value]:
    """In rising order by the first operand, or the first few; equal ones stay in their order."""
    axis, keys, b = eqn.params["dimension"], eqn.params["num_keys"], eqn.builder
    values = [b.expanded(v) for v in eqn.inputs]
    for key in reversed(range(keys)):  # by the last key first: the order of equal ones stays
        chosen, places = _sorted(eqn, values[key], axis, values[key].shape[axis], largest=False)
        order = b.cast(b.whole(places), np.int64)
        values = [
            chosen
            if i == key and v.dtype != bool
            else computed(b.node("GatherElements", [b.whole(v), order], axis=axis), v.shape, v.dtype)
            for i, v in enumerate(values)
        ]
    return values


def _sorted(eqn: Equation, x: Value, axis: int, n: Any, *, largest: bool) -> tuple[Value, Value]:
    b = eqn.builder
    name = b.cast(b.whole(x), np.int32) if x.dtype == bool else b.whole(x)
    values, places = b.node("TopK", [name, b.sizes.one(n)], outputs=2, axis=axis, largest=int(largest), sorted=1)
    shape = (*x.shape[:axis], n, *x.shape[axis + 1 :])
    return computed(values, shape, x.dtype), computed(b.cast(places, np.int32), shape, np.int32)
