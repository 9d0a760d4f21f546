"""Reduction: sums over the last axes."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from ..errors import require
from . import across
from .axes import canonical_axis
from .context import Context, Shape
from .dtypes import promote
from .registry import register
from .types import Gradient, LayerType, Signature, Traced


def reduction(ctx: Context, x: jax.Array) -> jax.Array:
    """`coeff` times the sum, sum of |x|, sum of squares or mean over `axis` and all axes after it.

    The gradient of |x| at 0 is 0.
    """
    rows = _rows(ctx, x)
    match _operation(ctx):
        case "SUM":
            y = rows.sum(-1)
        case "ASUM":
            y = (jnp.sign(rows) * rows).sum(-1)
        case "SUMSQ":
            y = jnp.square(rows).sum(-1)
        case _:
            y = rows.mean(-1)
    return (_coefficient(ctx, x.shape) * y).astype(x.dtype)


def reduction_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    rows = _rows(ctx, x)
    slope = {
        "SUM": jnp.ones_like,
        "ASUM": jnp.sign,
        "SUMSQ": lambda r: 2 * r,
        "MEAN": lambda r: jnp.full_like(r, 1 / r.shape[-1]),
    }[_operation(ctx)](rows)
    return (_coefficient(ctx, x.shape) * promote(dy)[..., None] * slope).reshape(x.shape)


register(LayerType(Signature("Reduction", param="reduction_param"), Traced(reduction), Gradient(reduction_backward)))


def _operation(ctx: Context) -> str:
    operation = str(ctx.param.ReductionOp.Name(ctx.param.operation))
    require(operation in ("SUM", "ASUM", "SUMSQ", "MEAN"), f"operation {operation} is not supported")
    return operation


def _coefficient(ctx: Context, shape: Shape) -> float:
    """Return what the sum over the device's own numbers is multiplied by."""
    of_batch = canonical_axis(ctx.param.axis, shape) == 0 and _operation(ctx) != "MEAN"
    return float(ctx.param.coeff) * (across.devices(ctx) if of_batch else 1)


def _rows(ctx: Context, x: jax.Array) -> jax.Array:
    axis = canonical_axis(ctx.param.axis, x.shape)
    return promote(x).reshape(*x.shape[:axis], math.prod(x.shape[axis:]))
