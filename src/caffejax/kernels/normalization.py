"""BatchNorm's normalisation by the batch's own statistics, and LRN across channels, each with its own gradient."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from .gradient import with_gradient
from .layout import channels_first, channels_last, materialise
from .operation import Operation
from .sums import FIRST, LAST, Channels

Arrays = tuple[jax.Array, ...]


@partial(jax.jit, static_argnames="eps")
def batch_normalized(x: jax.Array, factor: jax.Array, bias: jax.Array, eps: float) -> Arrays:
    """Normalise each channel of (batch, channels, *space) to mean `bias` and deviation `factor`.

    Also return the old mean and variance; these, `factor` and `bias` are (channels,). The gradient is that of the first
    result only.
    """
    run = Operation(partial(_normalized, FIRST, eps=eps), partial(_normalized_on_cpu, eps=eps))
    diffs = Operation(partial(_normalized_diffs, FIRST, eps=eps), partial(_normalized_diffs_on_cpu, eps=eps))

    def forward(x: jax.Array, factor: jax.Array, bias: jax.Array) -> tuple[Arrays, Arrays]:
        y, mean, variance = run(x, factor, bias)
        return (y, mean, variance), (x, factor, mean, variance)

    def backward(residuals: Arrays, dy: Arrays, wanted: Any) -> Arrays:
        return diffs(*residuals, dy[0])

    y, mean, variance = with_gradient(forward, backward)(x, factor, bias)
    return y, jax.lax.stop_gradient(mean), jax.lax.stop_gradient(variance)


def _normalized(c: Channels, x: jax.Array, factor: jax.Array, bias: jax.Array, *, eps: float) -> Arrays:
    mean = c.means(x)
    variance = c.means(jnp.square(x - c.along(mean, x)))
    return _normal(c, x, mean, variance, eps) * c.along(factor, x) + c.along(bias, x), mean, variance


def _normalized_on_cpu(x: jax.Array, factor: jax.Array, bias: jax.Array, *, eps: float) -> Arrays:
    y, mean, variance = _normalized(LAST, channels_last(x), factor, bias, eps=eps)
    return channels_first(y), mean, variance


def _normal(c: Channels, x: jax.Array, mean: jax.Array, variance: jax.Array, eps: float) -> jax.Array:
    return (x - c.along(mean, x)) * c.along(jax.lax.rsqrt(variance + eps), x)


def _normalized_diffs(
    c: Channels,
    x: jax.Array,
    factor: jax.Array,
    mean: jax.Array,
    variance: jax.Array,
    dy: jax.Array,
    *,
    eps: float,
) -> Arrays:
    m = x.size // mean.size
    normal = _normal(c, x, mean, variance, eps)
    d_bias, d_factor = c.sums(dy), c.sums(dy * normal)
    # the normal has mean 0 and variance 1 (but for eps): moving x only moves it across both directions
    across = dy - c.along(d_bias / m, x) - normal * c.along(d_factor / m, x)
    return across * c.along(factor * jax.lax.rsqrt(variance + eps), x), d_factor, d_bias


def _normalized_diffs_on_cpu(
    x: jax.Array, factor: jax.Array, mean: jax.Array, variance: jax.Array, dy: jax.Array, *, eps: float
) -> Arrays:
    dy = materialise(channels_last(dy))
    dx, d_factor, d_bias = _normalized_diffs(LAST, channels_last(x), factor, mean, variance, dy, eps=eps)
    return channels_first(dx), d_factor, d_bias


@partial(jax.jit, static_argnames=("size", "k", "alpha", "beta"))
def response_normalized(x: jax.Array, size: int, k: float, alpha: float, beta: float) -> jax.Array:
    """Return x * (k + alpha * sum of squares over `size` neighbouring channels) ** -beta. x: (batch, channels, ...)."""
    how: Any = {"size": size, "alpha": alpha, "beta": beta}
    run = Operation(partial(_response, 1, k=k, **how), partial(_response_on_cpu, k=k, **how))
    diffs = Operation(partial(_response_diff, 1, **how), partial(_response_diff_on_cpu, **how))

    def forward(x: jax.Array) -> tuple[jax.Array, Arrays]:
        y, scale = run(x)
        return y, (x, scale)

    def backward(residuals: Arrays, dy: jax.Array, wanted: Sequence[bool]) -> Arrays:
        return diffs(*residuals, dy)

    y: jax.Array = with_gradient(forward, backward)(x)
    return y


def _response(axis: int, x: jax.Array, *, size: int, k: float, alpha: float, beta: float) -> Arrays:
    scale = k + alpha * _neighbours(jnp.square(x), size, axis)
    return x * power(scale, beta), scale


def _response_on_cpu(x: jax.Array, **how: Any) -> Arrays:
    y, scale = _response(x.ndim - 1, channels_last(x), **how)
    return channels_first(y), channels_first(scale)


def _response_diff(
    axis: int, x: jax.Array, scale: jax.Array, dy: jax.Array, *, size: int, alpha: float, beta: float
) -> Arrays:
    factor = power(scale, beta)
    ratio = dy * x * factor / scale
    ratio = materialise(ratio) if axis > 1 else ratio
    return (dy * factor - (2 * alpha * beta) * x * _neighbours(ratio, size, axis),)


def _response_diff_on_cpu(x: jax.Array, scale: jax.Array, dy: jax.Array, **how: Any) -> Arrays:
    (dx,) = _response_diff(x.ndim - 1, channels_last(x), channels_last(scale), channels_last(dy), **how)
    return (channels_first(dx),)


def _neighbours(x: jax.Array, size: int, axis: int) -> jax.Array:
    """Sum over `size` neighbours along an axis, zero beyond the edge."""
    half, n = size // 2, x.shape[axis]
    padded = jnp.pad(x, [(half, half) if k == axis else (0, 0) for k in range(x.ndim)])
    parts = (jax.lax.slice_in_dim(padded, i, i + n, axis=axis) for i in range(size))
    return sum(parts, start=jnp.zeros((), x.dtype))


def power(scale: jax.Array, beta: float) -> jax.Array:
    """Return scale ** -beta."""
    if beta == 0.75:  # what nets have: two roots are cheaper than a power
        root = jax.lax.rsqrt(scale)
        return root * jnp.sqrt(root)
    return scale**-beta
