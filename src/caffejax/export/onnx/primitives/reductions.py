"""Sums, maxima and the like, and where the largest number is."""

from __future__ import annotations

import numpy as np

from ..values import Value, computed
from .registry import Equation, converts

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
