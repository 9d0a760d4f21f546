"""The general way: a JAX function traced to a jaxpr, and its equations converted one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from .builder import Builder, Shape, Value, known
from .primitives import Equation, handler, is_elementwise

_FOLDED = 1 << 16  # results of so many numbers are computed here, whatever they are computed from
_LATER = {
    "dim_as_value",
    "broadcast_in_dim",
    "iota",
    "reshape",
    "scan",
    "while",
    "cond",
}  # their own conversion does as well


def convert(builder: Builder, function: Callable[..., Any], inputs: Sequence[Value]) -> list[Value]:
    """Add what a function computes to a model; return its results, in the order of their tree's leaves.

    Args:
        builder: the model.
        function: takes arrays of JAX's.
        inputs: the values that they are in the model; those that are known already are so for the function, too.

    Raises:
        LayerError: if it computes something that ONNX has no operator for.
    """
    arguments = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in inputs]
    return inlined(builder, jax.make_jaxpr(function)(*arguments), inputs)


def inlined(builder: Builder, closed: ClosedJaxpr, inputs: Sequence[Value]) -> list[Value]:
    """Add what a jaxpr computes; return its results."""
    jaxpr = closed.jaxpr
    found: dict[Any, Value] = dict(zip(jaxpr.constvars, map(known, closed.consts), strict=True))
    found.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Value:
        if isinstance(atom, Literal):
            return known(np.asarray(atom.val, getattr(atom.aval, "dtype", None)))
        return found[atom]

    for eqn in _needed(jaxpr):
        results = _converted(builder, eqn, [read(atom) for atom in eqn.invars])
        found.update(zip(eqn.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _needed(jaxpr: Any) -> list[Any]:
    """Return the equations whose results are used."""
    used = {atom for atom in jaxpr.outvars if not isinstance(atom, Literal)}
    kept = []
    for eqn in reversed(jaxpr.eqns):
        if not used.isdisjoint(eqn.outvars):
            kept.append(eqn)
            used.update(atom for atom in eqn.invars if not isinstance(atom, Literal))
    return kept[::-1]


def _converted(builder: Builder, eqn: Any, inputs: list[Value]) -> Sequence[Value]:
    name = eqn.primitive.name
    shapes = [sizes(v.aval.shape) for v in eqn.outvars]
    dtypes = [np.dtype(v.aval.dtype) for v in eqn.outvars]
    run = handler(name)
    if name not in _LATER and all(v.array is not None for v in inputs) and _has_no_jaxpr(eqn):
        folded = _folded(eqn, inputs, shapes)
        if folded is not None:
            return folded
    equation = Equation(builder, name, inputs, shapes, dtypes, eqn.params, lambda *given: inlined(builder, *given))
    result = run(equation)
    values = [result] if isinstance(result, Value) else list(result)
    return [_of_shape(v, shape) for v, shape in zip(values, shapes, strict=True)]


def _folded(eqn: Any, inputs: Sequence[Value], shapes: Sequence[Shape]) -> list[Value] | None:
    """Compute an equation now, of arrays that are known, unless that takes much memory; None if it has to wait."""
    arrays = [v.array for v in inputs if v.array is not None]
    if is_elementwise(eqn.primitive.name):
        results = eqn.primitive.bind(*np.broadcast_arrays(*arrays), **eqn.params)
        rank = len(shapes[0])
        array = np.asarray(results[0] if eqn.primitive.multiple_results else results)
        return [known(array.reshape((1,) * (rank - array.ndim) + array.shape), shapes[0])]
    if any(not isinstance(n, int) for v in inputs for n in v.shape) or any(
        not isinstance(n, int) for shape in shapes for n in shape
    ):
        return None
    if sum(map(math.prod, shapes)) > max(_FOLDED, 2 * sum(a.size for a in arrays)):
        return None
    whole = [np.broadcast_to(a, v.shape) for a, v in zip(arrays, inputs, strict=True)]
    results = eqn.primitive.bind(*whole, **eqn.params)
    return [known(np.asarray(r)) for r in (results if eqn.primitive.multiple_results else [results])]


def _has_no_jaxpr(eqn: Any) -> bool:
    return not any(hasattr(value, "eqns") or isinstance(value, ClosedJaxpr) for value in eqn.params.values())


def _of_shape(value: Value, shape: Shape) -> Value:
    """Return a value with all axes: an operand without any may have gone for another's."""
    if value.shape == shape:
        return value
    held = (1,) * (len(shape) - len(value.held)) + value.held
    what = value.array.reshape(held) if value.array is not None else value.what
    return Value(shape, value.dtype, what, held)


def sizes(shape: Sequence[Any]) -> Shape:
    """Return a shape with plain integers where JAX has NumPy's."""
    return tuple(int(n) if isinstance(n, int | np.integer) else n for n in shape)
