"""In which floats layers compute."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def wide(x: jax.Array) -> jax.Array:
    """`x` in float32 or better: for sums, statistics and logarithms, which lose digits in less."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
