"""SENet's Axpy, which scales channels and adds."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote


@register("Axpy", bottoms=3, row_wise=True, dtype_policy="bottoms", spatial_map="same", origin="SENet")
def axpy(a: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """Return a * x + y, where `a` is a factor for each channel of each item (SENet's axpy_layer.cpp).

    Bottoms: `a` (N, C) or (N, C, 1, 1), x (N, C, ...) and y with the shape of x. The top has the shape of x.
    """
    return (_broadcast_factors(a, x, y) * x + y).astype(x.dtype)


@axpy.backward
def axpy_backward(
    a: jax.Array, x: jax.Array, addend: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    da = jnp.sum(promote(dy) * x, axis=tuple(range(2, x.ndim)))
    return da.reshape(a.shape), _broadcast_factors(a, x, addend) * dy, dy


def _broadcast_factors(a: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    require(len(x.shape) >= 2, f"bottom 1 needs a channel axis (axis 1), but has shape {x.shape}")
    require(x.shape == y.shape, f"bottoms 1 and 2 must have equal shapes, not {x.shape} and {y.shape}")
    require(
        a.shape[:2] == x.shape[:2] and all(n == 1 for n in a.shape[2:]),
        f"bottom 0 must hold a factor for each channel, {x.shape[:2]}, but has shape {a.shape}",
    )
    return a.reshape(*x.shape[:2], *(1,) * (x.ndim - 2))
