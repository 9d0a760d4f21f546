"""Between Caffe's order of axes (batch, channels, space) and channels last."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint


def channels_last(x: jax.Array) -> jax.Array:
    """(batch, channels, *space) to (batch, *space, channels)."""
    return jnp.moveaxis(x, 1, -1)


def channels_first(x: jax.Array) -> jax.Array:
    """(batch, *space, channels) to (batch, channels, *space)."""
    return jnp.moveaxis(x, -1, 1)


def kept_last(x: jax.Array) -> jax.Array:
    """`x` in Caffe's order, with the channels last in memory.

    XLA finds that by itself beside matrix products and convolutions. Nothing is fused across this.
    """
    return with_layout_constraint(x, Layout(major_to_minor=(0, *range(2, x.ndim), 1)))
