"""The dtype policy: in which floats layers compute.

Everything is float32, except where the precision of a net allows less:

- float32: products and convolutions of float32 are just that, also where JAX's default is less (TF32 on GPUs,
  bfloat16 on TPUs);
- tf32: their factors may be rounded to TF32's 10 bits where the platform has it; on a CPU they are not;
- bfloat16: layer types that say so compute in bfloat16, each in one of the ways of `DtypePolicy`:

      float32   computes in float32 what its bottoms hold. The default: losses, metrics, indices.
      bottoms   keeps its bottoms' type. It sums in float32, and its blobs are float32.
      products  multiplies in bfloat16: its bottoms and its blobs of several axes, rounded; vectors (biases) stay
                float32.

Parameters and their gradients, statistics, losses and what leaves the net are float32 in each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import jax
import jax.numpy as jnp

from ..kernels.channel_reductions import promote as promote
from .context import Context

_PRODUCTS = {"float32": "float32", "tf32": "tensorfloat32", "bfloat16": "float32"}


def matmul_precision(ctx: Context) -> AbstractContextManager[None]:
    """Trace products and convolutions of float32, while it lasts, as the net's precision has them.

    Their gradients by autodiff follow them, wherever those are taken.
    """
    return jax.default_matmul_precision(_PRODUCTS[ctx.run.precision])


def cast_inputs(
    ctx: Context, blobs: Sequence[jax.Array], bottoms: Sequence[jax.Array]
) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
    """Cast a layer's blobs and bottoms as its dtype policy says; gradients come back in the dtypes given."""
    if ctx.run.precision != "bfloat16" or ctx.type.traits.dtype_policy == "bottoms":
        return tuple(blobs), tuple(bottoms)
    if ctx.type.traits.dtype_policy == "float32":
        return tuple(blobs), tuple(map(to_float32, bottoms))
    return tuple(_narrow(b) if b.ndim > 1 else b for b in blobs), tuple(map(_narrow, bottoms))


def to_float32(x: jax.Array) -> jax.Array:
    """Make bfloat16 float32; leave other dtypes."""
    return x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x


def _narrow(x: jax.Array) -> jax.Array:
    return x.astype(jnp.bfloat16) if jnp.issubdtype(x.dtype, jnp.floating) else x
