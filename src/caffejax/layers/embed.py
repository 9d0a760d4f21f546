"""Embed: a row of a table for each index."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..errors import require
from .context import Blob, Context
from .registry import register

Arrays = tuple[jax.Array, ...]


@register("Embed", param="embed_param", index_bottoms=(0,))
def embed(ctx: Context, blobs: Arrays, index: jax.Array) -> jax.Array:
    """The weight's rows that the bottom names, plus a bias: shape (...) to (..., num_output).

    Indices are truncated to whole numbers. One outside 0 .. input_dim - 1 gives a row of NaN.
    """
    weight, *bias = blobs
    at = index.astype(jnp.int32)
    at = jnp.where(at < 0, weight.shape[0], at)  # negative indices would count from the end
    rows = jnp.take(weight, at, axis=0, mode="fill", fill_value=jnp.nan)
    return rows + bias[0] if bias else rows


@embed.indexed
def _(ctx: Context, index: Any) -> int:
    return int(ctx.param.input_dim)


@embed.blobs
def _(ctx: Context, index: Any) -> list[Blob]:
    p = ctx.param
    require(p.num_output > 0, "num_output must be positive")
    require(p.input_dim > 0, "input_dim must be positive")
    weight = Blob((p.input_dim, p.num_output), p.weight_filler)
    return [weight, Blob((p.num_output,), p.bias_filler)] if p.bias_term else [weight]


@embed.backward
def _(ctx: Context, blobs: Arrays, index: jax.Array, *, y: jax.Array, dy: jax.Array) -> tuple[Arrays, None]:
    weight, *bias = blobs
    rows = dy.reshape(-1, weight.shape[1])
    d_weight = jax.ops.segment_sum(rows, index.astype(jnp.int32).ravel(), weight.shape[0])
    return (d_weight, *(rows.sum(0) for _ in bias)), None
