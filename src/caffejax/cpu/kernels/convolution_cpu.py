"""Convolution on CPUs, by oneDNN or by XLA.

XLA computes it as a convolution, a matrix product, a sum of shifted products, or one group at a time.

Inputs and results have Caffe's order of axes, (batch, channels, *space). In memory their channels are last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...core.ops.channels import affine_along_channels, promote
from ...core.ops.convolution_op import run_group_by_group
from ...core.ops.custom_gradient import NeededDiffs
from ...core.ops.layout import materialise, materialise_channels_last, to_channels_first, to_channels_last
from ...core.ops.window import Window
from . import onednn
from .channels_last import CHANNELS_LAST, channel_sums

Arrays = tuple[jax.Array, ...]
Pad = tuple[int, int, int]  # cells added at the low end, at the high end, and between neighbours
# a 1x1 convolution of at most this number of rows is computed as a matrix product, because oneDNN's convolution first
# reorders the weight, which takes too long for few rows
_MAX_PRODUCT_ROWS = 1024
Algorithm = Literal["product", "depthwise", "by group", "convolution"]


def choose_algorithm(x: jax.Array, weight: jax.Array, window: Window) -> Algorithm:
    """Choose the algorithm by which XLA computes a convolution.

    Args:
        x: (batch, inputs, *size).
        weight: (outputs, inputs / groups, *kernel).
        window: the window over the spatial axes.

    Returns:
        "product" for a 1x1 kernel with stride 1 and no padding, "depthwise" if each channel is a group with one output,
        "by group" for other grouped convolutions, and "convolution" for all others.
    """
    groups = x.shape[1] // weight.shape[1]
    if groups > 1:
        return "depthwise" if len(weight) == groups == x.shape[1] else "by group"
    if math.prod(window.kernel) == math.prod(window.stride) == 1 and not any(map(any, window.padding)):
        return "product"
    return "convolution"


def correlate(
    x: jax.Array, weight: jax.Array, bias: jax.Array | None = None, *, window: Window, relu: bool
) -> tuple[jax.Array]:
    """Convolve `x` with `weight`, add a bias (outputs,), and set negative results to 0 if `relu`."""
    if onednn.supports_convolution(x, weight, window):
        return (_correlate_by_onednn(x, weight, bias, window, relu).astype(x.dtype),)
    y = to_channels_last(_correlate_by_xla(x, weight, window))
    return (to_channels_first(affine_along_channels(CHANNELS_LAST, y, None, bias, relu)).astype(x.dtype),)


def correlate_diffs(
    x: jax.Array, dy: jax.Array, weight: jax.Array, *, window: Window, needed: NeededDiffs, needs_bias: bool
) -> tuple[jax.Array | None, jax.Array | None, jax.Array | None]:
    """Return the diffs of `x`, weight and bias, from the output's diff `dy`. Diffs that are not needed may be None."""
    if onednn.supports_convolution(x, weight, window):
        x, dy = to_channels_last(materialise_channels_last(x)), to_channels_last(materialise_channels_last(dy))
        dx, d_weight, d_bias = onednn.convolution_diffs(x, dy, weight, window, needed, needs_bias=needs_bias)
        return None if dx is None else materialise_channels_last(to_channels_first(dx)), d_weight, d_bias
    _, pullback = jax.vjp(partial(_correlate_by_xla, window=window), x, weight)
    dx, d_weight = pullback(dy.astype(x.dtype))
    return dx, d_weight, channel_sums(promote(to_channels_last(dy))) if needs_bias else None


def _correlate_by_xla(x: jax.Array, weight: jax.Array, window: Window) -> jax.Array:
    if math.prod(window.kernel) == 1 and not any(map(any, window.padding)):
        x = to_channels_first(to_channels_last(x)[(slice(None), *(slice(None, None, s) for s in window.stride))])
        window = replace(window, stride=(1,) * len(window.stride))
    algorithm = choose_algorithm(x, weight, window)
    if algorithm == "by group":
        return run_group_by_group(partial(_correlate_by_xla, window=window), x, weight, x.shape[1] // weight.shape[1])
    if algorithm == "depthwise":
        return _correlate_depthwise(x, weight, window)
    run = _multiply if algorithm == "product" else _convolve
    return to_channels_first(run(to_channels_last(x), weight, window))


def _correlate_by_onednn(
    x: jax.Array, weight: jax.Array, bias: jax.Array | None, window: Window, relu: bool
) -> jax.Array:
    is_product = choose_algorithm(x, weight, window) == "product"
    x = to_channels_last(materialise_channels_last(x))
    if is_product and math.prod(x.shape[:-1]) <= _MAX_PRODUCT_ROWS:
        rows, matrix = x.reshape(-1, x.shape[-1]), weight.reshape(weight.shape[:2])
        y = onednn.matmul(rows, matrix, bias, transpose_b=True, relu=relu).reshape(*x.shape[:-1], -1)
    else:
        y = onednn.convolution(x, weight, bias, window, relu=relu)
    return materialise_channels_last(to_channels_first(y))


def _multiply(x: jax.Array, weight: jax.Array, window: Window) -> jax.Array:
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])  # -1 fails for an empty batch
    return (rows @ weight.reshape(weight.shape[:2]).T).reshape(*x.shape[:-1], len(weight))


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _correlate_depthwise(x: jax.Array, weight: jax.Array, window: Window) -> jax.Array:
    pads = [(low, high, 0) for low, high in window.padding]
    return _sum_shifted_products(x, pads, weight, window, window.output_size(x.shape[2:]))


