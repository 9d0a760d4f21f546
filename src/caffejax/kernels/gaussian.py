"""Gaussian filters, exact: sums over all points, weighted by their distance in some space of features."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from .host_constant import table

_BLOCK = 2**24  # weights at a time


def gaussian_filter(x: jax.Array, features: jax.Array) -> jax.Array:
    """Sum x, (points, channels), for each point over all points, by exp(-d**2 / 2), d between features (points, n).

    The weights are never held, but computed by blocks, and again for the gradient.
    """
    points, n = features.shape
    rows = max(1, min(points, _BLOCK // points))
    blocks = -(-points // rows)
    padded = jnp.pad(features, ((0, blocks * rows - points), (0, 0))).reshape(blocks, rows, n)

    @jax.checkpoint
    def block(some: jax.Array) -> jax.Array:
        square = sum(jnp.square(some[:, k, None] - features[:, k]) for k in range(n))
        return jnp.exp(-square / 2) @ x

    return jax.lax.map(block, padded).reshape(blocks * rows, -1)[:points]


def plane_filter(x: jax.Array, deviation: float) -> jax.Array:
    """Sum (..., height, width) for each pixel over all, by exp(-d**2 / 2), d in units of `deviation` pixels."""
    for axis in (-2, -1):
        n = x.shape[axis]
        weights = table(partial(_weights, n, deviation), (n, n), x.dtype)
        x = jnp.moveaxis(jnp.tensordot(x, weights, (axis, 0)), -1, axis)
    return x


def _weights(n: int, deviation: float) -> np.ndarray:
    at = np.arange(n) / deviation
    return np.exp(-np.square(at[:, None] - at) / 2)
