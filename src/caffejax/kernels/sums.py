"""Sums over all axes but the channels', and their transposes: up to 20 times faster than XLA's own on a CPU.

XLA's loop over leading axes goes against the grain of memory. A sum of a few parts of the rows does not, and is fused
with whatever makes the numbers; the rows that remain are summed by a product with ones. Of the transpose, XLA leaves no
more than a broadcast. Autodiff turns the one function into the other.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from .layout import channels_first, channels_last

_PARTS = 8  # more are no longer fused
EXACT = jax.lax.Precision.HIGHEST  # sums are not rounded to the TF32 that products may be


def channel_sums(x: jax.Array) -> jax.Array:
    """(batch, channels, *space) to (channels,)."""
    return row_sums(channels_last(x))


def spread(b: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """(channels,) broadcast to (batch, channels, *space)."""
    return channels_first(row(b, (shape[0], *shape[2:], shape[1])))


def row_sums(x: jax.Array) -> jax.Array:
    """(batch, *space, channels) to (channels,)."""
    return _weighted_sums(x, 1)


def row_means(x: jax.Array) -> jax.Array:
    """(batch, *space, channels) to (channels,)."""
    return _weighted_sums(x, x.shape[-1] / x.size)


def _weighted_sums(x: jax.Array, weight: float) -> jax.Array:
    n, rows, channels = _shape(x.shape)
    weights = jnp.full((1, rows), weight, x.dtype)
    return jnp.matmul(weights, x.reshape(n, rows, channels).sum(0), precision=EXACT)[0]


def row(b: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """(channels,) broadcast to (batch, *space, channels)."""
    n, rows, channels = _shape(shape)
    spread = jnp.matmul(jnp.ones((rows, 1), b.dtype), b[None], precision=EXACT)
    return jnp.broadcast_to(spread, (n, rows, channels)).reshape(shape)


def _shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Parts, rows of each, channels."""
    rows = math.prod(shape[:-1])
    n = max(k for k in range(1, _PARTS + 1) if rows % k == 0)
    return n, rows // n, shape[-1]
