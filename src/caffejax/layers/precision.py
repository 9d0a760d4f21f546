"""In which floats layers compute.

Everything is float32 but for what a net's precision allows:

- float32: products and convolutions of float32 are just that, also where JAX's default is less (TF32 on GPUs,
  bfloat16 on TPUs);
- tf32: their factors may be rounded to TF32's 10 bits where the platform has it; on a CPU they are not;
- bfloat16: layer types that say so compute in bfloat16, each in one of the ways of `Floats`.

Parameters and their gradients, statistics, losses and what leaves the net are float32 in each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from .context import Context

Floats = Literal["float32", "bottoms", "products"]
"""What a layer type does in a net of bfloat16:

float32: computes in float32 what its bottoms hold. What nobody said more about: losses, figures, indices, user's own.
bottoms: keeps its bottoms' type. It sums in float32, and its blobs are float32.
products: multiplies in bfloat16: its bottoms and its blobs of several axes, rounded; vectors (biases) stay float32.
"""

_PRODUCTS = {"float32": "float32", "tf32": "tensorfloat32", "bfloat16": "float32"}


def wide(x: jax.Array) -> jax.Array:
    """`x` in float32 or better: for sums, statistics and logarithms, which lose digits in less."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def products_of(ctx: Context) -> AbstractContextManager[None]:
    """While it lasts, products and convolutions of float32 are traced as the net's precision has them.

    Their gradients by autodiff follow them, wherever those are taken.
    """
    return jax.default_matmul_precision(_PRODUCTS[ctx.precision])


def rounded(
    ctx: Context, blobs: Sequence[jax.Array], bottoms: Sequence[jax.Array]
) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
    """A layer's blobs and bottoms in the floats that it computes in; gradients come back in the floats given."""
    if ctx.precision != "bfloat16" or ctx.type.floats == "bottoms":
        return tuple(blobs), tuple(bottoms)
    if ctx.type.floats == "float32":
        return tuple(blobs), tuple(map(unrounded, bottoms))
    return tuple(_narrow(b) if b.ndim > 1 else b for b in blobs), tuple(map(_narrow, bottoms))


def unrounded(x: jax.Array) -> jax.Array:
    """`x`, bfloat16 as float32."""
    return x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x


def _narrow(x: jax.Array) -> jax.Array:
    return x.astype(jnp.bfloat16) if jnp.issubdtype(x.dtype, jnp.floating) else x
