"""Batch normalization by the statistics of the batch, and LRN across channels, both with a custom gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .channel_reductions import CHANNELS_FIRST, CHANNELS_LAST, Channels, promote
from .custom_gradient import make_differentiable
from .layout import channels_first, channels_last, materialise
from .platform_dispatch import Operation
from .vma import vary, varying_axes
from .window import half_width

Arrays = tuple[jax.Array, ...]
WindowSums = Callable[[jax.Array, int, int], jax.Array]


@partial(jax.jit, static_argnames=("eps", "relu", "axis_name"))
def normalize_channels(
    x: jax.Array,
    factor: jax.Array,
    bias: jax.Array,
    mean_estimate: jax.Array,
    eps: float,
    *,
    relu: bool = False,
    axis_name: str | None = None,
) -> Arrays:
    """Normalize each channel of (batch, channels, *space) to mean `bias` and standard deviation `factor`.

    Args:
        x: (batch, channels, *space).
        factor, bias: (channels,), at least float32.
        mean_estimate: an estimate of the mean, (channels,), at least float32. Mean and variance are computed in one
            pass over `x - mean_estimate`. The variance loses digits if the estimate is further from the mean than the
            standard deviation. Otherwise the estimate does not change the result.
        eps: a number that is added to the variance.
        relu: whether to set negative results to 0.
        axis_name: the mesh axis along which mean and variance are taken over all devices, or None. With an axis, XLA's
            implementation is used on CPUs too. It is slower, but the implementation for CPUs supports only one device.

    Returns:
        The normalized array, of the shape and dtype of `x`, and the mean and variance of `x`, (channels,). Only the
        normalized array has a gradient.
    """
    options: Any = {"eps": eps, "relu": relu}
    run: Any = Operation(partial(_normalize, CHANNELS_FIRST, **options), partial(_normalize_on_cpu, **options))
    diffs: Any = Operation(
        partial(_normalized_diffs, CHANNELS_FIRST, **options), partial(_normalized_diffs_on_cpu, **options)
    )
    if axis_name is not None:
        if axis_name in varying_axes(jax.typeof(mean_estimate)):
            mean_estimate = jax.lax.pmean(mean_estimate, axis_name)  # all devices need the same value
        options |= {"add_up": partial(_sum_over_devices, axis_name), "num_devices": jax.lax.axis_size(axis_name)}
        run, diffs = (partial(f, CHANNELS_FIRST, **options) for f in (_normalize, _normalized_diffs))

    def forward(x: jax.Array, factor: jax.Array, bias: jax.Array, mean_estimate: jax.Array) -> tuple[Arrays, Arrays]:
        y, mean, variance = run(x, factor, bias, mean_estimate)
        return (y, mean, variance), (x, factor, bias, mean, variance)

    def backward(residuals: Arrays, dy: Arrays, needed: Any) -> Any:
        dx, *param_diffs = diffs(*residuals, dy[0])
        return dx, *(d.astype(a.dtype) for d, a in zip(param_diffs, residuals[1:3], strict=True)), None

    y, mean, variance = make_differentiable(forward, backward)(x, factor, bias, mean_estimate)
    return y, jax.lax.stop_gradient(mean), jax.lax.stop_gradient(variance)


def _identity(*sums: jax.Array) -> Arrays:
    return sums


def _sum_over_devices(axis_name: str, *sums: jax.Array) -> Arrays:
    """Return the sum of each (channels,) array over the devices of a mesh axis, in one all-reduce.

    XLA combines the sums of separate arrays into one all-reduce. On TPUs this saves the fusions that stack the arrays
    and take them apart again. On GPUs it adds fusions.
    """
    stacked, separate = partial(_sum_stacked, axis_name), partial(_sum_separately, axis_name)
    return Operation(stacked, stacked, tpu=separate)(*(vary(s, frozenset({axis_name})) for s in sums))


def _sum_stacked(axis_name: str, *sums: jax.Array) -> Arrays:
    return tuple(jax.lax.psum(jnp.stack(sums), axis_name))


def _sum_separately(axis_name: str, *sums: jax.Array) -> Arrays:
    return tuple(jax.lax.psum(sums, axis_name))


def _normalize(
    c: Channels,
    x: jax.Array,
    factor: jax.Array,
    bias: jax.Array,
    mean_estimate: jax.Array,
    *,
    eps: float,
    relu: bool,
    add_up: Callable[..., Arrays] = _identity,
    num_devices: int = 1,
) -> Arrays:
    floats = promote(x)
    if c.last:
        mean = c.means(floats)
        variance = c.means(jnp.square(floats - c.broadcast(mean, x)))
    else:
        mean_estimate = mean_estimate.astype(floats.dtype)
        offsets = floats - c.broadcast(mean_estimate, x)
        m = num_devices * math.prod((x.shape[0], *x.shape[2:]))
        mean_offset, square_mean = (s / m for s in add_up(c.sums(offsets), c.sums(jnp.square(offsets))))
        mean, variance = mean_estimate + mean_offset, jnp.maximum(square_mean - jnp.square(mean_offset), 0)
    y = _normal(c, floats, mean, variance, eps) * c.broadcast(factor, x) + c.broadcast(bias, x)
    return (jnp.maximum(y, 0) if relu else y).astype(x.dtype), mean, variance


def _normalize_on_cpu(x: jax.Array, *by_channel: jax.Array, **options: Any) -> Arrays:
    y, mean, variance = _normalize(CHANNELS_LAST, channels_last(x), *by_channel, **options)
    return channels_first(y), mean, variance


def _normal(c: Channels, x: jax.Array, mean: jax.Array, variance: jax.Array, eps: float) -> jax.Array:
    return (x - c.broadcast(mean, x)) * c.broadcast(jax.lax.rsqrt(variance + eps), x)


def _normalized_diffs(
    c: Channels,
    x: jax.Array,
    factor: jax.Array,
    bias: jax.Array,
    mean: jax.Array,
    variance: jax.Array,
    dy: jax.Array,
    *,
    eps: float,
    relu: bool,
    add_up: Callable[..., Arrays] = _identity,
    num_devices: int = 1,
) -> Arrays:
    normal = _normal(c, promote(x), mean, variance, eps)
    if relu:  # recomputing the mask is cheaper than reading the output
        dy = jnp.where(normal * c.broadcast(factor, x) + c.broadcast(bias, x) > 0, dy, 0)
    dy = promote(dy)
    d_bias, d_factor = c.sums(dy), c.sums(dy * normal)
    # `normal` has mean 0 and variance 1 (except for eps), so the diff loses its components along 1 and `normal`
    m = num_devices * (x.size // mean.size)
    mean_d_bias, mean_d_factor = (d / m for d in add_up(d_bias, d_factor))
    dx = dy - c.broadcast(mean_d_bias, x) - normal * c.broadcast(mean_d_factor, x)
    return (dx * c.broadcast(factor * jax.lax.rsqrt(variance + eps), x)).astype(x.dtype), d_factor, d_bias


def _normalized_diffs_on_cpu(x: jax.Array, *by_channel_and_dy: jax.Array, **options: Any) -> Arrays:
    *by_channel, dy = by_channel_and_dy
    arrays = (channels_last(x), *by_channel, materialise(channels_last(dy)))
    dx, d_factor, d_bias = _normalized_diffs(CHANNELS_LAST, *arrays, **options)
    return channels_first(dx), d_factor, d_bias


@partial(jax.jit, static_argnames=("size", "k", "alpha", "beta"))
def normalize_response(x: jax.Array, size: int, k: float, alpha: float, beta: float) -> jax.Array:
    """Return x * (k + alpha * sum of squares over `size` neighbouring channels) ** -beta, of the dtype of `x`.

    The result is computed in at least float32. `x` is (batch, channels, *space).
    """
    options: Any = {"size": size, "alpha": alpha, "beta": beta}
    run = Operation(partial(_response, _window_sums, 1, k=k, **options), partial(_response_on_cpu, k=k, **options))
    diffs = Operation(partial(_response_diff, _window_sums, 1, **options), partial(_response_diff_on_cpu, **options))

    def forward(x: jax.Array) -> tuple[jax.Array, Arrays]:
        y, scale = run(x)
        return y, (x, scale)

    def backward(residuals: Arrays, dy: jax.Array, needed: Sequence[bool]) -> Arrays:
        return diffs(*residuals, dy)

    y: jax.Array = make_differentiable(forward, backward)(x)
    return y


def _response(sums: WindowSums, axis: int, x: jax.Array, *, size: int, k: float, alpha: float, beta: float) -> Arrays:
    floats = promote(x)
    scale = k + alpha * promote(sums(jnp.square(floats).astype(x.dtype), size, axis))
    return (floats * negative_power(scale, beta)).astype(x.dtype), scale.astype(x.dtype)


def _response_on_cpu(x: jax.Array, **options: Any) -> Arrays:
    y, scale = _response(_slice_sums, x.ndim - 1, channels_last(x), **options)
    return channels_first(y), channels_first(scale)


def _response_diff(
    sums: WindowSums,
    axis: int,
    x: jax.Array,
    scale: jax.Array,
    dy: jax.Array,
    *,
    size: int,
    alpha: float,
    beta: float,
) -> Arrays:
    values, scale, diff = map(promote, (x, scale, dy))
    factor = negative_power(scale, beta)
    window_sums = promote(sums((diff * values * factor / scale).astype(x.dtype), size, axis))
    return ((diff * factor - (2 * alpha * beta) * values * window_sums).astype(x.dtype),)


def _response_diff_on_cpu(x: jax.Array, scale: jax.Array, dy: jax.Array, **options: Any) -> Arrays:
    arrays = map(channels_last, (x, scale, dy))
    (dx,) = _response_diff(_materialised_sums, x.ndim - 1, *arrays, **options)
    return (channels_first(dx),)


def _window_sums(x: jax.Array, size: int, axis: int) -> jax.Array:
    """Return the sum over `size` neighbours centred at each element along an axis; beyond the ends `x` counts as 0."""
    half, is_summed = half_width(size, x.shape[axis]), [k == axis for k in range(x.ndim)]
    kernel, padding = (2 * half + 1 if a else 1 for a in is_summed), [(half, half) if a else (0, 0) for a in is_summed]
    total: jax.Array = jax.lax.reduce_window(
        x, np.zeros((), x.dtype), jax.lax.add, tuple(kernel), (1,) * x.ndim, padding
    )
    return total


def _slice_sums(x: jax.Array, size: int, axis: int) -> jax.Array:
    """Return the same sums as `_window_sums`, computed from shifted slices, which is faster on CPUs."""
    n = x.shape[axis]
    half = half_width(size, n)
    padded = jnp.pad(x, [(half, half) if k == axis else (0, 0) for k in range(x.ndim)])
    parts = (jax.lax.slice_in_dim(padded, i, i + n, axis=axis) for i in range(2 * half + 1))
    return sum(parts, start=jnp.zeros((), x.dtype))


def _materialised_sums(x: jax.Array, size: int, axis: int) -> jax.Array:
    return _slice_sums(materialise(x) if axis > 1 else x, size, axis)


def negative_power(scale: jax.Array, beta: float) -> jax.Array:
    """Return scale ** -beta."""
    if beta == 0.75:  # the usual value: two roots are cheaper than a power
        root = jax.lax.rsqrt(scale)
        return root * jnp.sqrt(root)
    return scale**-beta
