"""Sequences without their gaps."""

from __future__ import annotations

import jax
import jax.numpy as jnp

GAP = -1


def compacted(numbers: jax.Array, kept: jax.Array) -> jax.Array:
    """Return rows of the numbers (rows, places) that are kept, in their order, then `GAP`s."""
    order = jnp.argsort(~kept, axis=1, stable=True)
    return jnp.take_along_axis(jnp.where(kept, numbers, GAP), order, axis=1)
