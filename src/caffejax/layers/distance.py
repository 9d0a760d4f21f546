"""Losses by distances and margins: EuclideanLoss, ContrastiveLoss, HingeLoss, and distances of forks."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..errors import require
from . import cross_replica
from .context import Context
from .dtype_policy import promote
from .helpers import first_top, four_axes
from .loss import classes_of_rows, label_mask, nan_if_unlabelled, require_one_batch
from .registry import define_layer
from .types import Gradient, Indices, LayerDocs, LayerTraits, Signature, Traced

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


define_layer(
    Signature("EuclideanLoss", bottoms=2, loss=True),
    Traced(euclidean_loss),
    Gradient(euclidean_loss_backward),
    LayerTraits(accepts_integers=True),
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


def contrastive_loss(
    ctx: Context, a: jax.Array, b: jax.Array, similar: jax.Array, *centroids: jax.Array
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Half the mean over pairs of d**2 if similar, else max(margin - d, 0)**2; d is their distance. A scalar.

    Bottoms: features a and b, (N, C), and `similar`, (N,), nonzero for similar pairs. Caffe's rule:
    contrastive_loss_layer.cpp. With `legacy_version` dissimilar pairs contribute max(margin - d**2, 0). The gradient
    divides by d + 1e-4 instead of d.

    In MyCaffe, bottom 2 may have 2 or 3 labels for each pair, which is similar if they are equal; a second top says for
    each pair whether d is at most the margin if and only if it is similar; d**2 of similar pairs is multiplied by
    `matching_distance_scale`, without effect on the gradient; and d**2 is the sum of absolute differences with
    `distance_calculation: MANHATTAN`, which implies legacy_version. A fourth bottom has centroids (labels, C), which
    replace a in similar pairs (`centroid_learning: MATCHING`) or in others (NONMATCHING) once they are not all 0.
    """
    _, alike, squared, gap = _pairs(ctx, a, b, similar, *centroids)
    hinge = jnp.maximum(gap, 0)
    hinge = hinge if _is_legacy(ctx.param) else jnp.square(hinge)
    scale = ctx.param.matching_distance_scale
    loss = jnp.sum(jnp.where(alike, scale * squared, hinge)) / (2 * a.shape[0])
    if ctx.n_tops == 1:
        return loss
    near = jnp.where(alike, ctx.param.margin - _distance(ctx.param, scale * squared), gap) >= 0
    return loss, lax.stop_gradient((near == alike).astype(a.dtype)).reshape(-1, 1, 1, 1)


def contrastive_loss_backward(
    ctx: Context, a: jax.Array, b: jax.Array, similar: jax.Array, *centroids: jax.Array, y: Any, dy: Any
) -> tuple[jax.Array | None, ...]:
    diff, alike, squared, gap = _pairs(ctx, a, b, similar, *centroids)
    slope = 1.0 if _is_legacy(ctx.param) else gap / (jnp.sqrt(squared) + _SOFTENING)
    factor = first_top(dy) / a.shape[0] * jnp.where(alike, 1, jnp.where(gap > 0, -slope, 0))
    da = factor[:, None] * diff
    return da.reshape(a.shape), -da.reshape(b.shape), None, *(None for _ in centroids)


define_layer(
    Signature(
        "ContrastiveLoss",
        bottoms=(3, 4),
        tops=(1, 2),
        param="contrastive_loss_param",
        loss=True,
        fork_settings=("output_matches", "centroid_learning", "distance_calculation", "matching_distance_scale"),
    ),
    Traced(contrastive_loss),
    Gradient(
        contrastive_loss_backward,
        overrides_autodiff=True,
        indices=Indices((2,)),
        exempt_from_force_backward=(2, 3),
    ),
)


def _is_legacy(p: Any) -> bool:
    return bool(p.legacy_version or p.distance_calculation == "MANHATTAN")


def _distance(p: Any, squared: jax.Array) -> jax.Array:
    """Return the number that the margin is compared with."""
    return squared if _is_legacy(p) else jnp.sqrt(squared)


