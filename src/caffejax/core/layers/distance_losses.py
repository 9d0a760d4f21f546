"""Losses by distances and margins: EuclideanLoss, ContrastiveLoss and HingeLoss."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ...base.errors import require
from ..schema.caffe_pb2 import ContrastiveLossParameter, HingeLossParameter
from .context import Context
from .declaration import register
from .dtype_policy import promote
from .helpers import as_nchw
from .loss_helpers import (
    in_valid_rows,
    labelled_rows,
    nan_if_unlabelled,
    num_classes_of_rows,
    num_items,
    require_same_batch_size,
    sum_rows,
)
from .types import Indices

_DISTANCE_EPS = 1e-4  # Caffe divides by the distance plus this number


@register("EuclideanLoss", bottoms=2, loss=True, accepts_integers=True, counts_rows=True)
def euclidean_loss(a: Array, b: Array, *, ctx: Context) -> Array:
    """Return the sum of squared differences, divided by twice the batch size, a scalar (euclidean_loss_layer.cpp).

    Bottoms: two arrays (N, ...) with the same number of elements. Bottoms with at most 4 axes may have different shapes
    after axis 0. Bottoms with more axes, as in C3D, must have equal shapes; BVLC Caffe rejects them.
    """
    return jnp.sum(jnp.square(_subtract(a, b))) / (2 * num_items(ctx, a.shape[:1]))


@euclidean_loss.backward
def euclidean_loss_backward(a: Array, b: Array, *, y: Array, dy: Array, ctx: Context) -> tuple[Array, Array]:
    diff = dy / num_items(ctx, a.shape[:1]) * _subtract(a, b)
    return diff.reshape(a.shape), -diff.reshape(b.shape)


def _subtract(a: Array, b: Array) -> Array:
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


@register(
    "ContrastiveLoss",
    bottoms=3,
    param="contrastive_loss_param",
    loss=True,
    overrides_autodiff=True,
    indices=Indices((2,)),
    counts_rows=True,
)
def contrastive_loss(p: ContrastiveLossParameter, a: Array, b: Array, similar: Array, *, ctx: Context) -> Array:
    """Return half the mean over pairs of d**2 (similar pairs) or max(margin - d, 0)**2 (other pairs), a scalar.

    d is the Euclidean distance of a pair. Bottoms: features a and b, (N, C), and `similar`, (N,), nonzero for similar
    pairs. With `legacy_version`, max(margin - d**2, 0) replaces max(margin - d, 0)**2. The gradient divides by d + 1e-4
    instead of d. Caffe's rule: contrastive_loss_layer.cpp.
    """
    return sum_pair_losses(ctx, _compare_pairs(p, a, b, similar))


@contrastive_loss.backward
def contrastive_loss_backward(
    p: ContrastiveLossParameter, a: Array, b: Array, similar: Array, *, y: Array, dy: Array, ctx: Context
) -> tuple[Array | None, ...]:
    da = pair_gradient(ctx, _compare_pairs(p, a, b, similar), dy)
    return da.reshape(a.shape), -da.reshape(b.shape), None


class Pairs(NamedTuple):
    """Pairs of feature vectors.

    Attributes:
        diff: the differences of their values, (pairs, channels).
        is_similar: whether a pair is similar, (pairs,).
        squared_distance: the squares of their distances, (pairs,).
        margin: the distance that pairs that are not similar should have.
        is_legacy: whether the margin limits the squared distance; see `contrastive_loss`.
    """

    diff: Array
    is_similar: Array
    squared_distance: Array
    margin: float
    is_legacy: bool

    @property
    def gap(self) -> Array:
        """The distance that is missing to the margin, (pairs,)."""
        return self.margin - (self.squared_distance if self.is_legacy else jnp.sqrt(self.squared_distance))


def sum_pair_losses(ctx: Context, pairs: Pairs) -> Array:
    """Return the contrastive loss, a scalar."""
    hinge = jnp.maximum(pairs.gap, 0)
    losses = jnp.where(pairs.is_similar, pairs.squared_distance, hinge if pairs.is_legacy else jnp.square(hinge))
    return sum_rows(ctx, losses) / (2 * num_items(ctx, losses.shape))


def pair_gradient(ctx: Context, pairs: Pairs, dy: Array) -> Array:
    """Return the gradient of the first vectors, (pairs, channels), for the gradient of the loss, a scalar."""
    slope = 1.0 if pairs.is_legacy else pairs.gap / (jnp.sqrt(pairs.squared_distance) + _DISTANCE_EPS)
    factor = jnp.where(pairs.is_similar, 1, jnp.where(pairs.gap > 0, -slope, 0))
    return (dy / num_items(ctx, factor.shape) * factor)[:, None] * pairs.diff


def read_pairs(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the features of pairs as float32 (pairs, channels) each.

    Raises:
        LayerError: if a shape is not (pairs, channels) or (pairs, channels, 1, 1), or their sizes differ.
    """
    require_same_batch_size(a.shape, b.shape)
    for i, x in enumerate((a, b)):
        require(
            as_nchw(x.shape, f"bottom {i}")[2:] == (1, 1),
            f"bottom {i} must have shape (pairs, channels) or (pairs, channels, 1, 1), not {x.shape}",
        )
    require(a.size == b.size, f"bottom 1 must have as many channels as bottom 0, {a.shape}, but has shape {b.shape}")
    return promote(a).reshape(a.shape[0], -1), promote(b).reshape(b.shape[0], -1)


