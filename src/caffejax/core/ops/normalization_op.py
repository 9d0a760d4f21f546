"""Batch normalization by the statistics of the batch, and local response normalization, both with a custom gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .batch_axis import map_rows
from .channel_reductions import CHANNELS_FIRST, Channels, promote
from .custom_gradient import make_differentiable
from .implementations import cpu_form
from .platform_dispatch import PlatformOp
from .vma import vary, varying_axes
from .window import half_width

Arrays = tuple[jax.Array, ...]


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
    run: Any = PlatformOp(
        partial(normalize, CHANNELS_FIRST, **options),
        cpu_form("normalize_channels", partial(normalize, CHANNELS_FIRST), **options),
    )
    diffs: Any = PlatformOp(
        partial(compute_normalization_diffs, CHANNELS_FIRST, **options),
        cpu_form("normalize_channels_diffs", partial(compute_normalization_diffs, CHANNELS_FIRST), **options),
    )
    if axis_name is not None:
        if axis_name in varying_axes(jax.typeof(mean_estimate)):
            mean_estimate = jax.lax.pmean(mean_estimate, axis_name)  # all devices need the same value
        options |= {
            "sum_over_devices": partial(_sum_over_devices, axis_name),
            "num_devices": jax.lax.axis_size(axis_name),
        }
        run, diffs = (partial(f, CHANNELS_FIRST, **options) for f in (normalize, compute_normalization_diffs))

    def forward(x: jax.Array, factor: jax.Array, bias: jax.Array, mean_estimate: jax.Array) -> tuple[Arrays, Arrays]:
        y, mean, variance = run(x, factor, bias, mean_estimate)
        return (y, mean, variance), (x, factor, bias, mean, variance)

    def backward(residuals: Arrays, dy: Arrays, needed: Any) -> Any:
        dx, *param_diffs = diffs(*residuals, dy[0])
        return dx, *(d.astype(a.dtype) for d, a in zip(param_diffs, residuals[1:3], strict=True)), None

    y, mean, variance = make_differentiable(forward, backward)(x, factor, bias, mean_estimate)
    return y, jax.lax.stop_gradient(mean), jax.lax.stop_gradient(variance)


def _no_sum(*sums: jax.Array) -> Arrays:
    return sums


def _sum_over_devices(axis_name: str, *sums: jax.Array) -> Arrays:
    """Return the sum of each (channels,) array over the devices of a mesh axis, in one all-reduce.

    XLA combines the sums of separate arrays into one all-reduce. On TPUs this saves the fusions that stack the arrays
    and take them apart again. On GPUs it adds fusions.
    """
    sum_stacked, sum_separately = partial(_sum_stacked, axis_name), partial(_sum_separately, axis_name)
    return PlatformOp(sum_stacked, sum_stacked, tpu=sum_separately)(*(vary(s, frozenset({axis_name})) for s in sums))


def _sum_stacked(axis_name: str, *sums: jax.Array) -> Arrays:
    return tuple(jax.lax.psum(jnp.stack(sums), axis_name))


def _sum_separately(axis_name: str, *sums: jax.Array) -> Arrays:
    return tuple(jax.lax.psum(sums, axis_name))


def normalize(
    c: Channels,
    x: jax.Array,
    factor: jax.Array,
    bias: jax.Array,
    mean_estimate: jax.Array,
    *,
    eps: float,
    relu: bool,
    sum_over_devices: Callable[..., Arrays] = _no_sum,
    num_devices: int = 1,
) -> Arrays:
    """Return the results of `normalize_channels` for an array `x` with the channel axis `c`."""
    floats = promote(x)
    mean, variance = c.moments(floats, mean_estimate, sum_over_devices, num_devices)
    x_hat = _standardize(c, floats, mean, jax.lax.rsqrt(variance + eps))
    y = x_hat * c.broadcast(factor, x) + c.broadcast(bias, x)
    return (jnp.maximum(y, 0) if relu else y).astype(x.dtype), mean, variance


def _standardize(c: Channels, x: jax.Array, mean: jax.Array, scale: jax.Array) -> jax.Array:
    return (x - c.broadcast(mean, x)) * c.broadcast(scale, x)


def compute_normalization_diffs(
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
    sum_over_devices: Callable[..., Arrays] = _no_sum,
    num_devices: int = 1,
) -> Arrays:
    """Return the diffs of `x`, factor and bias of `normalize`, from the diff `dy` of its first result."""
    scale = jax.lax.rsqrt(variance + eps)
    x_hat, relu_dy = compute_masked_diffs(c, x, dy, mean, scale, factor, bias, relu=relu)
    d_factor, d_bias = c.normalization_sums(x_hat, relu_dy, (x, dy, mean, scale, factor, bias), relu)
    # `x_hat` has mean 0 and variance 1 (except for eps), so the diff loses its components along 1 and `x_hat`
    count = num_devices * (x.size // mean.size)
    mean_d_bias, mean_d_factor = (d / count for d in sum_over_devices(d_bias, d_factor))
    dx = relu_dy - c.broadcast(mean_d_bias, x) - x_hat * c.broadcast(mean_d_factor, x)
    return (dx * c.broadcast(factor * scale, x)).astype(x.dtype), d_factor, d_bias


def compute_masked_diffs(
    c: Channels,
    x: jax.Array,
    dy: jax.Array,
    mean: jax.Array,
    scale: jax.Array,
    factor: jax.Array,
    bias: jax.Array,
    *,
    relu: bool,
) -> Arrays:
    """Return the standardized `x`, and `dy`, with 0 where a ReLU's result is not positive."""
    x_hat = _standardize(c, promote(x), mean, scale)
    if relu:  # recomputing the mask is cheaper than reading the output
        dy = jnp.where(x_hat * c.broadcast(factor, x) + c.broadcast(bias, x) <= 0, 0, dy)
    return x_hat, promote(dy)