def _pairs(
    ctx: Context, a: jax.Array, b: jax.Array, similar: jax.Array, *centroids: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return differences (pairs, channels), the mask of similar pairs, squared distances, and margin - distance."""
    p = ctx.param
    require_one_batch(a.shape, b.shape)
    for i, x in enumerate((a, b)):
        require(
            four_axes(x.shape, f"bottom {i}")[2:] == (1, 1),
            f"bottom {i} must be pairs x channels: height and width are not 1 in {x.shape}",
        )
    require(a.size == b.size, f"bottoms 0 and 1 must have the same channels: {a.shape} and {b.shape}")
    n, labels, *plane = four_axes(similar.shape, "bottom 2")
    require(
        (n, *plane) == (a.shape[0], 1, 1) and 1 <= labels <= 3,
        f"bottom 2 must hold one number, or two or three labels, for each of the {a.shape[0]} pairs, not have shape "
        f"{similar.shape}",
    )
    require(ctx.n_tops == 1 or p.output_matches, "has two tops: set output_matches, or leave one")
    for name, allowed in (("distance_calculation", _DISTANCES), ("centroid_learning", _CENTROIDS)):
        require(getattr(p, name) in allowed, f"{name} must be {', '.join(allowed)}, not {getattr(p, name)}")
    numbers = promote(similar).reshape(n, labels)
    alike = numbers[:, 0].astype(jnp.int32) != 0 if labels == 1 else jnp.all(numbers[:, 1:] == numbers[:, :1], axis=1)
    first, second = (promote(x).reshape(n, -1) for x in (a, b))
    if centroids and p.centroid_learning != "NONE":
        require(labels > 1, "centroid_learning needs labels for each pair in bottom 2")
        rows = lax.stop_gradient(promote(centroids[0]).reshape(centroids[0].shape[0], -1))
        require(rows.shape[1:] == first.shape[1:], f"bottom 3 must have rows like bottom 0's, {a.shape}: {rows.shape}")
        replaced = jnp.any(rows != 0) & (alike if p.centroid_learning == "MATCHING" else ~alike)
        first = jnp.where(replaced[:, None], rows[numbers[:, 0].astype(jnp.int32)], first)
    diff = first - second
    squared = jnp.sum(jnp.abs(diff) if p.distance_calculation == "MANHATTAN" else jnp.square(diff), axis=1)
    return diff, alike, squared, p.margin - _distance(p, squared)


_DISTANCES, _CENTROIDS = ("EUCLIDEAN", "MANHATTAN"), ("NONE", "MATCHING", "NONMATCHING")


def euclidean_distance(ctx: Context, a: jax.Array, b: jax.Array) -> jax.Array:
    """Mean distance between the points of two bottoms (N, 3 * points), which have 3 coordinates each; (1, 1, 1, 1)."""
    difference = _weighted_difference(a, b)
    require(difference.shape[1] % 3 == 0, f"rows must hold points of 3 numbers each, not {difference.shape[1]} numbers")
    points = difference.reshape(a.shape[0], -1, 3)
    distance = cross_replica.pmean(ctx, jnp.mean(jnp.sqrt(jnp.sum(jnp.square(points), axis=2))))
    return distance.reshape(1, 1, 1, 1).astype(a.dtype)


define_layer(
    Signature("EuclideanDistance", bottoms=2),
    Traced(euclidean_distance),
    Gradient(exists=False),
    docs=LayerDocs(origin="cbfinn/caffe"),
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
    difference, d_loss = _weighted_difference(a, b), dy / max(a.shape[0], 1)
    diff = d_loss * _apply_weights(difference, weights)
    d_weights = d_loss / 2 * difference[:, :, None] * difference[:, None, :]
    return diff.reshape(a.shape), -diff.reshape(b.shape), d_weights.reshape(weights.shape)


define_layer(
    Signature("WeightedEuclideanLoss", bottoms=3, loss=True),
    Traced(weighted_euclidean_loss),
    Gradient(weighted_euclidean_loss_backward, overrides_autodiff=True),
    docs=LayerDocs(origin="cbfinn/caffe"),
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


define_layer(
    Signature("HingeLoss", bottoms=2, param="hinge_loss_param", loss=True),
    Traced(hinge_loss),
    Gradient(hinge_loss_backward, indices=Indices((1,), classes_of_rows), exempt_from_force_backward=(1,)),
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
