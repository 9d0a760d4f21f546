"""Weights whose rows the forward pass scales to length 1."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .dtypes import promote


def unit_rows(weight: jax.Array) -> jax.Array:
    """Return the weight with rows of length 1."""
    return _scaled(weight, 0.0)


def nearly_unit_rows(weight: jax.Array) -> jax.Array:
    """Return the weight with rows of length 1, but for 1e-6 that is added to their squares."""
    return _scaled(weight, 1e-6)


def _scaled(weight: jax.Array, more: float) -> jax.Array:
    squares = jnp.sum(jnp.square(promote(weight)), axis=1, keepdims=True)
    return (weight / jnp.sqrt(squares + more)).astype(weight.dtype)