@partial(jax.jit, static_argnames=("size", "k", "alpha", "beta", "within_channel"))
def normalize_response(
    x: jax.Array, size: int, k: float, alpha: float, beta: float, *, within_channel: bool = False
) -> jax.Array:
    """Return `x * scale ** -beta`, of the dtype of `x`, where `scale = k + alpha * (sum of the squares in a window)`.

    A window covers `size` neighboring channels, or `size` x `size` cells of the plane if `within_channel` is true.
    Cells beyond the ends count as 0. The result is computed in at least float32. `x` is (batch, channels, height,
    width).
    """
    options: Any = {"size": size, "k": k, "alpha": alpha, "beta": beta, "within_channel": within_channel}
    run = partial(_response_operation, "normalize_response", _compute_response, options)
    diffs = partial(_response_operation, "normalize_response_diff", _compute_response_diff, options)

    def forward(x: jax.Array) -> tuple[jax.Array, Arrays]:
        return run()(x)[0], (x,)

    def backward(residuals: Arrays, dy: jax.Array, needed: Sequence[bool]) -> Arrays:
        return diffs()(*residuals, dy)

    y: jax.Array = make_differentiable(forward, backward)(x)
    return y


def _response_operation(name: str, plain: Callable[..., Arrays], options: dict[str, Any]) -> PlatformOp:
    return PlatformOp(
        partial(plain, **options),
        cpu_form(name, plain, **options),
        differentiable=False,
        batch_rule=partial(map_rows, partial(_response_operation, name, plain, options)),
    )


def _compute_response(x: jax.Array, *, size: int, k: float, alpha: float, beta: float, within_channel: bool) -> Arrays:
    scale = _compute_scale(x, size, k, alpha, within_channel)
    return ((promote(x) * _negative_power(scale, beta)).astype(x.dtype),)


def _compute_response_diff(
    x: jax.Array, dy: jax.Array, *, size: int, k: float, alpha: float, beta: float, within_channel: bool
) -> Arrays:
    values, diff, scale = promote(x), promote(dy), _compute_scale(x, size, k, alpha, within_channel)
    factor = _negative_power(scale, beta)
    ratio_sums = promote(_sum_windows((diff * values * factor / scale).astype(x.dtype), size, within_channel))
    return ((diff * factor - (2 * alpha * beta) * values * ratio_sums).astype(x.dtype),)


def _compute_scale(x: jax.Array, size: int, k: float, alpha: float, within_channel: bool) -> jax.Array:
    squares = jnp.square(promote(x)).astype(x.dtype)  # arrays of 16 bits are summed as such
    return k + alpha * promote(_sum_windows(squares, size, within_channel))


def _sum_windows(x: jax.Array, size: int, within_channel: bool) -> jax.Array:
    """Return the sum of the window centered at each cell."""
    halves = [
        half_width(size, n) if (axis > 1 if within_channel else axis == 1) else 0 for axis, n in enumerate(x.shape)
    ]
    kernel, padding = tuple(2 * half + 1 for half in halves), [(half, half) for half in halves]
    return jax.lax.reduce_window(x, np.zeros((), x.dtype), jax.lax.add, kernel, (1,) * x.ndim, padding)


def _negative_power(scale: jax.Array, beta: float) -> jax.Array:
    if beta == 0.75:  # the usual value: two roots are cheaper than a power
        root = jax.lax.rsqrt(scale)
        return root * jnp.sqrt(root)
    return scale**-beta
