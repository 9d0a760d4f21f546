"""SegAccuracy and EltwiseAccuracy, which compare predicted classes with a label for each pixel."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...core.layers import cross_replica
from ...core.layers.context import Context, Params, ParamSpec
from ...core.layers.declaration import register
from ...core.layers.loss_helpers import ignored_label_of_metric, in_valid_rows
from ...core.layers.types import Indices
from ...core.schema.caffe_pb2 import EltwiseAccuracyParameter, SegAccuracyParameter

Arrays = tuple[jax.Array, ...]


def _checkable_class_count(p: SegAccuracyParameter, scores: Any, labels: Any) -> int | None:
    return int(scores.shape[1]) if len(scores.shape) > 1 and len(p.ignore_label) <= 1 else None


def _single_ignored_label(p: SegAccuracyParameter) -> int | None:
    return int(p.ignore_label[0]) if len(p.ignore_label) == 1 else None


@register(
    "SegAccuracy",
    bottoms=2,
    param="seg_accuracy_param",
    stateful=True,
    differentiable=False,
    indices=Indices((1,), _checkable_class_count, _single_ignored_label),
    counts_rows=True,
    origin="DeepLab, PSPNet",
)
def seg_accuracy(
    p: SegAccuracyParameter, scores: jax.Array, labels: jax.Array, *, state: Params, ctx: Context
) -> tuple[jax.Array, Arrays]:
    """Compute pixel accuracy, mean recall and mean intersection over union. The top is (1, 1, 1, 3).

    Bottoms: scores (N, C, H, W), and labels (N, H, W) or (N, 1, H, W). Pixels with a label in `ignore_label` are
    ignored. Recall is averaged over the classes that occur in the labels. Intersection over union is averaged over all
    classes; it is 1 for a class that neither occurs nor is predicted. With `reset: false`, the pixels of earlier passes
    are counted, too. If any label that is not ignored is out of range, all three values are NaN.
    """
    require_label_map(scores, labels)
    num_classes = scores.shape[1]
    label_index = labels.astype(jnp.int32).reshape(scores.shape[0], -1)
    predictions = jnp.argmax(scores, axis=1).reshape(scores.shape[0], -1)
    valid = in_valid_rows(ctx, jnp.ones(label_index.shape, bool))
    for ignored_label in p.ignore_label:
        valid &= label_index != ignored_label
    has_unknown_labels = (
        cross_replica.psum(ctx, jnp.sum(valid & ((label_index < 0) | (label_index >= num_classes)))) > 0
    )
    label_one_hot = ((label_index[..., None] == jnp.arange(num_classes)) & valid[..., None]).astype(jnp.float32)
    predicted_one_hot = (predictions[..., None] == jnp.arange(num_classes)).astype(jnp.float32)
    confusion = jnp.einsum("bpi,bpj->ij", label_one_hot, predicted_one_hot, precision="highest")
    confusion = sum(state.values(), start=cross_replica.psum(ctx, confusion))
    accuracies = jnp.where(has_unknown_labels, jnp.nan, _compute_accuracies(confusion))
    return accuracies.reshape(1, 1, 1, 3), tuple(confusion.astype(b.dtype) for b in state.values())


@seg_accuracy.params
def seg_accuracy_params(p: SegAccuracyParameter, scores: Any, labels: Any) -> list[ParamSpec]:
    require_label_map(scores, labels)
    num_classes = scores.shape[1]
    return [] if p.reset else [ParamSpec((num_classes, num_classes), learnable=False, persistent=False, name="counts")]


def require_label_map(scores: Any, labels: Any) -> None:
    """Raise `LayerError` unless labels have shape (N, H, W) or (N, 1, H, W), and scores have shape (N, C, H, W)."""
    require(len(scores.shape) == 4, f"needs scores with 4 axes (num, classes, height, width), not {scores.shape}")
    label_shape = (scores.shape[0], *scores.shape[2:])
    require(
        labels.shape in (label_shape, (label_shape[0], 1, *label_shape[1:])),
        f"bottom 1 must have a label for each position of the scores {scores.shape}, not shape {labels.shape}",
    )


def _compute_accuracies(confusion: jax.Array) -> jax.Array:
    """Return pixel accuracy, mean recall and mean intersection over union from a confusion matrix, (3,).

    The matrix, (classes, classes), contains the number of pixels for each label (rows) and predicted class (columns).
    """
    correct_counts, label_counts, prediction_counts = (
        jnp.diagonal(confusion),
        jnp.sum(confusion, axis=1),
        jnp.sum(confusion, axis=0),
    )
    union = label_counts + prediction_counts - correct_counts
    iou = jnp.where(union > 0, correct_counts / jnp.maximum(union, 1), 1)
    recall = jnp.sum(correct_counts / jnp.maximum(label_counts, 1)) / jnp.maximum(jnp.sum(label_counts > 0), 1)
    return jnp.stack([jnp.sum(correct_counts) / jnp.maximum(jnp.sum(confusion), 1), recall, jnp.mean(iou)])


def _class_count(scores: Any, labels: Any) -> int | None:
    return int(scores.shape[1]) if len(scores.shape) > 1 else None


@register(
    "EltwiseAccuracy",
    bottoms=2,
    param="eltwise_accuracy_param",
    differentiable=False,
    indices=Indices((1,), _class_count, ignored_label_of_metric),
    counts_rows=True,
    origin="DeconvNet",
)
def eltwise_accuracy(p: EltwiseAccuracyParameter, scores: jax.Array, labels: jax.Array, *, ctx: Context) -> jax.Array:
    """Compute the fraction of pixels whose label is among the `top_k` classes with the largest scores.

    Bottoms: scores (N, C, H, W), and labels (N, H, W) or (N, 1, H, W). The top is (1, 1, 1, 1). Among equal scores, the
    higher class comes first. A label out of range counts as an error. Pixels with `ignore_label` are ignored.
    """
    num_classes = scores.shape[1]
    require_label_map(scores, labels)
    require(
        1 <= p.top_k <= num_classes, f"top_k must be between 1 and the number of classes {num_classes}, not {p.top_k}"
    )
    label_index = labels.astype(jnp.int32).reshape(scores.shape[0], 1, *scores.shape[2:])
    class_ids = jnp.arange(num_classes).reshape(-1, 1, 1)
    label_score = jnp.sum(jnp.where(label_index == class_ids, scores, 0), axis=1, keepdims=True)
    rank = jnp.sum(
        (scores > label_score) | ((scores == label_score) & (class_ids > label_index)), axis=1, keepdims=True
    )
    is_correct = (rank < p.top_k) & (label_index >= 0) & (label_index < num_classes)
    valid = label_index != p.ignore_label if p.HasField("ignore_label") else jnp.ones(label_index.shape, bool)
    valid = in_valid_rows(ctx, valid)
    num_correct, num_valid = (cross_replica.psum(ctx, jnp.sum(x)) for x in (is_correct & valid, valid))
    accuracy = num_correct / jnp.maximum(num_valid, 1)
    return accuracy.astype(jnp.float32).reshape(1, 1, 1, 1)
