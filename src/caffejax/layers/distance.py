"""Losses by distance: EuclideanLoss and ContrastiveLoss."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from ..errors import require
from .axes import four_axes
from .context import Context
from .dtypes import promote
from .loss import require_one_batch
from .registry import register
from .types import Gradient, Indices, LayerTraits, LayerType, Signature, Traced

_SOFTENING = 1e-4  # Caffe divides by the distance plus this


def euclidean_loss(ctx: Context, a: jax.Array, b: jax.Array) -> jax.Array:
    """Sum of squared differences over twice the batch size. Shapes may differ beyond the first axis.

    More than 4 axes are C3D's, and then both shapes are one; BVLC Caffe refuses them.
    """
    return jnp.sum(jnp.square(_difference(a, b))) / (2 * a.shape[0])


def euclidean_loss_backward(
    ctx: Context, a: jax.Array, b: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    diff = dy / a.shape[0] * _difference(a, b)
    return diff.reshape(a.shape), -diff.reshape(b.shape)


register(
    LayerType(
        Signature("EuclideanLoss", bottoms=2, loss=True),
        Traced(euclidean_loss),
        Gradient(euclidean_loss_backward),
        LayerTraits(accepts_integers=True),
    )
)


def _difference(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return a - b, shape (batch, the rest)."""
    require(
        a.shape == b.shape or len(a.shape) <= 4,
        f"bottoms of more than 4 axes must have one shape: bottom 1 must be {a.shape}, not {b.shape}",
    )
    require_one_batch(a.shape, b.shape)
    require(
        math.prod(a.shape[1:]) == math.prod(b.shape[1:]),
        f"inputs must have the same dimension after the first axis: {a.shape} and {b.shape}",
    )
    return (promote(a) - promote(b.reshape(a.shape))).reshape(a.shape[0], -1)


def contrastive_loss(ctx: Context, a: jax.Array, b: jax.Array, similar: jax.Array) -> jax.Array:
    """Half the mean, over pairs of rows, of d**2 where similar, else of max(margin - d, 0)**2.

    The legacy version takes max(margin - d**2, 0) for the latter. The gradient divides by d + 1e-4, not d.
    """
    _, alike, squared, gap = _pairs(ctx, a, b, similar)
    apart = jnp.maximum(gap, 0)
    apart = apart if ctx.param.legacy_version else jnp.square(apart)
    return jnp.sum(jnp.where(alike, squared, apart)) / (2 * a.shape[0])


def contrastive_loss_backward(
    ctx: Context, a: jax.Array, b: jax.Array, similar: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array, None]:
    diff, alike, squared, gap = _pairs(ctx, a, b, similar)
    slope = 1.0 if ctx.param.legacy_version else gap / (jnp.sqrt(squared) + _SOFTENING)
    factor = dy / a.shape[0] * jnp.where(alike, 1, jnp.where(gap > 0, -slope, 0))
    da = factor[:, None] * diff
    return da.reshape(a.shape), -da.reshape(b.shape), None


register(
    LayerType(
        Signature("ContrastiveLoss", bottoms=3, param="contrastive_loss_param", loss=True),
        Traced(contrastive_loss),
        Gradient(
            contrastive_loss_backward, overrides_autodiff=True, indices=Indices((2,)), exempt_from_force_backward=(2,)
        ),
    )
)


def _pairs(
    ctx: Context, a: jax.Array, b: jax.Array, similar: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return differences (pairs, channels), which pairs are alike, squared distances, and the gap to the margin."""
    require_one_batch(a.shape, b.shape)
    for i, x in enumerate((a, b)):
        require(
            four_axes(x.shape, f"bottom {i}")[2:] == (1, 1),
            f"bottom {i} must be pairs x channels: height and width are not 1 in {x.shape}",
        )
    require(a.size == b.size, f"bottoms 0 and 1 must have the same channels: {a.shape} and {b.shape}")
    labels = four_axes(similar.shape, "bottom 2")
    require(
        labels == (a.shape[0], 1, 1, 1),
        f"bottom 2 must hold one number for each of the {a.shape[0]} pairs, not have shape {similar.shape}",
    )
    diff = promote(a).reshape(a.shape[0], -1) - promote(b).reshape(a.shape[0], -1)
    squared = jnp.sum(jnp.square(diff), axis=1)
    distance = squared if ctx.param.legacy_version else jnp.sqrt(squared)
    return diff, similar.astype(jnp.int32).ravel() != 0, squared, ctx.param.margin - distance
