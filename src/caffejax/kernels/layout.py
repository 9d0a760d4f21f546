"""Between Caffe's order of axes (batch, channels, space) and channels last."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def channels_last(x: jax.Array) -> jax.Array:
    """(batch, channels, *space) to (batch, *space, channels)."""
    return jnp.moveaxis(x, 1, -1)


def channels_first(x: jax.Array) -> jax.Array:
    """(batch, *space, channels) to (batch, channels, *space)."""
    return jnp.moveaxis(x, -1, 1)
