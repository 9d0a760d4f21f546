"""Embed: a row of a table for each index."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..errors import require
from .context import Context, ParamSpec
from .registry import register
from .types import Gradient, Indices, LayerType, Signature, Traced
from .weights import weight_and_bias

Arrays = tuple[jax.Array, ...]


def embed(ctx: Context, blobs: Arrays, index: jax.Array) -> jax.Array:
    """The weight's rows that the bottom names, plus a bias: shape (...) to (..., num_output).

    Indices are truncated to whole numbers. One outside 0 .. input_dim - 1 gives a row of NaN.
    """
    weight, *bias = blobs
    at = index.astype(jnp.int32)
    at = jnp.where(at < 0, weight.shape[0], at)  # negative indices would count from the end
    rows = jnp.take(weight, at, axis=0, mode="fill", fill_value=jnp.nan)
    return rows + bias[0] if bias else rows


def embed_classes(ctx: Context, index: Any) -> int:
    return int(ctx.param.input_dim)


def embed_params(ctx: Context, index: Any) -> list[ParamSpec]:
    p = ctx.param
    require(p.num_output > 0, "num_output must be positive")
    require(p.input_dim > 0, "input_dim must be positive")
    return weight_and_bias(p, (p.input_dim, p.num_output))


def embed_backward(
    ctx: Context, blobs: Arrays, index: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[Arrays, None]:
    weight, *bias = blobs
    rows = dy.reshape(-1, weight.shape[1])
    d_weight = jax.ops.segment_sum(rows, index.astype(jnp.int32).ravel(), weight.shape[0])
    return (d_weight, *(rows.sum(0) for _ in bias)), None


register(
    LayerType(
        Signature("Embed", param="embed_param"),
        Traced(embed, params=embed_params),
        Gradient(embed_backward, indices=Indices((0,), classes=embed_classes, gathers=True)),
    )
)
