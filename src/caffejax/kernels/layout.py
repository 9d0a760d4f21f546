"""Between Caffe's order of axes (batch, channels, space) and channels last."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint


def channels_last(x: jax.Array) -> jax.Array:
    """(batch, channels, *space) to (batch, *space, channels); fewer axes stay."""
    return jnp.moveaxis(x, 1, -1) if x.ndim > 2 else x


def channels_first(x: jax.Array) -> jax.Array:
    """(batch, *space, channels) to (batch, channels, *space); fewer axes stay."""
    return jnp.moveaxis(x, -1, 1) if x.ndim > 2 else x


def kept(x: jax.Array) -> jax.Array:
    """`x`, with channels last, written to memory as it is.

    XLA finds the layout by itself beside matrix products and convolutions. Nothing is fused across this: what makes
    `x` is not computed again for each place that reads it.
    """
    return with_layout_constraint(x, Layout(major_to_minor=tuple(range(x.ndim))))


def kept_last(x: jax.Array) -> jax.Array:
    """`kept` for an array in Caffe's order: with the channels last in memory."""
    return channels_first(kept(channels_last(x)))
