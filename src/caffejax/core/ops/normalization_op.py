"""Batch normalization by the statistics of the batch, and local response normalization, both with a custom gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .channels import CHANNELS_FIRST, Channels, divide_sums, promote
from .custom_gradient import make_differentiable
from .implementations import cpu_form
from .platform_dispatch import Arrays, PlatformOp, map_rows
from .vma import varying_axes
from .window import half_width


@partial(jax.jit, static_argnames=("eps", "relu", "axis_name"))
def normalize_channels(
    x: Array,
    factor: Array,
    bias: Array,
    mean_estimate: Array,
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
    if axis_name is not None and axis_name in varying_axes(jax.typeof(mean_estimate)):
        mean_estimate = jax.lax.pmean(mean_estimate, axis_name)  # all devices need the same value

    def make_operation(name: str, function: Callable[..., Arrays]) -> Callable[..., Arrays]:
        plain = partial(function, CHANNELS_FIRST)
        if axis_name is not None:
            return partial(plain, **options, axis_name=axis_name)
        return PlatformOp(partial(plain, **options), cpu_form(name, plain, **options))

    run = make_operation("normalize_channels", normalize)
    diffs = make_operation("normalize_channels_diffs", compute_normalization_diffs)

    def forward(x: Array, factor: Array, bias: Array, mean_estimate: Array) -> tuple[Arrays, Arrays]:
        y, mean, variance = run(x, factor, bias, mean_estimate)
        return (y, mean, variance), (x, factor, bias, mean, variance)

    def backward(residuals: Arrays, dy: Arrays, needed: Any) -> Any:
        dx, *param_diffs = diffs(*residuals, dy[0])
        return dx, *(d.astype(a.dtype) for d, a in zip(param_diffs, residuals[1:3], strict=True)), None

    y, mean, variance = make_differentiable(forward, backward)(x, factor, bias, mean_estimate)
    return y, jax.lax.stop_gradient(mean), jax.lax.stop_gradient(variance)


def normalize(
    c: Channels,
    x: Array,
    factor: Array,
    bias: Array,
    mean_estimate: Array,
    *,
    eps: float,
    relu: bool,
    axis_name: str | None = None,
) -> Arrays:
    """Return the results of `normalize_channels` for an array `x` with the channel axis `c`."""
    floats = promote(x)
    mean, variance = c.moments(floats, mean_estimate, axis_name)
    x_hat = _standardize(c, floats, mean, jax.lax.rsqrt(variance + eps))
    y = x_hat * c.broadcast(factor, x) + c.broadcast(bias, x)
    return (jnp.maximum(y, 0) if relu else y).astype(x.dtype), mean, variance


def _standardize(c: Channels, x: Array, mean: Array, scale: Array) -> Array:
    return (x - c.broadcast(mean, x)) * c.broadcast(scale, x)


def compute_normalization_diffs(
    c: Channels,
    x: Array,
    factor: Array,
    bias: Array,
    mean: Array,
    variance: Array,
    dy: Array,
    *,
    eps: float,
    relu: bool,
    axis_name: str | None = None,
) -> Arrays:
    """Return the diffs of `x`, factor and bias of `normalize`, from the diff `dy` of its first result."""
    scale = jax.lax.rsqrt(variance + eps)
    x_hat, relu_dy = compute_masked_diffs(c, x, dy, mean, scale, factor, bias, relu=relu)
    d_factor, d_bias = c.normalization_sums(x_hat, relu_dy, (x, dy, mean, scale, factor, bias), relu)
    # `x_hat` has mean 0 and variance 1 (except for eps), so the diff loses its components along 1 and `x_hat`
    mean_d_bias, mean_d_factor = divide_sums(axis_name, x.size // mean.size, d_bias, d_factor)
    dx = relu_dy - c.broadcast(mean_d_bias, x) - x_hat * c.broadcast(mean_d_factor, x)
    return (dx * c.broadcast(factor * scale, x)).astype(x.dtype), d_factor, d_bias


def compute_masked_diffs(
    c: Channels, x: Array, dy: Array, mean: Array, scale: Array, factor: Array, bias: Array, *, relu: bool
) -> Arrays:
    """Return the standardized `x`, and `dy`, with 0 where a ReLU's result is not positive."""
    x_hat = _standardize(c, promote(x), mean, scale)
    if relu:  # recomputing the mask is cheaper than reading the output
        dy = jnp.where(x_hat * c.broadcast(factor, x) + c.broadcast(bias, x) <= 0, 0, dy)
    return x_hat, promote(dy)


