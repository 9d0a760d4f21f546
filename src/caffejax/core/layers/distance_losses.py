"""Losses by distances and margins: EuclideanLoss, ContrastiveLoss and HingeLoss."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...base.errors import require
from .context import Context
from .dtype_policy import promote
from .helpers import as_nchw, first_top
from .loss_helpers import nan_if_unlabelled, num_classes_of_rows, one_hot_mask, require_same_batch_size
from .registry import define_layer
from .types import Gradient, Indices, LayerTraits, Signature, Traced

_DISTANCE_EPS = 1e-4  # Caffe divides by the distance plus this number


def euclidean_loss(ctx: Context, a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the sum of squared differences, divided by twice the batch size, a scalar (euclidean_loss_layer.cpp).

    Bottoms: two arrays (N, ...) with the same number of elements. Bottoms with at most 4 axes may have different shapes
    after axis 0. Bottoms with more axes, as in C3D, must have equal shapes; BVLC Caffe rejects them.
    """
    return jnp.sum(jnp.square(_subtract(a, b))) / (2 * a.shape[0])


def euclidean_loss_backward(
    ctx: Context, a: jax.Array, b: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    diff = dy / a.shape[0] * _subtract(a, b)
    return diff.reshape(a.shape), -diff.reshape(b.shape)


define_layer(
    Signature("EuclideanLoss", bottoms=2, loss=True),
    Traced(euclidean_loss),
    Gradient(euclidean_loss_backward),
    LayerTraits(accepts_integers=True),
)


def _subtract(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return a - b as (batch, elements)."""
    require(
        a.shape == b.shape or len(a.shape) <= 4,
        f"bottoms of more than 4 axes must have equal shapes: bottom 1 must have shape {a.shape}, not {b.shape}",
    )
    require_same_batch_size(a.shape, b.shape)
    require(
        math.prod(a.shape[1:]) == math.prod(b.shape[1:]),
        f"inputs must have the same dimension after the first axis, but have shapes {a.shape} and {b.shape}",
    )
    return (promote(a) - promote(b.reshape(a.shape))).reshape(a.shape[0], -1)


def contrastive_loss(
    ctx: Context, a: jax.Array, b: jax.Array, similar: jax.Array, *centroids: jax.Array
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Return half the mean over pairs of d**2 (similar pairs) or max(margin - d, 0)**2 (other pairs), a scalar.

    d is the Euclidean distance of a pair. Bottoms: features a and b, (N, C), and `similar`, (N,), nonzero for similar
    pairs. With `legacy_version`, max(margin - d**2, 0) replaces max(margin - d, 0)**2. The gradient divides by d + 1e-4
    instead of d. Caffe's rule: contrastive_loss_layer.cpp.

    MyCaffe adds:

    - Bottom 2 may have 2 or 3 labels for each pair. The pair is similar if its labels are equal.
    - A second top, (N, 1, 1, 1), is 1 for pairs that the margin classifies correctly, by d <= margin, and 0 for others.
    - `matching_distance_scale` multiplies d**2 of similar pairs, but does not affect the gradient.
    - `distance_calculation: MANHATTAN` replaces d**2 with the sum of absolute differences, and implies legacy_version.
    - Bottom 3 has centroids (labels, C). If they are not all 0, the centroid of the pair's first label replaces a, in
      similar pairs (`centroid_learning: MATCHING`) or in dissimilar pairs (NONMATCHING).
    """
    _, is_similar, squared_distance, gap = _compare_pairs(ctx, a, b, similar, *centroids)
    hinge = jnp.maximum(gap, 0)
    hinge = hinge if _is_legacy(ctx.param) else jnp.square(hinge)
    scale = ctx.param.matching_distance_scale
    loss = jnp.sum(jnp.where(is_similar, scale * squared_distance, hinge)) / (2 * a.shape[0])
    if ctx.n_tops == 1:
        return loss
    is_near = (
        jnp.where(is_similar, ctx.param.margin - _compared_distance(ctx.param, scale * squared_distance), gap) >= 0
    )
    return loss, lax.stop_gradient((is_near == is_similar).astype(a.dtype)).reshape(-1, 1, 1, 1)


def contrastive_loss_backward(
    ctx: Context, a: jax.Array, b: jax.Array, similar: jax.Array, *centroids: jax.Array, y: Any, dy: Any
) -> tuple[jax.Array | None, ...]:
    diff, is_similar, squared_distance, gap = _compare_pairs(ctx, a, b, similar, *centroids)
    slope = 1.0 if _is_legacy(ctx.param) else gap / (jnp.sqrt(squared_distance) + _DISTANCE_EPS)
    factor = first_top(dy) / a.shape[0] * jnp.where(is_similar, 1, jnp.where(gap > 0, -slope, 0))
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


def _compared_distance(p: Any, squared_distance: jax.Array) -> jax.Array:
    """Return the distances to compare with the margin, (pairs,); in the legacy version, the squared distances."""
    return squared_distance if _is_legacy(p) else jnp.sqrt(squared_distance)


def _compare_pairs(
    ctx: Context, a: jax.Array, b: jax.Array, similar: jax.Array, *centroids: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return differences (pairs, channels), the mask of similar pairs, squared distances, and margin - distance."""
    p = ctx.param
    require_same_batch_size(a.shape, b.shape)
    for i, x in enumerate((a, b)):
        require(
            as_nchw(x.shape, f"bottom {i}")[2:] == (1, 1),
            f"bottom {i} must have shape (pairs, channels) or (pairs, channels, 1, 1), not {x.shape}",
        )
    require(a.size == b.size, f"bottom 1 must have as many channels as bottom 0, {a.shape}, but has shape {b.shape}")
    n, n_labels, *plane = as_nchw(similar.shape, "bottom 2")
    require(
        (n, *plane) == (a.shape[0], 1, 1) and 1 <= n_labels <= 3,
        f"bottom 2 must hold one number, or two or three labels, for each of the {a.shape[0]} pairs, but has shape "
        f"{similar.shape}",
    )
    require(ctx.n_tops == 1 or p.output_matches, "has two tops: set output_matches, or remove the second top")
    for name, choices in (
        ("distance_calculation", _DISTANCE_CALCULATIONS),
        ("centroid_learning", _CENTROID_LEARNING_MODES),
    ):
        require(getattr(p, name) in choices, f"{name} must be one of {', '.join(choices)}, not {getattr(p, name)}")
    labels = promote(similar).reshape(n, n_labels)
    is_similar = (
        labels[:, 0].astype(jnp.int32) != 0 if n_labels == 1 else jnp.all(labels[:, 1:] == labels[:, :1], axis=1)
    )
    rows_a, rows_b = (promote(x).reshape(n, -1) for x in (a, b))
    if centroids and p.centroid_learning != "NONE":
        require(n_labels > 1, "centroid_learning needs two or three labels for each pair in bottom 2, not one")
        centroid_rows = lax.stop_gradient(promote(centroids[0]).reshape(centroids[0].shape[0], -1))
        require(
            centroid_rows.shape[1:] == rows_a.shape[1:],
            f"bottom 3 must have {rows_a.shape[1]} channels, like bottom 0, not {centroid_rows.shape[1]}",
        )
        is_replaced = jnp.any(centroid_rows != 0) & (is_similar if p.centroid_learning == "MATCHING" else ~is_similar)
        rows_a = jnp.where(is_replaced[:, None], centroid_rows[labels[:, 0].astype(jnp.int32)], rows_a)
    diff = rows_a - rows_b
    squared_distance = jnp.sum(jnp.abs(diff) if p.distance_calculation == "MANHATTAN" else jnp.square(diff), axis=1)
    return diff, is_similar, squared_distance, p.margin - _compared_distance(p, squared_distance)


_DISTANCE_CALCULATIONS, _CENTROID_LEARNING_MODES = ("EUCLIDEAN", "MANHATTAN"), ("NONE", "MATCHING", "NONMATCHING")


def hinge_loss(ctx: Context, scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean over examples of the sum over classes of max(0, 1 - t * score), a scalar.

    t is 1 for the label and -1 for other classes. Bottoms: scores (N, classes) and labels (N,). With `norm: L2` the
    terms are squared. Exactly on the margin the gradient is 0. A label outside 0 .. classes - 1 makes the loss NaN.
    Caffe's rule: hinge_loss_layer.cpp.
    """
    sign, violation = _compute_violations(scores, labels)
    terms = jnp.where(violation > 0, violation, 0)
    return nan_if_unlabelled(sign < 0, jnp.sum(jnp.square(terms) if _is_squared(ctx) else terms) / scores.shape[0])


def hinge_loss_backward(
    ctx: Context, scores: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    sign, violation = _compute_violations(scores, labels)
    slope = 2 * jnp.maximum(violation, 0) if _is_squared(ctx) else (violation > 0).astype(violation.dtype)
    return (dy / scores.shape[0] * sign * slope).reshape(scores.shape), None


define_layer(
    Signature("HingeLoss", bottoms=2, param="hinge_loss_param", loss=True),
    Traced(hinge_loss),
    Gradient(hinge_loss_backward, indices=Indices((1,), num_classes_of_rows), exempt_from_force_backward=(1,)),
)


def _is_squared(ctx: Context) -> bool:
    return bool(ctx.param.norm == ctx.param.L2)


def _compute_violations(scores: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the signs (-1 at each example's label, 1 elsewhere) and 1 + sign * score, both (batch, classes)."""
    as_nchw(scores.shape)
    require_same_batch_size(scores.shape, labels.shape)
    require(
        math.prod(labels.shape) == labels.shape[0],
        f"needs one label for each of the {scores.shape[0]} examples, not labels of shape {labels.shape}",
    )
    rows = promote(scores).reshape(scores.shape[0], -1)
    is_label = one_hot_mask(labels, rows.shape)
    sign = jnp.where(is_label, -1, 1).astype(rows.dtype)
    return sign, 1 + sign * rows
