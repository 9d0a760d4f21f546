"""Arrays of one number: JAX compiles a program for each shape of them, which takes longer than all else about them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .compiling import nothing_traced, on_cpu


def filled(shape: tuple[int, ...], value: float, dtype: Any = jnp.float32) -> jax.Array:
    """Return an array of one number; where it is to lie on the CPU, by writing it there."""
    if nothing_traced() and on_cpu():
        return jax.device_put(np.full(shape, value, dtype))
    return jnp.full(shape, value, dtype)


def zeros_like(array: Any) -> jax.Array:
    """Return zeros of the array's shape and type, which lie as it does."""
    concrete = isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer)
    if not (concrete and nothing_traced() and len(array.sharding.device_set) == 1 and on_cpu(array)):
        return jnp.zeros_like(array)
    zeros = np.zeros(array.shape, array.dtype)
    return jax.device_put(zeros, array.sharding if array.committed else None)
