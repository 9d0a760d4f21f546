"""The dtype policy: the floating-point dtypes in which layers compute.

Everything is float32, except where the precision of a net allows less:

- float32: products and convolutions use full float32, even where JAX's default is less (TF32 on GPUs, bfloat16 on
  TPUs);
- tf32: the factors of products may be rounded to the 10-bit mantissa of TF32 if the platform supports it (CPUs do not);
- bfloat16: layer types compute according to their `DtypePolicy`:

      float32   Bottoms are cast to float32. The default: losses, metrics, indices.
      bottoms   Bottoms keep their dtype. Sums are in float32, and blobs are float32.
      products  Products are in bfloat16: bottoms and blobs with several axes are rounded; vectors (biases) stay
          float32.

Parameters and their gradients, statistics, losses and outputs of the net are always float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import jax
import jax.numpy as jnp
from jax import Array

from ..ops.channels import promote as promote
from .context import Context

_MATMUL_PRECISIONS = {"float32": "float32", "tf32": "tensorfloat32", "bfloat16": "float32"}


def matmul_precision(ctx: Context) -> AbstractContextManager[None]:
    """Return a context manager that applies the net's precision to float32 products and convolutions traced within it.

    Their gradients by autodiff have the same precision, even if the gradients are traced outside of the `with` block.
    """
    return jax.default_matmul_precision(_MATMUL_PRECISIONS[ctx.config.precision])


def cast_inputs(
    ctx: Context, blobs: Sequence[Array], bottoms: Sequence[Array]
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Cast a layer's blobs and bottoms according to its dtype policy. Gradients have the original dtypes."""
    if ctx.config.precision != "bfloat16" or ctx.type.traits.dtype_policy == "bottoms":
        return tuple(blobs), tuple(bottoms)
    if ctx.type.traits.dtype_policy == "float32":
        return tuple(blobs), tuple(map(to_float32, bottoms))
    return tuple(_to_bfloat16(b) if b.ndim > 1 else b for b in blobs), tuple(map(_to_bfloat16, bottoms))


def to_float32(x: Array) -> Array:
    """Cast bfloat16 to float32; return other dtypes unchanged."""
    return x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x


def _to_bfloat16(x: Array) -> Array:
    return x.astype(jnp.bfloat16) if jnp.issubdtype(x.dtype, jnp.floating) else x
