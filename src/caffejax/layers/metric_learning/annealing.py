"""Numbers that change with the forward passes done, which a layer counts in a piece of state."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ..context import ParamSpec


def passes(start: int) -> ParamSpec:
    """Declare the count of passes, from `start` on."""
    return ParamSpec((1,), learnable=False, persistent=False, value=np.array([start], np.float32))


def next_pass(count: jax.Array) -> jax.Array:
    """Return the count with one pass more."""
    return jax.lax.stop_gradient(count) + 1


def annealed(base: float, gamma: float, power: float, count: jax.Array) -> jax.Array:
    """Return base * (1 + gamma * count) ^ -power."""
    return base * jnp.power(1 + gamma * count, -power)
