"""Maxima, minima and sums over windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..values import Value, computed, known
from .registry import Equation, cannot, converts
from .shape import padded


@converts("reduce_window_max", "reduce_window_min", "reduce_window_sum")
def reduce_window(eqn: Equation) -> Value:
    """By pooling over the last axes; the minimum is the maximum of the negative numbers."""
    (x,), p, b = eqn.inputs, eqn.params, eqn.builder
    window, strides, padding = (list(p[k]) for k in ("window_dimensions", "window_strides", "padding"))
    plain = [w == s == 1 and tuple(pads) == (0, 0) for w, s, pads in zip(window, strides, padding, strict=True)]
    first = next((i for i, whole in enumerate(plain) if not whole), len(plain) - 1)
    if any(d != 1 for d in (*p["base_dilation"], *p["window_dilation"])) or len(plain) - first > 3:
        raise cannot("takes windows with holes, or along more than three axes")
    if not np.issubdtype(x.dtype, np.floating):
        raise cannot("takes windows of whole numbers")
    low, high = ([pads[i] for pads in padding[first:]] for i in (0, 1))
    space = x.shape[first:]
    name = b.reshaped(b.whole(x), (_product(x.shape[:first]), 1, *space))
    flat = computed(name, (_product(x.shape[:first]), 1, *space), x.dtype)
    summed, negative = eqn.name == "reduce_window_sum", eqn.name == "reduce_window_min"
    if negative:
        flat = flat.named(b.node("Neg", [b.whole(flat)]))
    if any((*low, *high)):
        filling = known(np.asarray(0 if summed else -np.inf, x.dtype))
        flat = padded(eqn, flat, filling, [0, 0, *low], [0, 0, *high])
    pool: dict[str, Any] = {"kernel_shape": window[first:], "strides": strides[first:]}
    name = b.node("AveragePool" if summed else "MaxPool", [b.whole(flat)], **pool)
    if summed:
        name = b.node("Mul", [name, b.constant(np.asarray(np.prod(window[first:]), x.dtype))])
    if negative:
        name = b.node("Neg", [name])
    return computed(b.reshaped(name, eqn.shape), eqn.shape, eqn.dtype)


def _product(sizes: tuple[int, ...]) -> int:
    product = 1
    for n in sizes:
        product = product * n
    return product
