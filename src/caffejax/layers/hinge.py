"""HingeLoss: one class against all others."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from ..errors import require
from .axes import four_axes
from .context import Context
from .dtypes import promote
from .loss import classes_of_rows, nan_if_unlabelled, own_classes, require_one_batch
from .registry import register
from .types import Gradient, Indices, LayerType, Signature, Traced


def hinge_loss(ctx: Context, scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Per example, the sum of max(0, 1 + s) over other classes' scores and max(0, 1 - s) for its own; the mean.

    With norm L2 the terms are squared. Exactly on the margin the gradient is 0.
    """
    sign, violation = _violations(scores, labels)
    inside = jnp.where(violation > 0, violation, 0)
    return nan_if_unlabelled(sign < 0, jnp.sum(jnp.square(inside) if _squared(ctx) else inside) / scores.shape[0])


def hinge_loss_backward(
    ctx: Context, scores: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    sign, violation = _violations(scores, labels)
    slope = 2 * jnp.maximum(violation, 0) if _squared(ctx) else (violation > 0).astype(violation.dtype)
    return (dy / scores.shape[0] * sign * slope).reshape(scores.shape), None


register(
    LayerType(
        Signature("HingeLoss", bottoms=2, param="hinge_loss_param", loss=True),
        Traced(hinge_loss),
        Gradient(hinge_loss_backward, indices=Indices((1,), classes_of_rows), exempt_from_force_backward=(1,)),
    )
)


def _squared(ctx: Context) -> bool:
    return bool(ctx.param.norm == ctx.param.L2)


def _violations(scores: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return -1 for each example's own class, else 1; and 1 + that times the score. Both (batch, classes)."""
    four_axes(scores.shape)
    require_one_batch(scores.shape, labels.shape)
    require(
        math.prod(labels.shape) == labels.shape[0],
        f"needs one label per example, not labels of shape {labels.shape}",
    )
    rows = promote(scores).reshape(scores.shape[0], -1)
    own = own_classes(labels, rows.shape)
    sign = jnp.where(own, -1, 1).astype(rows.dtype)
    return sign, 1 + sign * rows
