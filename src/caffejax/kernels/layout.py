"""Between Caffe's order of axes (batch, channels, space) and channels last."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint


def channels_last(x: jax.Array) -> jax.Array:
    """Transpose (batch, channels, *space) to (batch, *space, channels); fewer axes stay."""
    return jnp.moveaxis(x, 1, -1) if x.ndim > 2 else x


def channels_first(x: jax.Array) -> jax.Array:
    """Transpose (batch, *space, channels) to (batch, channels, *space); fewer axes stay."""
    return jnp.moveaxis(x, -1, 1) if x.ndim > 2 else x


def materialise(x: jax.Array) -> jax.Array:
    """Have XLA write `x`, such as an array with channels last, to memory as it is, in the order of its axes.

    XLA finds the layout by itself beside matrix products and convolutions. Nothing is fused across this: what makes
    `x` is not computed again for each place that reads it.
    """
    return with_layout_constraint(x, Layout(major_to_minor=tuple(range(x.ndim))))


def materialise_channels_last(x: jax.Array) -> jax.Array:
    """Materialise an array in Caffe's order with its channels last in memory."""
    return channels_first(materialise(channels_last(x)))


def as_xla_likes(x: jax.Array) -> jax.Array:
    """Leave the layout of `x` to XLA: in place of `materialise`."""
    return x