def _correlate_depthwise_forward(
    x: jax.Array, weight: jax.Array, window: Window
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _correlate_depthwise(x, weight, window), (x, weight)


def _correlate_depthwise_backward(
    window: Window, residuals: tuple[jax.Array, jax.Array], dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    return _depthwise_input_diff(*residuals, window, dy), _depthwise_weight_diff(*residuals, window, dy)


_correlate_depthwise.defvjp(_correlate_depthwise_forward, _correlate_depthwise_backward)


def _depthwise_input_diff(x: jax.Array, weight: jax.Array, window: Window, dy: jax.Array) -> jax.Array:
    size = x.shape[2:]
    # the input's diff is the same sum over dy, dilated by the stride, with the flipped kernel
    transposed_window = window.fit_padding(size, dy.shape[2:]).transpose()
    pads = [(low, high, s - 1) for (low, high), s in zip(transposed_window.padding, window.stride, strict=True)]
    return _sum_shifted_products(dy, pads, jnp.flip(weight, range(2, weight.ndim)), transposed_window, size)


def _depthwise_weight_diff(x: jax.Array, weight: jax.Array, window: Window, dy: jax.Array) -> jax.Array:
    x, dy = (
        materialise(to_channels_last(x)),
        materialise(to_channels_last(dy)).astype(jnp.promote_types(x.dtype, jnp.float32)),
    )
    diffs = []
    for offset in np.ndindex(*window.kernel):
        axes = zip(x.shape[1:-1], dy.shape[1:-1], offset, window.stride, window.low, window.dilation, strict=True)
        inputs, output_cells = zip(*(_overlap_slices(n, o, i * d - low, s) for n, o, i, s, low, d in axes), strict=True)
        diffs.append(channel_sums(x[(slice(None), *inputs)] * dy[(slice(None), *output_cells)]))
    return jnp.stack(diffs, -1).reshape(weight.shape).astype(weight.dtype)


def _overlap_slices(size: int, num_windows: int, offset: int, stride: int) -> tuple[slice, slice]:
    """Return, along one axis, the input cells at one kernel position and the windows that contain them, as slices.

    Windows in which the kernel position is in the padding are not in the slices.

    Args:
        size: the length of the input.
        num_windows: the number of windows.
        offset: the input index of the kernel position in the first window; it is negative in the padding.
        stride: the distance between windows.
    """
    first = max(0, -(offset // stride))
    count = max(0, min(num_windows, (size - 1 - offset) // stride + 1) - first)
    start = first * stride + offset
    length = (count - 1) * stride + 1 if count else 0
    return slice(start, start + length, stride), slice(first, first + count)


def _sum_shifted_products(
    x: jax.Array, pads: Sequence[Pad], weight: jax.Array, window: Window, output_size: Sequence[int]
) -> jax.Array:
    padded = lax.pad(to_channels_last(x), jnp.zeros((), x.dtype), [(0, 0, 0), *pads, (0, 0, 0)])
    total = jnp.zeros((), jnp.promote_types(x.dtype, jnp.float32))
    for offset, cells in zip(np.ndindex(*window.kernel), window.cells(output_size), strict=True):
        total = total + padded[(slice(None), *cells)] * weight[(slice(None), 0, *offset)]
    return materialise_channels_last(to_channels_first(total.astype(x.dtype)))


def _convolve(x: jax.Array, weight: jax.Array, window: Window) -> jax.Array:
    n = x.ndim - 2
    channels_last_axes = (0, n + 1, *range(1, n + 1))
    return lax.conv_general_dilated(
        x,
        jnp.moveaxis(weight, (0, 1), (-1, -2)),
        window.stride,
        window.padding,
        rhs_dilation=window.dilation,
        dimension_numbers=lax.ConvDimensionNumbers(channels_last_axes, (n + 1, n, *range(n)), channels_last_axes),
    )
