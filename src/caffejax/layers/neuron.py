"""Neuron layers: one bottom, one top of the same shape, element by element."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..errors import require
from .registry import Context, register


@register("ReLU", param="relu_param")
def relu(ctx: Context, x: jax.Array) -> jax.Array:
    """x where positive, else negative_slope * x. At 0 the gradient is the slope."""
    return jnp.where(x > 0, x, ctx.param.negative_slope * x)


@relu.backward
def _(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * ((x > 0) + ctx.param.negative_slope * (x <= 0)).astype(dy.dtype)


@register("Dropout", param="dropout_param")
def dropout(ctx: Context, x: jax.Array) -> jax.Array:
    """In TRAIN, zero with probability dropout_ratio and the rest scaled up; the identity in TEST."""
    return x * _dropout_mask(ctx, x) if ctx.training else x


@dropout.backward
def _(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * _dropout_mask(ctx, x) if ctx.training else dy


def _dropout_mask(ctx: Context, x: jax.Array) -> jax.Array:
    ratio = ctx.param.dropout_ratio
    require(0 < ratio < 1, f"dropout_ratio must lie between 0 and 1, not be {ratio:g}")
    keep = jax.random.bernoulli(ctx.key, 1 - ratio, x.shape)
    return keep.astype(x.dtype) / (1 - ratio)
