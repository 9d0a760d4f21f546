"""Samples of the places of a map, as many as the data says."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def highest(scores: jax.Array, among: jax.Array, count: jax.Array) -> jax.Array:
    """Return which are the `count` highest of each row; of equal scores the last comes first.

    Args:
        scores: (rows, n).
        among: (rows, n), False for places that take no part.
        count: (rows,).
    """
    falling = jnp.argsort(jnp.flip(jnp.where(among, -scores, jnp.inf), 1), axis=1, stable=True)
    rank = jnp.flip(jnp.argsort(falling, axis=1), 1)
    return among & (rank < count[:, None])


def drawn(key: jax.Array, among: jax.Array, count: jax.Array) -> jax.Array:
    """Return which `count` of each row are drawn at random; all if there are no more.

    Args:
        key: a random key.
        among: (rows, n), False for places that take no part.
        count: (rows,).
    """
    return highest(jax.random.uniform(key, among.shape), among, count)