@partial(jax.jit, static_argnames=("size", "k", "alpha", "beta", "within_channel"))
def normalize_response(
    x: Array, size: int, k: float, alpha: float, beta: float, *, within_channel: bool = False
) -> Array:
    """Return `x * scale ** -beta`, of the dtype of `x`, where `scale = k + alpha * (sum of the squares in a window)`.

    A window covers `size` neighboring channels, or `size` x `size` cells of the plane if `within_channel` is true.
    Cells beyond the ends count as 0. The result is computed in at least float32. `x` is (batch, channels, height,
    width).
    """
    options: Any = {"size": size, "k": k, "alpha": alpha, "beta": beta, "within_channel": within_channel}
    run, diffs = (
        PlatformOp(
            partial(plain, **options), cpu_form(name, plain, **options), differentiable=False, batch_rule=map_rows
        )
        for name, plain in (
            ("normalize_response", compute_response),
            ("normalize_response_diff", compute_response_diff),
        )
    )

    def forward(x: Array) -> tuple[Array, Array]:
        return run(x)[0], x

    def backward(x: Array, dy: Array, needed: Sequence[bool]) -> Arrays:
        return diffs(x, dy)

    y: Array = make_differentiable(forward, backward)(x)
    return y


def compute_response(x: Array, *, size: int, k: float, alpha: float, beta: float, within_channel: bool) -> Arrays:
    """Return the result of `normalize_response`, as a tuple."""
    scale = _compute_scale(x, size, k, alpha, within_channel)
    return ((promote(x) * _negative_power(scale, beta)).astype(x.dtype),)


def compute_response_diff(
    x: Array, dy: Array, *, size: int, k: float, alpha: float, beta: float, within_channel: bool
) -> Arrays:
    """Return the diff of `x` of `normalize_response`, as a tuple, from the diff `dy` of its result."""
    values, diff, scale = promote(x), promote(dy), _compute_scale(x, size, k, alpha, within_channel)
    factor = _negative_power(scale, beta)
    ratio_sums = promote(_sum_windows((diff * values * factor / scale).astype(x.dtype), size, within_channel))
    return ((diff * factor - (2 * alpha * beta) * values * ratio_sums).astype(x.dtype),)


def _compute_scale(x: Array, size: int, k: float, alpha: float, within_channel: bool) -> Array:
    squares = jnp.square(promote(x)).astype(x.dtype)  # arrays of 16 bits are summed as such
    return k + alpha * promote(_sum_windows(squares, size, within_channel))


def _sum_windows(x: Array, size: int, within_channel: bool) -> Array:
    halves = [
        half_width(size, n) if (axis > 1 if within_channel else axis == 1) else 0 for axis, n in enumerate(x.shape)
    ]
    kernel, padding = tuple(2 * half + 1 for half in halves), [(half, half) for half in halves]
    return jax.lax.reduce_window(x, np.zeros((), x.dtype), jax.lax.add, kernel, (1,) * x.ndim, padding)


def _negative_power(scale: Array, beta: float) -> Array:
    if beta == 0.75:  # the usual value: two roots are cheaper than a power
        root = jax.lax.rsqrt(scale)
        return root * jnp.sqrt(root)
    return scale**-beta
