"""Numbers put at places of a plane, as Pooling's mask counts them: row by row, from 0."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ...errors import require
from ..context import Shape


def placed(x: jax.Array, mask: jax.Array, size: Shape) -> jax.Array:
    """Put each number of (num, channels, *) where the mask says, in planes of that size that are else 0.

    Of several at one place the last stays. A place outside of the plane makes all of it NaN.
    """
    require(x.shape == mask.shape, f"data and mask must have one shape: {x.shape} and {mask.shape}")
    cells = size[0] * size[1]

    def plane(values: jax.Array, at: jax.Array) -> jax.Array:
        known = (at >= 0) & (at < cells)
        order = jnp.arange(values.size, dtype=jnp.int32)
        last = jnp.full(cells, -1, jnp.int32).at[jnp.where(known, at, cells)].max(order, mode="drop")
        found = jnp.where(last >= 0, values[jnp.maximum(last, 0)], 0)
        return jnp.where(jnp.all(known), found, jnp.nan)

    top = jax.vmap(jax.vmap(plane))(_flat(x), _flat(mask).astype(jnp.int32))
    return top.reshape(*x.shape[:2], *size).astype(x.dtype)


def numbers_at(y: jax.Array, mask: jax.Array) -> jax.Array:
    """Return what `y` has at the mask's places, in the mask's shape; 0 for places outside."""
    pick = jax.vmap(
        jax.vmap(lambda values, at: values.at[jnp.where(at < 0, values.size, at)].get(mode="fill", fill_value=0))
    )
    return pick(_flat(y), _flat(mask).astype(jnp.int32)).reshape(mask.shape)


def _flat(x: jax.Array) -> jax.Array:
    return x.reshape(*x.shape[:2], x.shape[2] * x.shape[3])
