"""Convolution over any number of spatial axes, with groups, stride, padding and dilation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..errors import require
from .axes import canonical_axis
from .registry import SAME_AS_BOTTOMS, Blob, Context, Shape, register
from .spatial import Window, convolution_output, convolution_window

Arrays = tuple[jax.Array, ...]


@register("Convolution", bottoms=(1, None), tops=SAME_AS_BOTTOMS, param="convolution_param", row_wise=True)
def convolution(ctx: Context, blobs: Arrays, *xs: jax.Array) -> Arrays:
    """Cross-correlation of every bottom with the same weight (num_output, channels / group, *kernel).

    `axis` is the channel axis: axes before it are independent, axes after it spatial. Sizes round towards
    zero; a kernel larger than the padded input by less than a stride sees zeros beyond it.
    """
    weight, *bias = blobs
    window, axis = _window(ctx, xs[0])
    return tuple(_correlate(x, weight, bias, window, axis, ctx.param.group) for x in xs)


def _correlate(
    x: jax.Array, weight: jax.Array, bias: list[jax.Array], window: Window, axis: int, group: int
) -> jax.Array:
    size = x.shape[axis + 1 :]
    out = convolution_output(size, window)
    y = lax.conv_general_dilated(
        x.reshape(-1, *x.shape[axis:]),
        weight,
        window.stride,
        _padding(size, out, window),
        rhs_dilation=window.dilation,
        dimension_numbers=_plain(len(size)),
        feature_group_count=group,
    )
    if bias:
        y = y + bias[0].reshape(-1, *(1 for _ in out))
    return y.reshape(*x.shape[:axis], *y.shape[1:])


@convolution.blobs
def _(ctx: Context, *xs: Any) -> list[Blob]:
    p = ctx.param
    window, axis = _window(ctx, xs[0])
    for i, x in enumerate(xs):
        require(x.shape == xs[0].shape, f"all bottoms need one shape: bottom {i} {x.shape}, 0 {xs[0].shape}")
    channels = xs[0].shape[axis]
    require(p.num_output > 0, "num_output must be positive")
    require(p.group > 0, "group must be positive")
    require(
        channels % p.group == 0 and p.num_output % p.group == 0,
        f"channels {channels} and num_output {p.num_output} must be multiples of group {p.group}",
    )
    weight = Blob((p.num_output, channels // p.group, *window.kernel), p.weight_filler)
    return [weight, Blob((p.num_output,), p.bias_filler)] if p.bias_term else [weight]


@convolution.backward
def _(ctx: Context, blobs: Arrays, *xs: jax.Array, y: Any, dy: Any) -> tuple[Any, ...]:
    weight, *bias = blobs
    window, axis = _window(ctx, xs[0])
    diffs = [
        _gradients(x, weight, d, window, axis, ctx.param.group)
        for x, d in zip(xs, dy if isinstance(dy, tuple) else (dy,), strict=True)
    ]
    dxs, d_weights, d_biases = zip(*diffs, strict=True)
    return (sum(d_weights[1:], d_weights[0]), *(sum(d_biases[1:], d_biases[0]) for _ in bias)), *dxs


def _gradients(x: jax.Array, weight: jax.Array, dy: jax.Array, window: Window, axis: int, group: int) -> Any:
    """Diffs of one bottom, the weight and the bias: each is a correlation again.

    The bottom's: dy, spread out by the stride, with the flipped kernel. The weight's: the bottom with dy as
    the kernel, the batch taking the place of the channels.
    """
    size, out = x.shape[axis + 1 :], dy.shape[axis + 1 :]
    n = len(size)
    x_flat, dy_flat = x.reshape(-1, *x.shape[axis:]), dy.reshape(-1, *dy.shape[axis:])
    pads = _padding(size, out, window)

    swapped = weight.reshape(group, -1, *weight.shape[1:]).swapaxes(1, 2)
    dx = lax.conv_general_dilated(
        dy_flat,
        jnp.flip(swapped.reshape(-1, *swapped.shape[2:]), range(2, 2 + n)),
        (1,) * n,
        [(e - 1 - low, e - 1 - high) for e, (low, high) in zip(window.extent, pads, strict=True)],
        lhs_dilation=window.stride,
        rhs_dilation=window.dilation,
        dimension_numbers=_plain(n),
        feature_group_count=group,
    )
    d_weight = lax.conv_general_dilated(
        x_flat,
        dy_flat,
        window.dilation,
        pads,
        rhs_dilation=window.stride,
        dimension_numbers=lax.ConvDimensionNumbers(*(((1, 0, *range(2, n + 2)),) * 3)),
        batch_group_count=group,
    )
    # where the stride leaves a remainder, the last positions belong to no kernel element
    d_weight = d_weight[(slice(None), slice(None), *(slice(k) for k in window.kernel))]
    return dx.reshape(x.shape), d_weight, dy_flat.sum((0, *range(2, 2 + n)))


def _window(ctx: Context, x: Any) -> tuple[Window, int]:
    axis = canonical_axis(ctx.param.axis, x.shape)
    return convolution_window(ctx.param, len(x.shape) - axis - 1), axis


def _padding(size: Shape, out: Shape, window: Window) -> list[tuple[int, int]]:
    """Low and high padding per axis such that the windows end exactly where the padding does."""
    return [
        (pad, (o - 1) * stride + extent - n - pad)
        for n, o, extent, stride, pad in zip(size, out, window.extent, window.stride, window.pad, strict=True)
    ]


def _plain(n: int) -> lax.ConvDimensionNumbers:
    """Caffe's own order: batch, channels, then space; weights output, input, then space."""
    return lax.ConvDimensionNumbers(*((tuple(range(n + 2)),) * 3))
