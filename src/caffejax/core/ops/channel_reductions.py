"""Sums over all axes except the channel axis, and broadcasts along the channel axis.

The functions for CPUs take arrays with the channels last, as rows of channels. They are up to 20 times faster than
XLA's reduction, whose loop over the leading axes reads memory out of order. The rows are split into at most 8 parts,
which are added elementwise; XLA fuses this sum with the operation that computes the values. A foreign function, or a
matrix product with ones, then adds the remaining rows. `broadcast_channels` is the transpose of this product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from .implementations import cpu_form
from .platform_dispatch import Arrays, PlatformOp

_MAX_PARTS = 8  # XLA does not fuse a sum of more than 8 parts
_EXACT_PRECISION = jax.lax.Precision.HIGHEST  # these products compute sums, which must not be rounded to TF32


@dataclass(frozen=True)
class Channels:
    """The channel axis of arrays, with the reductions and broadcasts that depend on it.

    Attributes:
        is_last: whether arrays are (batch, *space, channels), for CPUs, instead of (batch, channels, *space).
    """

    is_last: bool

    def sums(self, x: jax.Array) -> jax.Array:
        """Return the sum of each channel, (channels,)."""
        return channel_sums(x) if self.is_last else jnp.sum(x, (0, *range(2, x.ndim)))

    def broadcast(self, b: jax.Array, x: jax.Array) -> jax.Array:
        """Return `b`, (channels,), in a shape that broadcasts against `x` along the channel axis."""
        return broadcast_channels(b, x.shape) if self.is_last else b.reshape(-1, *(1,) * (x.ndim - 2))


CHANNELS_FIRST, CHANNELS_LAST = Channels(is_last=False), Channels(is_last=True)


def promote(x: jax.Array) -> jax.Array:
    """Convert an array to at least float32, for sums, statistics and logarithms."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def channel_sums(x: jax.Array) -> jax.Array:
    """Return the sum of each channel of (batch, *space, channels), as (channels,), in a form that is fast on CPUs."""
    return _weighted_sums(x, 1)


def channel_means(x: jax.Array) -> jax.Array:
    """Return the mean of each channel of (batch, *space, channels), as (channels,), in a form that is fast on CPUs."""
    return _weighted_sums(x, x.shape[-1] / (x.size or 1))


def channel_moments(x: jax.Array) -> Arrays:
    """Return the mean and the variance of each channel of (batch, *space, channels), as (channels,), in a form that is
    fast on CPUs.
    """
    return PlatformOp(_compute_moments, cpu_form("channel_moments", _compute_moments), differentiable=False)(
        x.reshape(-1, x.shape[-1])
    )


def _compute_moments(x: jax.Array) -> Arrays:
    mean = channel_means(x)
    return mean, channel_means(jnp.square(x - broadcast_channels(mean, x.shape)))


def cell_sums(x: jax.Array) -> jax.Array:
    """Return the sums over the cells of (batch, cells, channels), as (batch, 1, channels), in a form that is fast on
    CPUs.
    """
    return jnp.matmul(jnp.ones((1, x.shape[1]), x.dtype), x, precision=_EXACT_PRECISION)


def broadcast_channels(b: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Broadcast `b`, (channels,), to `shape`, (batch, *space, channels), in a form that is fast on CPUs."""
    n, rows, channels = _split_rows(shape)
    part = jnp.matmul(jnp.ones((rows, 1), b.dtype), b[None], precision=_EXACT_PRECISION)
    return jnp.broadcast_to(part, (n, rows, channels)).reshape(shape)


def _weighted_sums(x: jax.Array, weight: float) -> jax.Array:
    n, rows, channels = _split_rows(x.shape)
    operation = PlatformOp(
        partial(_sum_by_product, weight=weight),
        cpu_form("row_sums", _sum_by_product, weight=weight),
        differentiable=False,
    )
    return operation(x.reshape(n, rows, channels).sum(0))[0]


def _sum_by_product(x: jax.Array, *, weight: float) -> tuple[jax.Array, ...]:
    return (jnp.matmul(jnp.full((1, len(x)), weight, x.dtype), x, precision=_EXACT_PRECISION)[0],)


def _split_rows(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return a shape `(parts, rows in each part, channels)` to which an array (*rows, channels) can be reshaped."""
    rows = math.prod(shape[:-1])
    n = max(k for k in range(1, _MAX_PARTS + 1) if rows % k == 0)
    return n, rows // n, shape[-1]