def _compare_pairs(p: ContrastiveLossParameter, a: Array, b: Array, similar: Array) -> Pairs:
    rows_a, rows_b = read_pairs(a, b)
    require(
        as_nchw(similar.shape, "bottom 2") == (a.shape[0], 1, 1, 1),
        f"bottom 2 must hold one number for each of the {a.shape[0]} pairs, but has shape {similar.shape}; for a label "
        'of each item, set distance_calculation: "EUCLIDEAN", which makes it MyCaffe\'s layer',
    )
    diff = rows_a - rows_b
    is_similar = promote(similar).reshape(-1).astype(jnp.int32) != 0
    return Pairs(diff, is_similar, jnp.sum(jnp.square(diff), axis=1), p.margin, p.legacy_version)


@register(
    "HingeLoss",
    bottoms=2,
    param="hinge_loss_param",
    loss=True,
    indices=Indices((1,), num_classes_of_rows),
    counts_rows=True,
)
def hinge_loss(p: HingeLossParameter, scores: Array, labels: Array, *, ctx: Context) -> Array:
    """Return the mean over examples of the sum over classes of max(0, 1 - t * score), a scalar.

    t is 1 for the label and -1 for other classes. Bottoms: scores (N, classes) and labels (N,). With `norm: L2` the
    terms are squared. Exactly on the margin the gradient is 0. A label outside 0 .. classes - 1 makes the loss NaN.
    Caffe's rule: hinge_loss_layer.cpp.
    """
    sign, violation = _compute_violations(scores, labels)
    terms = jnp.where(in_valid_rows(ctx, violation > 0), violation, 0)
    total = jnp.sum(jnp.square(terms) if p.norm == p.L2 else terms)
    return nan_if_unlabelled(sign < 0, total / num_items(ctx, scores.shape[:1]))


@hinge_loss.backward
def hinge_loss_backward(
    p: HingeLossParameter, scores: Array, labels: Array, *, y: Array, dy: Array, ctx: Context
) -> tuple[Array, None]:
    sign, violation = _compute_violations(scores, labels)
    slope = 2 * jnp.maximum(violation, 0) if p.norm == p.L2 else (violation > 0).astype(violation.dtype)
    return (dy / num_items(ctx, scores.shape[:1]) * sign * slope).reshape(scores.shape), None


def _compute_violations(scores: Array, labels: Array) -> tuple[Array, Array]:
    """Return the signs (-1 at each example's label, 1 elsewhere) and 1 + sign * score, both (batch, classes)."""
    rows, is_label = labelled_rows(scores, labels)
    sign = jnp.where(is_label, -1, 1).astype(rows.dtype)
    return sign, 1 + sign * rows
