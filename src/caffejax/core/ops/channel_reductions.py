"""Sums over all axes except the channel axis, and broadcasts along the channel axis."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

Arrays = tuple[jax.Array, ...]


class Channels:
    """The channel axis of arrays (batch, channels, *space), with the reductions and broadcasts that depend on it.

    `cpu` has a subclass for arrays with the channels last.
    """

    def sums(self, x: jax.Array) -> jax.Array:
        """Return the sum of each channel, (channels,)."""
        return jnp.sum(x, (0, *range(2, x.ndim)))

    def broadcast(self, b: jax.Array, x: jax.Array) -> jax.Array:
        """Return `b`, (channels,), in a shape that broadcasts against `x` along the channel axis."""
        return b.reshape(-1, *(1,) * (x.ndim - 2))

    def moments(
        self, x: jax.Array, mean_estimate: jax.Array, sum_over_devices: Callable[..., Arrays], num_devices: int
    ) -> Arrays:
        """Return mean and variance of each channel, (channels,) each, in one pass over `x - mean_estimate`."""
        mean_estimate = mean_estimate.astype(x.dtype)
        offsets = x - self.broadcast(mean_estimate, x)
        count = num_devices * math.prod((x.shape[0], *x.shape[2:]))
        sums = sum_over_devices(self.sums(offsets), self.sums(jnp.square(offsets)))
        mean_offset, square_mean = (s / count for s in sums)
        return mean_estimate + mean_offset, jnp.maximum(square_mean - jnp.square(mean_offset), 0)

    def normalization_sums(self, x_hat: jax.Array, masked_dy: jax.Array, arguments: Arrays, relu: bool) -> Arrays:
        """Return the diffs of factor and bias of a normalization, (channels,) each.

        Args:
            x_hat: the standardized input.
            masked_dy: the diff of the output, 0 where a ReLU's result is not positive.
            arguments: what these two are computed from, for a form that computes them and the sums in one pass.
            relu: whether a ReLU follows.
        """
        return self.sums(masked_dy * x_hat), self.sums(masked_dy)


CHANNELS_FIRST = Channels()


def promote(x: jax.Array) -> jax.Array:
    """Convert an array to at least float32, for sums, statistics and logarithms."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
