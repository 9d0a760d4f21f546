"""Losses by distances and margins: EuclideanLoss, ContrastiveLoss, HingeLoss, and distances of forks."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from ..errors import require
from . import cross_replica
from .context import Context
from .dtypes import promote
from .helpers import four_axes
from .loss import classes_of_rows, label_mask, nan_if_unlabelled, require_one_batch
from .registry import register
from .types import Gradient, Indices, LayerDocs, LayerTraits, LayerType, Signature, Traced

_SOFTENING = 1e-4  # Caffe divides by the distance plus this


def euclidean_loss(ctx: Context, a: jax.Array, b: jax.Array) -> jax.Array:
    """Sum of squared differences over twice the batch size; a scalar (euclidean_loss_layer.cpp).

    Bottoms: (N, ...), with the same number of elements; shapes may differ after axis 0 up to 4 axes. Bottoms with more
    axes, as in C3D, must have one shape; BVLC Caffe refuses them.
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
    """Return a - b as (batch, rest)."""
    require(
        a.shape == b.shape or len(a.shape) <= 4,
        f"bottoms of more than 4 axes must have equal shapes: bottom 1 must be {a.shape}, not {b.shape}",
    )
    require_one_batch(a.shape, b.shape)
    require(
        math.prod(a.shape[1:]) == math.prod(b.shape[1:]),
        f"inputs must have the same dimension after the first axis: {a.shape} and {b.shape}",
    )
    return (promote(a) - promote(b.reshape(a.shape))).reshape(a.shape[0], -1)


def contrastive_loss(ctx: Context, a: jax.Array, b: jax.Array, similar: jax.Array) -> jax.Array:
    """Half the mean over pairs of d**2 if similar, else max(margin - d, 0)**2; d is their distance. A scalar.

    Bottoms: features a and b, (N, C), and `similar`, (N,), nonzero for similar pairs. Caffe's rule:
    contrastive_loss_layer.cpp. With `legacy_version` dissimilar pairs contribute max(margin - d**2, 0). The gradient
    divides by d + 1e-4 instead of d.
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
    """Return differences (pairs, channels), the mask of similar pairs, squared distances, and margin - distance."""
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


def euclidean_distance(ctx: Context, a: jax.Array, b: jax.Array) -> jax.Array:
    """Mean distance between the points of two bottoms (N, 3 * points), which have 3 coordinates each; (1, 1, 1, 1)."""
    difference = _weighted_difference(a, b)
    require(difference.shape[1] % 3 == 0, f"rows must hold points of 3 numbers each, not {difference.shape[1]} numbers")
    points = difference.reshape(a.shape[0], -1, 3)
    distance = cross_replica.pmean(ctx, jnp.mean(jnp.sqrt(jnp.sum(jnp.square(points), axis=2))))
    return distance.reshape(1, 1, 1, 1).astype(a.dtype)


register(
    LayerType(
        Signature("EuclideanDistance", bottoms=2),
        Traced(euclidean_distance),
        Gradient(exists=False),
        docs=LayerDocs(origin="cbfinn/caffe"),
    )
)


def weighted_euclidean_loss(ctx: Context, a: jax.Array, b: jax.Array, weights: jax.Array) -> jax.Array:
    """Sum of d' P d over twice the batch size, where d is the difference of two rows; a scalar.

    Bottoms: a and b, (N, K), and a matrix P for each row, (N, K, K) or (N, K * K). The gradient of a is P d over the
    batch size, and of b its negative, as if P were symmetric.
    """
    difference = _weighted_difference(a, b)
    return jnp.sum(difference * _apply_weights(difference, weights)) / (2 * max(a.shape[0], 1))


def weighted_euclidean_loss_backward(
    ctx: Context, a: jax.Array, b: jax.Array, weights: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    difference, share = _weighted_difference(a, b), dy / max(a.shape[0], 1)
    diff = share * _apply_weights(difference, weights)
    d_weights = share / 2 * difference[:, :, None] * difference[:, None, :]
    return diff.reshape(a.shape), -diff.reshape(b.shape), d_weights.reshape(weights.shape)


register(
    LayerType(
        Signature("WeightedEuclideanLoss", bottoms=3, loss=True),
        Traced(weighted_euclidean_loss),
        Gradient(weighted_euclidean_loss_backward, overrides_autodiff=True),
        docs=LayerDocs(origin="cbfinn/caffe"),
    )
)


def _weighted_difference(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return a - b as (batch, rest)."""
    require_one_batch(a.shape, b.shape)
    require(
        math.prod(a.shape[1:]) == math.prod(b.shape[1:]),
        f"bottoms 0 and 1 must have rows of the same length: {a.shape} and {b.shape}",
    )
    return (promote(a) - promote(b.reshape(a.shape))).reshape(a.shape[0], math.prod(a.shape[1:]))


def _apply_weights(difference: jax.Array, weights: jax.Array) -> jax.Array:
    rows, n = difference.shape
    require(
        weights.shape[:1] == (rows,) and math.prod(weights.shape[1:]) == n * n,
        f"bottom 2 must hold a matrix of {n} x {n} for each row, not have shape {weights.shape}",
    )
    return jnp.einsum("bij,bj->bi", promote(weights).reshape(rows, n, n), difference)


def hinge_loss(ctx: Context, scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean over examples of the sum over classes of max(0, 1 - t * score), t = 1 for the label, else -1; a scalar.

    Bottoms: scores (N, classes) and labels (N,). Caffe's rule: hinge_loss_layer.cpp. With `norm: L2` the terms are
    squared. Exactly on the margin the gradient is 0. A label outside 0 .. classes - 1 makes the loss NaN.
    """
    sign, violation = _violations(scores, labels)
    inside = jnp.where(violation > 0, violation, 0)
    return nan_if_unlabelled(sign < 0, jnp.sum(jnp.square(inside) if _is_squared(ctx) else inside) / scores.shape[0])


def hinge_loss_backward(
    ctx: Context, scores: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    sign, violation = _violations(scores, labels)
    slope = 2 * jnp.maximum(violation, 0) if _is_squared(ctx) else (violation > 0).astype(violation.dtype)
    return (dy / scores.shape[0] * sign * slope).reshape(scores.shape), None


register(
    LayerType(
        Signature("HingeLoss", bottoms=2, param="hinge_loss_param", loss=True),
        Traced(hinge_loss),
        Gradient(hinge_loss_backward, indices=Indices((1,), classes_of_rows), exempt_from_force_backward=(1,)),
    )
)


def _is_squared(ctx: Context) -> bool:
    return bool(ctx.param.norm == ctx.param.L2)


def _violations(scores: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the sign, -1 at the label of each example and else 1, and 1 + sign * score; both (batch, classes)."""
    four_axes(scores.shape)
    require_one_batch(scores.shape, labels.shape)
    require(
        math.prod(labels.shape) == labels.shape[0],
        f"needs one label per example, not labels of shape {labels.shape}",
    )
    rows = promote(scores).reshape(scores.shape[0], -1)
    is_label = label_mask(labels, rows.shape)
    sign = jnp.where(is_label, -1, 1).astype(rows.dtype)
    return sign, 1 + sign * rows
