"""Conversion of any JAX function to ONNX: the function is traced to a jaxpr, and each equation is converted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from .builder import Builder, Shape, Value, constant_value
from .primitives import Equation, handler, is_elementwise

_MAX_FOLDED_SIZE = 1 << 16  # elements; constant results up to this size are always computed at export
_NOT_FOLDED = {
    "dim_as_value",
    "broadcast_in_dim",
    "iota",
    "reshape",
    "scan",
    "while",
    "cond",
}  # primitives with converters that handle constants


def convert(builder: Builder, function: Callable[..., Any], inputs: Sequence[Value]) -> list[Value]:
    """Trace a function and add its computation to a model; return the results as a flat list.

    Args:
        builder: the model.
        function: a function of JAX arrays.
        inputs: the function's arguments, as values of the model.

    Raises:
        LayerError: if the function uses a primitive without an ONNX operator.
    """
    arguments = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in inputs]
    return convert_jaxpr(builder, jax.make_jaxpr(function)(*arguments), inputs)


def convert_jaxpr(builder: Builder, closed: ClosedJaxpr, inputs: Sequence[Value]) -> list[Value]:
    """Add the computation of a jaxpr to a model; return its results as values."""
    jaxpr = closed.jaxpr
    values: dict[Any, Value] = dict(zip(jaxpr.constvars, map(constant_value, closed.consts), strict=True))
    values.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Value:
        if isinstance(atom, Literal):
            return constant_value(np.asarray(atom.val, getattr(atom.aval, "dtype", None)))
        return values[atom]

    for eqn in _used_equations(jaxpr):
        results = _convert_equation(builder, eqn, [read(atom) for atom in eqn.invars])
        values.update(zip(eqn.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _used_equations(jaxpr: Any) -> list[Any]:
    """Return the equations that the jaxpr's results depend on, in their order."""
    used = {atom for atom in jaxpr.outvars if not isinstance(atom, Literal)}
    equations = []
    for eqn in reversed(jaxpr.eqns):
        if not used.isdisjoint(eqn.outvars):
            equations.append(eqn)
            used.update(atom for atom in eqn.invars if not isinstance(atom, Literal))
    return equations[::-1]


def _convert_equation(builder: Builder, eqn: Any, inputs: list[Value]) -> Sequence[Value]:
    name = eqn.primitive.name
    shapes = [sizes(v.aval.shape) for v in eqn.outvars]
    dtypes = [np.dtype(v.aval.dtype) for v in eqn.outvars]
    run = handler(name)
    if name not in _NOT_FOLDED and all(v.array is not None for v in inputs) and _has_no_jaxpr(eqn):
        folded = _fold(eqn, inputs, shapes)
        if folded is not None:
            return folded
    equation = Equation(
        builder, name, inputs, shapes, dtypes, eqn.params, lambda *given: convert_jaxpr(builder, *given)
    )
    result = run(equation)
    values = [result] if isinstance(result, Value) else list(result)
    return [_with_shape(v, shape) for v, shape in zip(values, shapes, strict=True)]


def _fold(eqn: Any, inputs: Sequence[Value], shapes: Sequence[Shape]) -> list[Value] | None:
    """Compute an equation with constant operands at export; return its results as constants.

    Return None if the results are too large or have symbolic shapes.
    """
    arrays = [v.array for v in inputs if v.array is not None]
    if is_elementwise(eqn.primitive.name):
        results = eqn.primitive.bind(*np.broadcast_arrays(*arrays), **eqn.params)
        rank = len(shapes[0])
        array = np.asarray(results[0] if eqn.primitive.multiple_results else results)
        return [constant_value(array.reshape((1,) * (rank - array.ndim) + array.shape), shapes[0])]
    if any(not isinstance(n, int) for v in inputs for n in v.shape) or any(
        not isinstance(n, int) for shape in shapes for n in shape
    ):
        return None
    if sum(map(math.prod, shapes)) > max(_MAX_FOLDED_SIZE, 2 * sum(a.size for a in arrays)):
        return None
    whole = [np.broadcast_to(a, v.shape) for a, v in zip(arrays, inputs, strict=True)]
    results = eqn.primitive.bind(*whole, **eqn.params)
    return [constant_value(np.asarray(r)) for r in (results if eqn.primitive.multiple_results else [results])]


def _has_no_jaxpr(eqn: Any) -> bool:
    return not any(hasattr(value, "eqns") or isinstance(value, ClosedJaxpr) for value in eqn.params.values())


def _with_shape(value: Value, shape: Shape) -> Value:
    """Return a value with all axes of `shape`. A value without axes may represent a result with axes."""
    if value.shape == shape:
        return value
    held = (1,) * (len(shape) - len(value.held)) + value.held
    what = value.array.reshape(held) if value.array is not None else value.what
    return Value(shape, value.dtype, what, held)


def sizes(shape: Sequence[Any]) -> Shape:
    """Return a shape with Python integers instead of NumPy's; symbolic sizes stay."""
    return tuple(int(n) if isinstance(n, int | np.integer) else n for n in shape)
