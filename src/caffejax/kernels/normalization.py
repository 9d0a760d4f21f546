"""BatchNorm's normalisation by the batch's own statistics, and LRN across channels, each with its own gradient."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from .layout import channels_first, channels_last, kept
from .sums import row, row_means, row_sums

Arrays = tuple[jax.Array, ...]


@partial(jax.jit, static_argnames="eps")
def batch_normalized(x: jax.Array, factor: jax.Array, bias: jax.Array, eps: float) -> Arrays:
    """(batch, channels, *space) with mean `bias` and deviation `factor` in each channel; the old mean and variance.

    `factor`, `bias`, mean and variance are (channels,). The gradient is that of the first result only.
    """
    y, mean, variance = _batch_normalized(channels_last(x), factor, bias, eps)
    return channels_first(y), jax.lax.stop_gradient(mean), jax.lax.stop_gradient(variance)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _batch_normalized(x: jax.Array, factor: jax.Array, bias: jax.Array, eps: float) -> Arrays:
    mean = row_means(x)
    variance = row_means(jnp.square(x - row(mean, x.shape)))
    normal = _normal(x, mean, variance, eps)
    return normal * row(factor, x.shape) + row(bias, x.shape), mean, variance


def _normal(x: jax.Array, mean: jax.Array, variance: jax.Array, eps: float) -> jax.Array:
    return (x - row(mean, x.shape)) * row(jax.lax.rsqrt(variance + eps), x.shape)


def _batch_normalized_forward(x: jax.Array, factor: jax.Array, bias: jax.Array, eps: float) -> tuple[Arrays, Arrays]:
    y, mean, variance = _batch_normalized(x, factor, bias, eps)
    return (y, mean, variance), (x, factor, mean, variance)


def _batch_normalized_backward(eps: float, saved: Arrays, diffs: Arrays) -> Arrays:
    x, factor, mean, variance = saved
    dy, m = kept(diffs[0]), x.size // x.shape[-1]
    normal = _normal(x, mean, variance, eps)
    d_bias, d_factor = row_sums(dy), row_sums(dy * normal)
    # the normal has mean 0 and variance 1 (but for eps): moving x only moves it across both directions
    across = dy - row(d_bias / m, x.shape) - normal * row(d_factor / m, x.shape)
    return across * row(factor * jax.lax.rsqrt(variance + eps), x.shape), d_factor, d_bias


_batch_normalized.defvjp(_batch_normalized_forward, _batch_normalized_backward)


@partial(jax.jit, static_argnames=("size", "k", "alpha", "beta"))
def response_normalized(x: jax.Array, size: int, k: float, alpha: float, beta: float) -> jax.Array:
    """x * (k + alpha * the sum of squares over `size` neighbouring channels) ** -beta, for (batch, channels, ...)."""
    return channels_first(_response_normalized(channels_last(x), size, k, alpha, beta))


@partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3, 4))
def _response_normalized(x: jax.Array, size: int, k: float, alpha: float, beta: float) -> jax.Array:
    return x * power(_scale(x, size, k, alpha), beta)


def _response_forward(x: jax.Array, size: int, k: float, alpha: float, beta: float) -> tuple[jax.Array, Arrays]:
    scale = _scale(x, size, k, alpha)
    return x * power(scale, beta), (x, scale)


def _response_backward(size: int, k: float, alpha: float, beta: float, saved: Arrays, dy: jax.Array) -> Arrays:
    x, scale = saved
    factor = power(scale, beta)
    ratio = kept(dy * x * factor / scale)
    return (dy * factor - (2 * alpha * beta) * x * _neighbours(ratio, size),)


_response_normalized.defvjp(_response_forward, _response_backward)


def _scale(x: jax.Array, size: int, k: float, alpha: float) -> jax.Array:
    return k + alpha * _neighbours(jnp.square(x), size)


def _neighbours(x: jax.Array, size: int) -> jax.Array:
    """Sums over `size` neighbouring channels."""
    half, channels = size // 2, x.shape[-1]
    padded = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(half, half)])
    return sum((padded[..., i : i + channels] for i in range(size)), start=jnp.zeros((), x.dtype))


def power(scale: jax.Array, beta: float) -> jax.Array:
    """scale ** -beta."""
    if beta == 0.75:  # what nets have: two roots are cheaper than a power
        root = jax.lax.rsqrt(scale)
        return root * jnp.sqrt(root)
    return scale**-beta
