"""Accuracy: the fraction of labels among the top_k scores (accuracy_layer.cpp)."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from ...base.errors import require
from ..schema.caffe_pb2 import AccuracyParameter
from . import cross_replica
from .context import Context
from .declaration import register
from .helpers import canonical_axis, is_after_first_axis
from .loss_helpers import (
    check_label_shape,
    ignored_label_of_metric,
    in_valid_rows,
    num_classes_along_axis,
    valid_label_mask,
)
from .types import Indices


@register(
    "Accuracy",
    bottoms=2,
    tops=(1, 2),
    param="accuracy_param",
    differentiable=False,
    indices=Indices((1,), num_classes_along_axis, ignored_label_of_metric, counts_ignored=True),
    counts_rows=is_after_first_axis,
)
def accuracy(p: AccuracyParameter, scores: Array, labels: Array, *, ctx: Context) -> object:
    """Return the fraction of labels whose score is among the `top_k` largest, as a scalar.

    Bottoms: scores with the classes along `axis`, and labels: a class number for each position along the other axes. A
    label is correct if fewer than top_k other classes have a score at least as large; with top_k 0 no label is correct.
    A label that is not a class number counts as incorrect; data layers pass such a label only if a loss ignores it. The
    optional second top, (classes,), holds the accuracy of each class, which is 0 for a class without labels.
    """
    axis = canonical_axis(p.axis, scores.shape)
    check_label_shape(scores.shape, labels.shape, axis)
    num_classes = scores.shape[axis]
    require(p.top_k <= num_classes, f"top_k must be at most the number of classes {num_classes}, not {p.top_k}")
    score_rows = jnp.moveaxis(scores, axis, -1).reshape(-1, num_classes)
    position_ids = labels.astype(jnp.int32).reshape(scores.shape[:axis] + scores.shape[axis + 1 :])
    is_valid, class_ids = in_valid_rows(ctx, valid_label_mask(p, position_ids)).reshape(-1), position_ids.reshape(-1)
    is_in_range = is_valid & (class_ids >= 0) & (class_ids < num_classes)
    class_ids = jnp.where(is_in_range, class_ids, 0)
    label_scores = jnp.take_along_axis(score_rows, class_ids[:, None], 1, mode="clip")
    n_better = jnp.sum(score_rows >= label_scores, axis=1) - 1  # without the class itself
    is_correct = (is_in_range & (n_better < p.top_k)).astype(jnp.float32)
    overall = _fraction(ctx, is_correct, is_valid)
    if ctx.num_tops < 2:
        return overall
    one_hot = (class_ids[:, None] == jnp.arange(num_classes)) & is_in_range[:, None]
    return overall, _fraction(ctx, is_correct[:, None] * one_hot, one_hot)


def _fraction(ctx: Context, numerator: Array, denominator: Array) -> Array:
    """Return sum(numerator) / sum(denominator) along axis 0 over all devices, or 0 where the denominator is 0."""
    numerator, denominator = (cross_replica.psum(ctx, jnp.sum(x, axis=0)) for x in (numerator, denominator))
    return jnp.where(denominator == 0, 0.0, numerator / jnp.maximum(denominator, 1)).astype(jnp.float32)
