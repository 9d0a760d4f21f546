"""Convolution: as a matrix product, as sums of shifted products, group by group, or as XLA's with channels last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .layout import channels_first, channels_last
from .sums import spread

Formulation = Literal["product", "depthwise", "by group", "convolution"]


class Geometry(NamedTuple):
    """Stride, padding (low, high) and dilation along each spatial axis, and the number of groups."""

    stride: tuple[int, ...]
    padding: Sequence[tuple[int, int]]
    dilation: tuple[int, ...]
    groups: int = 1


def formulation(x: tuple[int, ...], weight: tuple[int, ...], g: Geometry) -> Formulation:
    """Which one suits arrays of these shapes."""
    outputs, per_group, *kernel = weight
    if g.groups > 1:
        return "depthwise" if per_group == 1 and outputs == x[1] else "by group"
    if math.prod(kernel) == 1 and not any(map(any, g.padding)):
        return "product"
    return "convolution"


def correlate(x: jax.Array, weight: jax.Array, g: Geometry) -> jax.Array:
    """(batch, inputs, *size) with weight (outputs, inputs / groups, *kernel) to (batch, outputs, *output size)."""
    form = formulation(x.shape, weight.shape, g)
    if form == "by group":
        one = g._replace(groups=1)
        parts = zip(jnp.split(x, g.groups, 1), jnp.split(weight, g.groups), strict=True)
        return jnp.concatenate([correlate(xs, ws, one) for xs, ws in parts], 1)
    run = {"product": _product, "depthwise": _depthwise, "convolution": _convolution}[form]
    return channels_first(run(channels_last(x), weight, g))


def _product(x: jax.Array, weight: jax.Array, g: Geometry) -> jax.Array:
    x = x[(slice(None), *(slice(None, None, s) for s in g.stride))]
    rows = x.reshape(-1, x.shape[-1])
    return (rows @ weight.reshape(weight.shape[:2]).T).reshape(*x.shape[:-1], -1)


def _depthwise(x: jax.Array, weight: jax.Array, g: Geometry) -> jax.Array:
    x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *((low, high, 0) for low, high in g.padding), (0, 0, 0)])
    kernel = weight.shape[2:]
    out = [
        (n - (k - 1) * d - 1) // s + 1 for n, k, s, d in zip(x.shape[1:], kernel, g.stride, g.dilation, strict=False)
    ]
    total = jnp.zeros((), x.dtype)
    for place in np.ndindex(kernel):
        starts = [i * d for i, d in zip(place, g.dilation, strict=True)]
        cut = [slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(starts, out, g.stride, strict=True)]
        part = x[(slice(None), *cut)]
        factor = channels_last(spread(weight[(slice(None), 0, *place)], channels_first(part).shape))
        total = total + part * factor
    return total


def _convolution(x: jax.Array, weight: jax.Array, g: Geometry) -> jax.Array:
    n = x.ndim - 2
    last = (0, n + 1, *range(1, n + 1))
    return lax.conv_general_dilated(
        x,
        jnp.moveaxis(weight, (0, 1), (-1, -2)),
        g.stride,
        g.padding,
        rhs_dilation=g.dilation,
        dimension_numbers=lax.ConvDimensionNumbers(last, (n + 1, n, *range(n)), last),
    )
