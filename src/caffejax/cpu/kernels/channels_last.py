"""Operations of core with the channels last in memory, as oneDNN's convolutions have them, by XLA or by loops of C++.

Sums over channels-last arrays are up to 20 times faster than XLA's reduction, whose loop over the leading axes reads
memory out of order. The rows are split into at most 8 parts, which are added elementwise; XLA fuses this sum with the
operation that computes the values. A foreign function, or a matrix product with ones, then adds the remaining rows.
`broadcast_channels` is the transpose of this product.

Arguments and results of the forms at the end are those of the plain forms in `core.ops`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core.ops.channels import Channels, affine_along_channels, apply_affine
from ...core.ops.host_constant import host_constant
from ...core.ops.layout import materialise, to_channels_first, to_channels_last
from ...core.ops.normalization_op import compute_masked_diffs, compute_normalization_diffs, normalize
from ...core.ops.platform_dispatch import PlatformOp
from ...core.ops.pooling_op import cells_along, gather_diffs, pad_window
from ...core.ops.window import Window
from . import onednn

Arrays = tuple[jax.Array, ...]

_MAX_PARTS = 8  # XLA does not fuse a sum of more than 8 parts
_EXACT_PRECISION = jax.lax.Precision.HIGHEST  # these products compute sums, which must not be rounded to TF32


class ChannelsLast(Channels):
    """The channel axis of arrays (batch, *space, channels)."""

    def sums(self, x: jax.Array) -> jax.Array:
        """See `Channels`."""
        return channel_sums(x)

    def broadcast(self, b: jax.Array, x: jax.Array) -> jax.Array:
        """See `Channels`."""
        return broadcast_channels(b, x.shape)

    def moments(self, x: jax.Array, mean_estimate: jax.Array, axis_name: str | None) -> Arrays:
        """See `Channels`. The form for CPUs runs on one device, and needs no estimate."""
        return channel_moments(x)

    def normalization_sums(self, x_hat: jax.Array, masked_dy: jax.Array, arguments: Arrays, relu: bool) -> Arrays:
        """See `Channels`. One pass over the arguments is faster than sums of the other two."""
        x, dy, *channel_params = arguments
        run = PlatformOp(
            partial(_sum_masked_diffs, relu=relu), partial(_sum_masked_diffs_by_loops, relu=relu), differentiable=False
        )
        return run(x.reshape(-1, x.shape[-1]), dy.reshape(-1, x.shape[-1]), *channel_params)


CHANNELS_LAST = ChannelsLast()


def _sum_masked_diffs(x: jax.Array, dy: jax.Array, *channel_params: jax.Array, relu: bool) -> Arrays:
    x_hat, dy = compute_masked_diffs(CHANNELS_LAST, x, dy, *channel_params, relu=relu)
    return channel_sums(dy * x_hat), channel_sums(dy)


def _sum_masked_diffs_by_loops(*arrays: jax.Array, relu: bool) -> Arrays:
    if onednn.supports(*arrays):
        return onednn.normalization_sums(*arrays, relu=relu)
    return _sum_masked_diffs(*arrays, relu=relu)


def channel_sums(x: jax.Array) -> jax.Array:
    """Return the sum of each channel of (batch, *space, channels), as (channels,)."""
    return _weighted_sums(x, 1)


def channel_means(x: jax.Array) -> jax.Array:
    """Return the mean of each channel of (batch, *space, channels), as (channels,)."""
    return _weighted_sums(x, x.shape[-1] / (x.size or 1))


def channel_moments(x: jax.Array) -> Arrays:
    """Return the mean and the variance of each channel of (batch, *space, channels), as (channels,)."""
    return PlatformOp(_compute_moments, _moments_by_loops, differentiable=False)(x.reshape(-1, x.shape[-1]))


def _compute_moments(x: jax.Array) -> Arrays:
    mean = channel_means(x)
    return mean, channel_means(jnp.square(x - broadcast_channels(mean, x.shape)))


def _moments_by_loops(x: jax.Array) -> Arrays:
    return onednn.channel_moments(x) if onednn.supports(x) else _compute_moments(x)


def cell_sums(x: jax.Array) -> jax.Array:
    """Return the sums over the cells of (batch, cells, channels), as (batch, 1, channels)."""
    return jnp.matmul(jnp.ones((1, x.shape[1]), x.dtype), x, precision=_EXACT_PRECISION)


def broadcast_channels(b: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Broadcast `b`, (channels,), to `shape`, (batch, *space, channels)."""
    n, rows, channels = _split_rows(shape)
    part = jnp.matmul(jnp.ones((rows, 1), b.dtype), b[None], precision=_EXACT_PRECISION)
    return jnp.broadcast_to(part, (n, rows, channels)).reshape(shape)


def _weighted_sums(x: jax.Array, weight: float) -> jax.Array:
    n, rows, channels = _split_rows(x.shape)
    operation = PlatformOp(
        partial(_sum_by_product, weight=weight), partial(_sum_by_loops, weight=weight), differentiable=False
    )
    return operation(x.reshape(n, rows, channels).sum(0))[0]


