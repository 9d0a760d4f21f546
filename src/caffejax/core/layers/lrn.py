"""LRN: local response normalization, across channels or within each channel (lrn_layer.cpp)."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ..ops.normalization_op import normalize_response
from ..ops.window import Window, half_width
from ..schema.caffe_pb2 import LRNParameter
from .context import Shape
from .declaration import register
from .dtype_policy import promote
from .helpers import pointwise_window
from .pooling import average_windows


@register("LRN", param="lrn_param", row_wise=True, dtype_policy="bottoms", spatial_map="same")
def lrn(p: LRNParameter, x: jax.Array, *, fast: bool) -> jax.Array:
    """Return x * scale**-beta, where scale = k + alpha / n * (sum of squares over n = local_size neighboring channels).

    Bottom and top: (N, C, H, W). WITHIN_CHANNEL sums over an n x n window of the plane instead, with k = 1, and divides
    by the number of cells of the window in the padded plane, like average pooling. Caffe's rule: lrn_layer.cpp.
    """
    _check_axes(x)
    if fast and _is_within_channel(p):
        return normalize_response(x, p.local_size, 1, p.alpha / p.local_size**2, p.beta, within_channel=True)
    if fast:
        return normalize_response(x, p.local_size, p.k, p.alpha / p.local_size, p.beta)
    return (x * _compute_scale(p, x) ** -p.beta).astype(x.dtype)


@lrn.top_shapes
def lrn_top_shapes(p: LRNParameter, x: jax.ShapeDtypeStruct) -> list[Shape] | None:
    """Return the shape of the top, or None for WITHIN_CHANNEL and an empty bottom, where forward may raise."""
    _check_axes(x)
    return None if _is_within_channel(p) and 0 in x.shape else [x.shape]


@lrn.backward
def lrn_backward(p: LRNParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    scale = _compute_scale(p, x)
    ratio = dy * y / scale
    if _is_within_channel(p):
        # the window sum is linear, and its transpose adds each ratio to the cells of the ratio's window
        ratio_sums = jax.linear_transpose(lambda squares: _average_window(p, squares), ratio)(ratio)[0]
        return (dy * scale**-p.beta - 2 * p.alpha * p.beta * x * ratio_sums).astype(x.dtype)
    ratio_sums = _sum_channels(ratio, p.local_size)
    return (dy * scale**-p.beta - 2 * p.alpha * p.beta / p.local_size * x * ratio_sums).astype(x.dtype)


@lrn.receptive_window
def _receptive_window(p: LRNParameter, bottom: Any) -> Window:
    return _squares_window(p, bottom.shape[2:]) if _is_within_channel(p) else pointwise_window(bottom)


@lrn.check
def check_lrn(p: LRNParameter) -> None:
    require(p.local_size % 2 == 1, f"local_size must be odd, not {p.local_size}")


def _is_within_channel(p: LRNParameter) -> bool:
    return p.norm_region == p.WITHIN_CHANNEL


def _check_axes(x: jax.Array | jax.ShapeDtypeStruct) -> None:
    require(x.ndim == 4, f"needs a bottom with 4 axes (num, channels, height, width), not shape {x.shape}")


def _compute_scale(p: LRNParameter, x: jax.Array) -> jax.Array:
    squares = jnp.square(promote(x))
    if _is_within_channel(p):
        return 1 + p.alpha * _average_window(p, squares)
    return p.k + p.alpha / p.local_size * _sum_channels(squares, p.local_size)


def _sum_channels(x: jax.Array, size: int) -> jax.Array:
    """Sum over `size` neighboring channels (axis 1); channels beyond the edge are zero."""
    num_channels = x.shape[1]
    half = half_width(size, num_channels)
    padded = jnp.pad(x, ((0, 0), (half, half), (0, 0), (0, 0)))
    return sum((padded[:, i : i + num_channels] for i in range(2 * half + 1)), start=jnp.zeros_like(x))


def _average_window(p: LRNParameter, x: jax.Array) -> jax.Array:
    window = _squares_window(p, x.shape[2:])
    mean = average_windows(x, window, x.shape[2:])
    cell_ratio = math.prod(window.kernel) / p.local_size**2  # the other cells are always beyond an edge
    return mean if cell_ratio == 1 else mean * cell_ratio


def _squares_window(p: LRNParameter, plane: Shape) -> Window:
    half = tuple(half_width(p.local_size, n) for n in plane)
    return Window.symmetric(tuple(2 * n + 1 for n in half), (1,) * len(half), half)
