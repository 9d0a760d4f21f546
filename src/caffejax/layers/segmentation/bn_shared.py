"""What both kinds of BN share: normalisation of a batch by itself, and blobs of 1 x channels x 1 x 1."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from ...kernels.affine import by_channel
from ...kernels.normalization import batch_normalized
from ...kernels.sums import FIRST
from ..context import Context, Shape
from ..dtypes import promote
from ..normalization import less_moved, statistics, synced_over

Arrays = tuple[jax.Array, ...]


def blob_shape(x: Any) -> Shape:
    require(len(x.shape) >= 2, f"needs a bottom with a channel axis (axis 1), not shape {x.shape}")
    return (1, x.shape[1], 1, 1)


def channels_of(blob: jax.Array) -> jax.Array:
    return blob.reshape(-1)


def scaled(ctx: Context, x: jax.Array, factor: jax.Array, bias: jax.Array) -> jax.Array:
    return by_channel(x, factor, bias, fast=ctx.fast).astype(x.dtype)


def normalized(
    ctx: Context, x: jax.Array, factor: jax.Array, bias: jax.Array, near: jax.Array, eps: float, *, relu: bool
) -> Arrays:
    """Return the top, and the batch's mean and variance; `near` is a guess at the mean."""
    if ctx.fast:
        guess = jax.lax.stop_gradient(promote(near))
        guess = jnp.where(jnp.isfinite(guess), guess, 0)
        how: Any = {"relu": relu, "axis_name": synced_over(ctx)}
        found: Arrays = batch_normalized(x, promote(factor), promote(bias), guess, eps, **how)
        return found
    mean, variance = statistics(ctx, x)
    y = (promote(x) - FIRST.along(mean, x)) / FIRST.along(jnp.sqrt(variance + eps), x)
    y = y * FIRST.along(factor, x) + FIRST.along(bias, x)
    return y.astype(x.dtype), jax.lax.stop_gradient(mean), jax.lax.stop_gradient(variance)


def normalized_diffs(
    ctx: Context, factor: jax.Array, x: jax.Array, dy: jax.Array, eps: float
) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
    """Return the diffs of factor and bias, and of the bottom, where the batch is normalised by itself."""
    mean, variance = statistics(ctx, x)
    deviation, dy = jnp.sqrt(variance + eps), promote(dy)
    normal = (promote(x) - FIRST.along(mean, x)) / FIRST.along(deviation, x)
    d_factor, d_bias = FIRST.sums(dy * normal), FIRST.sums(dy)
    dx = less_moved(ctx, dy, normal) * FIRST.along(channels_of(factor) / deviation, x)
    return (d_factor.reshape(factor.shape), d_bias.reshape(factor.shape)), dx
