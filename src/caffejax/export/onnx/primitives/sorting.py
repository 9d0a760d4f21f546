"""Sorting, and the largest numbers: TopK, which takes the first of equal ones first."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..values import Value, computed
from .registry import Equation, converts


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
