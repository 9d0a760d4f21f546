"""Convolution: as a matrix product, as sums of shifted products, group by group, or as XLA's with channels last."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .layout import channels_first, channels_last, kept_last
from .sums import channel_sums

Pad = tuple[int, int, int]  # low, high, between
Formulation = Literal["product", "depthwise", "by group", "convolution"]


class Geometry(NamedTuple):
    """Stride, padding (low, high) and dilation along each spatial axis, and the number of groups."""

    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
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
    if form == "depthwise":
        return _depthwise(x, weight, g)
    run = _product if form == "product" else _convolution
    return channels_first(run(channels_last(x), weight, g))


def _product(x: jax.Array, weight: jax.Array, g: Geometry) -> jax.Array:
    x = x[(slice(None), *(slice(None, None, s) for s in g.stride))]
    rows = x.reshape(-1, x.shape[-1])
    return (rows @ weight.reshape(weight.shape[:2]).T).reshape(*x.shape[:-1], -1)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _depthwise(x: jax.Array, weight: jax.Array, g: Geometry) -> jax.Array:
    pads = [(low, high, 0) for low, high in g.padding]
    return _shifted_products(x, pads, weight, g.stride, g.dilation)


def _depthwise_forward(x: jax.Array, weight: jax.Array, g: Geometry) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _depthwise(x, weight, g), (x, weight)


def _depthwise_backward(g: Geometry, kept: tuple[jax.Array, jax.Array], dy: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, weight = kept
    kernel, out = weight.shape[2:], dy.shape[2:]
    # the same again: of dy, spread out by the stride, with the flipped kernel
    pads = []
    for n, o, k, s, d, (low, _) in zip(x.shape[2:], out, kernel, g.stride, g.dilation, g.padding, strict=True):
        first = d * (k - 1) - low
        pads.append((first, n + d * (k - 1) - first - (o - 1) * s - 1, s - 1))
    flipped = jnp.flip(weight, range(2, weight.ndim))
    dx = _shifted_products(dy, pads, flipped, (1,) * len(kernel), g.dilation)
    padded = _padded(x, [(low, high, 0) for low, high in g.padding])
    rows = channels_last(dy)
    diffs = [channel_sums(channels_first(tap * rows)) for _, tap in _taps(padded, kernel, out, g.stride, g.dilation)]
    return dx, jnp.stack(diffs, -1).reshape(weight.shape)


_depthwise.defvjp(_depthwise_forward, _depthwise_backward)


def _shifted_products(
    x: jax.Array, pads: Sequence[Pad], weight: jax.Array, stride: Sequence[int], dilation: Sequence[int]
) -> jax.Array:
    padded, kernel = _padded(x, pads), weight.shape[2:]
    sizes = zip(padded.shape[1:-1], kernel, stride, dilation, strict=True)
    out = [(n - (k - 1) * d - 1) // s + 1 for n, k, s, d in sizes]
    total = jnp.zeros((), x.dtype)
    for place, tap in _taps(padded, kernel, out, stride, dilation):
        total = total + tap * weight[(slice(None), 0, *place)]
    return kept_last(channels_first(total))


def _padded(x: jax.Array, pads: Sequence[Pad]) -> jax.Array:
    """Padded, with channels last."""
    return lax.pad(channels_last(x), jnp.zeros((), x.dtype), [(0, 0, 0), *pads, (0, 0, 0)])


def _taps(
    x: jax.Array, kernel: Sequence[int], out: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], jax.Array]]:
    """For each place in the kernel, the cells that the windows have there."""
    for place in np.ndindex(*kernel):
        starts = [i * d for i, d in zip(place, dilation, strict=True)]
        yield (
            place,
            x[(slice(None), *(slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(starts, out, stride, strict=True)))],
        )


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
