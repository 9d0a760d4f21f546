"""BatchNorm's normalisation by the batch's own statistics, and LRN across channels, each with its own gradient."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from .layout import channels_first, channels_last, kept_last
from .sums import channel_sums, spread

Arrays = tuple[jax.Array, ...]


def batch_normalized(x: jax.Array, factor: jax.Array, bias: jax.Array, eps: float) -> Arrays:
    """(batch, channels, *space) with mean `bias` and deviation `factor` in each channel; the old mean and variance.

    `factor`, `bias`, mean and variance are (channels,). The gradient is that of the first result only.
    """
    y, mean, variance = _batch_normalized(x, factor, bias, eps)
    return y, jax.lax.stop_gradient(mean), jax.lax.stop_gradient(variance)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _batch_normalized(x: jax.Array, factor: jax.Array, bias: jax.Array, eps: float) -> Arrays:
    m = x.size // x.shape[1]
    mean = channel_sums(x) / m
    variance = channel_sums(jnp.square(x - spread(mean, x.shape))) / m
    normal = _normal(x, mean, variance, eps)
    return normal * spread(factor, x.shape) + spread(bias, x.shape), mean, variance


def _normal(x: jax.Array, mean: jax.Array, variance: jax.Array, eps: float) -> jax.Array:
    return (x - spread(mean, x.shape)) * spread(jax.lax.rsqrt(variance + eps), x.shape)


def _batch_normalized_forward(x: jax.Array, factor: jax.Array, bias: jax.Array, eps: float) -> tuple[Arrays, Arrays]:
    y, mean, variance = _batch_normalized(x, factor, bias, eps)
    return (y, mean, variance), (x, factor, mean, variance)


def _batch_normalized_backward(eps: float, kept: Arrays, diffs: Arrays) -> Arrays:
    x, factor, mean, variance = kept
    dy, m = kept_last(diffs[0]), x.size // x.shape[1]
    normal = _normal(x, mean, variance, eps)
    d_bias, d_factor = channel_sums(dy), channel_sums(dy * normal)
    # the normal has mean 0 and variance 1 (but for eps): moving x only moves it across both directions
    across = dy - spread(d_bias / m, x.shape) - normal * spread(d_factor / m, x.shape)
    return across * spread(factor * jax.lax.rsqrt(variance + eps), x.shape), d_factor, d_bias


_batch_normalized.defvjp(_batch_normalized_forward, _batch_normalized_backward)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3, 4))
def response_normalized(x: jax.Array, size: int, k: float, alpha: float, beta: float) -> jax.Array:
    """x * (k + alpha * the sum of squares over `size` neighbouring channels) ** -beta, for (batch, channels, ...)."""
    return x * power(_scale(x, size, k, alpha), beta)


def _response_forward(x: jax.Array, size: int, k: float, alpha: float, beta: float) -> tuple[jax.Array, Arrays]:
    scale = _scale(x, size, k, alpha)
    return x * power(scale, beta), (x, scale)


def _response_backward(size: int, k: float, alpha: float, beta: float, kept: Arrays, dy: jax.Array) -> Arrays:
    x, scale = kept
    factor = power(scale, beta)
    ratio = kept_last(dy * x * factor / scale)
    return (dy * factor - (2 * alpha * beta) * x * _neighbours(ratio, size),)


response_normalized.defvjp(_response_forward, _response_backward)


def _scale(x: jax.Array, size: int, k: float, alpha: float) -> jax.Array:
    return k + alpha * _neighbours(jnp.square(x), size)


def _neighbours(x: jax.Array, size: int) -> jax.Array:
    """Sums over `size` neighbouring channels."""
    half = size // 2
    x = channels_last(x)
    channels = x.shape[-1]
    padded = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(half, half)])
    parts = (padded[..., i : i + channels] for i in range(size))
    return channels_first(sum(parts, start=jnp.zeros((), x.dtype)))


def power(scale: jax.Array, beta: float) -> jax.Array:
    """scale ** -beta."""
    if beta == 0.75:  # what nets have: two roots are cheaper than a power
        root = jax.lax.rsqrt(scale)
        return root * jnp.sqrt(root)
    return scale**-beta
