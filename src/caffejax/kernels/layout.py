"""Conversion between Caffe's order of axes (batch, channels, *space) and channels last."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint


def channels_last(x: jax.Array) -> jax.Array:
    """Transpose (batch, channels, *space) to (batch, *space, channels); arrays of up to 2 axes are unchanged."""
    return jnp.moveaxis(x, 1, -1) if x.ndim > 2 else x


def channels_first(x: jax.Array) -> jax.Array:
    """Transpose (batch, *space, channels) to (batch, channels, *space); arrays of up to 2 axes are unchanged."""
    return jnp.moveaxis(x, -1, 1) if x.ndim > 2 else x


def materialise(x: jax.Array) -> jax.Array:
    """Make XLA write `x` to memory in the order of its axes, such as with channels last.

    Next to matrix products and convolutions XLA finds this layout by itself. It fuses nothing across this call, so `x`
    is not computed again by each of its readers.
    """
    return with_layout_constraint(x, Layout(major_to_minor=tuple(range(x.ndim))))


def materialise_channels_last(x: jax.Array) -> jax.Array:
    """Materialise an array in Caffe's order with its channels last in memory."""
    return channels_first(materialise(channels_last(x)))


def as_xla_likes(x: jax.Array) -> jax.Array:
    """Return `x` unchanged, instead of `materialise`: XLA chooses the layout."""
    return x