def _sum_by_product(x: jax.Array, *, weight: float) -> tuple[jax.Array, ...]:
    return (jnp.matmul(jnp.full((1, len(x)), weight, x.dtype), x, precision=_EXACT_PRECISION)[0],)


def _sum_by_loops(x: jax.Array, *, weight: float) -> tuple[jax.Array, ...]:
    return (onednn.sum_rows(x, weight),) if onednn.supports(x) else _sum_by_product(x, weight=weight)


def _split_rows(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return a shape `(parts, rows in each part, channels)` to which an array (*rows, channels) can be reshaped."""
    rows = math.prod(shape[:-1])
    n = max(k for k in range(1, _MAX_PARTS + 1) if rows % k == 0)
    return n, rows // n, shape[-1]


def normalize_channels(x: jax.Array, *channel_params: jax.Array, **options: Any) -> Arrays:
    """Return the results of `core.ops.normalization_op.normalize`."""
    y, mean, variance = normalize(CHANNELS_LAST, to_channels_last(x), *channel_params, **options)
    return to_channels_first(y), mean, variance


def normalize_channels_diffs(x: jax.Array, *channel_params_and_dy: jax.Array, **options: Any) -> Arrays:
    """Return the results of `core.ops.normalization_op.compute_normalization_diffs`."""
    *channel_params, dy = channel_params_and_dy
    arrays = (to_channels_last(x), *channel_params, materialise(to_channels_last(dy)))
    dx, d_factor, d_bias = compute_normalization_diffs(CHANNELS_LAST, *arrays, **options)
    return to_channels_first(dx), d_factor, d_bias


def channel_affine(x: jax.Array, *factor_and_bias: jax.Array, **options: Any) -> Arrays:
    """Return `core.ops.channel_affine.channel_affine`, as a tuple."""
    (y,) = apply_affine(CHANNELS_LAST, to_channels_last(x), *factor_and_bias, **options)
    return (to_channels_first(y),)


def add_bias_to_rows(x: jax.Array, bias: jax.Array) -> Arrays:
    """Return `x + bias`, for `x` of shape (*rows, outputs), as a tuple."""
    return (affine_along_channels(CHANNELS_LAST, x, None, bias, relu=False),)


def apply_elementwise(*arrays: jax.Array, function: Callable[..., Arrays]) -> Arrays:
    """Call a function with the channels last, the order in memory, so that XLA need not transpose."""
    return tuple(map(to_channels_first, function(*map(to_channels_last, arrays))))


def relu(x: jax.Array) -> Arrays:
    """Return max(x, 0) as a tuple. XLA computes its gradient from `x`; it would recompute the result."""
    return (jnp.where(x <= 0, 0, x),)


def concatenate_channels(*arrays: jax.Array) -> Arrays:
    """Concatenate arrays (batch, channels, *space) along the channels; return a tuple."""
    return (to_channels_first(jnp.concatenate([to_channels_last(x) for x in arrays], -1)),)


def window_maxima(x: jax.Array, window: Window) -> Arrays:
    """Return the maximum of each window, (batch, channels, *out), by slices, which XLA fuses."""
    lowest = float(jnp.finfo(x.dtype).min)
    x = pad_window(materialise(to_channels_last(x)), window, lowest)
    for axis in (2, 1):  # first along each row, then over the rows: 2k comparisons for a k x k window
        first_cells, *later_cells = cells_along(x, window, axis)
        x = jnp.where(first_cells > lowest, first_cells, lowest)
        for cells in later_cells:
            x = jnp.where(cells > x, cells, x)
    return (to_channels_first(x),)


def window_means(x: jax.Array, window: Window, areas: Callable[[], np.ndarray]) -> Arrays:
    """Return the sum of each window, divided by the window's entry in the array that `areas` returns.

    The result is (batch, channels, *out).
    """
    x = to_channels_last(x)
    if _is_global(window, x.shape[1:3]):
        total = cell_sums(x.reshape(x.shape[0], math.prod(x.shape[1:-1]), x.shape[-1]))[:, :, None]
    else:
        total = pad_window(x, window, 0)
        for axis in (2, 1):
            total = sum(cells_along(total, window, axis), start=jnp.zeros((), x.dtype))
    return (to_channels_first(total / host_constant(areas, total.shape[1:3], x.dtype)[..., None]),)


def window_means_diff(x: jax.Array, dy: jax.Array, window: Window, areas: Callable[[], np.ndarray]) -> Arrays:
    """Return the diff of the input `x` of average pooling. Only the shape of `x` is used."""
    size = x.shape[2:]
    cell_diffs = to_channels_last(dy) / host_constant(areas, dy.shape[2:], dy.dtype)[..., None]
    if _is_global(window, size):
        dx = jnp.broadcast_to(cell_diffs, (dy.shape[0], *size, cell_diffs.shape[-1]))
        return (to_channels_first(dx),)
    return (to_channels_first(gather_diffs(window, size, materialise(cell_diffs))),)


def _is_global(window: Window, size: tuple[int, ...]) -> bool:
    return window.kernel == size and window.output_size(size) == (1, 1)
