"""DetectionAccuracy, DetectionGroupAccuracy and BboxAccuracy: accuracies of classes, and mean overlaps of boxes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...core.layers import cross_replica
from ...core.layers.context import Context
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.layers.loss_helpers import in_valid_rows
from ...core.layers.types import Indices
from ...core.schema.caffe_pb2 import DetectionAccuracyParameter, DetectionGroupAccuracyParameter
from ..detection.boxes import overlaps
from .anchors_and_deltas import (
    apply_deltas,
    count_images,
    make_anchor_grid,
    read_bounds,
    read_normalization,
    read_rows,
    require_equal_rows,
    require_joint_map,
    require_score_and_delta_maps,
)
from .detection_loss import CellLabels, read_labels


def compute_class_accuracies(ctx: Context, is_correct: jax.Array, labels: CellLabels, classes: jax.Array) -> jax.Array:
    """Return the accuracy over all cells, and the accuracy over cells with an object, as (1, 1, 1, 2).

    If there are no such cells, an accuracy is -1.

    Args:
        ctx: the layer.
        is_correct: (batch, height, width), whether the predicted class is correct.
        labels: ground truth.
        classes: (batch, height, width), the target classes. With `objectness`, they are only background (0) or object
            (1).
    """
    is_ignored = labels.ignored_mask(ctx, classes) | ((classes == 0) & (labels.overlap >= ctx.param.bg_threshold))
    is_counted = in_valid_rows(ctx, ~is_ignored)
    accuracies = [_masked_mean(ctx, is_correct, mask) for mask in (is_counted, is_counted & (classes != 0))]
    return jnp.stack(accuracies).reshape(1, 1, 1, 2)


def compute_mean_overlap(ctx: Context, boxes: jax.Array, labels: CellLabels, side_offset: float) -> jax.Array:
    """Return the mean overlap of predicted boxes with ground truth as (1, 1, 1, 1), or -1 if there are no objects.

    Args:
        ctx: the layer.
        boxes: (batch, 4, height, width), the predicted boxes: left, top, width and height in pixels.
        labels: ground truth.
        side_offset: added to x2 - x1 to get the side of a box.
    """
    truth = jnp.concatenate([labels.boxes[:, :2] - labels.boxes[:, 2:] / 2, labels.boxes[:, 2:]], axis=1)
    overlap = overlaps(_to_corners(boxes, side_offset), _to_corners(truth, side_offset), side_offset, must_touch=True)
    return _masked_mean(ctx, overlap, (labels.classes != 0) & ~labels.ignored_mask(ctx, labels.classes)).reshape(
        1, 1, 1, 1
    )


def _to_corners(boxes: jax.Array, side_offset: float) -> jax.Array:
    return jnp.moveaxis(jnp.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:] - side_offset], axis=1), 1, -1)


def _masked_mean(ctx: Context, values: Any, mask: jax.Array) -> jax.Array:
    values = values if jnp.issubdtype(values.dtype, jnp.floating) else values.astype(jnp.float32)
    total, count = (cross_replica.psum(ctx, jnp.sum(x, dtype=values.dtype)) for x in (jnp.where(mask, values, 0), mask))
    return jnp.where(count > 0, total / jnp.maximum(count, 1), -1)


@register(
    "DetectionAccuracy",
    bottoms=2,
    tops=(1, 2),
    param="detection_accuracy_param",
    further_params=("bbox_reg_param",),
    in_place=False,
    differentiable=False,
    indices=Indices((1,)),
    counts_rows=True,
    origin="MS-CNN",
)
def detection_accuracy(p: DetectionAccuracyParameter, x: jax.Array, truth: jax.Array, *, ctx: Context) -> object:
    """Compute the top_k accuracy of the classes, both over all cells and over the cells with an object.

    The bottoms are those of DetectionLoss. The top (1, 1, 1, 2) contains both accuracies. An optional second top (1, 1,
    1, 1) is the mean overlap of the predicted boxes with the objects, where a side is x2 - x1. Cells with label 0 and
    an overlap of at least `bg_threshold` are ignored. A mean over no cells is -1.
    """
    grid = make_anchor_grid([p.field_w], [p.field_h], p.downsample_rate, "downsample_rate")
    require_joint_map(p, x.shape)
    require(1 <= p.top_k <= p.cls_num, f"top_k must be between 1 and cls_num {p.cls_num}, not {p.top_k}")
    require(not p.objectness or p.cls_num == 2, f"objectness needs cls_num 2, not {p.cls_num}")
    labels = read_labels(truth, x.shape, "bottom 1 (ground truth)")
    x = promote(x)
    scores, classes = x[:, : p.cls_num], jnp.minimum(labels.classes, 1) if p.objectness else labels.classes
    class_index = jnp.arange(p.cls_num)[:, None, None]
    label_score = jnp.max(jnp.where(class_index == classes[:, None], scores, -jnp.inf), axis=1, keepdims=True)
    ranks_higher = (scores > label_score) | (
        (scores == label_score) & (class_index > classes[:, None])
    )  # if scores are equal, the highest class comes first
    is_correct = (jnp.sum(ranks_higher, axis=1) < p.top_k) & (classes >= 0) & (classes < p.cls_num)
    accuracies = compute_class_accuracies(ctx, is_correct, labels, classes)
    if ctx.num_tops < 2:
        return accuracies
    boxes = grid.decode(x[:, p.cls_num :], read_normalization(ctx), read_bounds(p))
    return accuracies, compute_mean_overlap(ctx, boxes, labels, 0.0)


@register(
    "DetectionGroupAccuracy",
    bottoms=3,
    tops=(1, 2),
    param="detection_group_accuracy_param",
    further_params=("bbox_reg_param",),
    in_place=False,
    differentiable=False,
    indices=Indices((2,)),
    counts_rows=True,
    origin="Cascade R-CNN",
)
def detection_group_accuracy(
    p: DetectionGroupAccuracyParameter, scores: jax.Array, deltas: jax.Array, truth: jax.Array, *, ctx: Context
) -> object:
    """Compute the top-1 accuracy of the classes, both over all cells and over the cells with an object.

    The bottoms are those of DetectionGroupLoss. The top (1, 1, 1, 2) contains both accuracies. An optional second top
    (1, 1, 1, 1) is the mean overlap of the predicted boxes with the objects, where a side is x2 - x1 + 1. Cells with
    label 0 and an overlap of at least `bg_threshold` are ignored. A mean over no cells is -1.
    """
    grid = make_anchor_grid(p.field_w, p.field_h, p.stride)
    require_score_and_delta_maps(scores.shape, deltas.shape)
    count_images(scores.shape[0], len(grid.widths))
    require(scores.shape[1] == p.cls_num, f"needs scores of cls_num {p.cls_num} classes, not {scores.shape[1]}")
    require(not p.objectness or p.cls_num == 2, f"objectness needs cls_num 2, not {p.cls_num}")
    labels = read_labels(truth, scores.shape, "bottom 2 (ground truth)")
    classes = jnp.minimum(labels.classes, 1) if p.objectness else labels.classes
    is_correct = jnp.argmax(promote(scores), axis=1) == classes
    accuracies = compute_class_accuracies(ctx, is_correct, labels, classes)
    if ctx.num_tops < 2:
        return accuracies
    boxes = grid.decode(promote(deltas), read_normalization(ctx), read_bounds(p))
    return accuracies, compute_mean_overlap(ctx, boxes, labels, 1.0)


_MAX_OVERLAP = 0.975  # an ROI with a larger overlap is a ground-truth box itself, and is ignored


@register(
    "BboxAccuracy",
    bottoms=3,
    tops=(1, 2),
    further_params=("bbox_reg_param",),
    in_place=False,
    differentiable=False,
    indices=Indices((1, 2)),
    counts_rows=True,
    origin="Cascade R-CNN",
)
def bbox_accuracy(deltas: jax.Array, rois: jax.Array, matched_truth: jax.Array, *, ctx: Context) -> object:
    """Compute the mean overlap of ROIs, moved by their deltas, with their matched ground truth.

    Bottoms: deltas (N, 4 * classes), or (N, 8) if not `cls_aware`; ROIs (N, 5); matched ground truth (N, 6) with rows
    [label, x1, y1, x2, y2, overlap]. The top has shape (1, 1, 1, 1). An optional second top of this shape is the mean
    overlap of the ROIs before they are moved. Only rows with a label above 0 and an overlap up to 0.975 count. If there
    are no such rows, the tops are -1.
    """
    require_equal_rows(deltas=deltas, rois=rois, matched=matched_truth)
    is_class_aware = ctx.layer.bbox_reg_param.cls_aware
    all_deltas = read_rows(promote(deltas), "bottom 0 (deltas)", *(() if is_class_aware else (8,)))
    rows, truth = (
        read_rows(promote(rois), "bottom 1 (ROIs)", 5),
        read_rows(promote(matched_truth), "bottom 2 (ground truth)", 6),
    )
    label = truth[:, 0].astype(jnp.int32)
    mask = (truth[:, 0] > 0) & (truth[:, -1] <= _MAX_OVERLAP) & (rows[:, 0] >= 0)
    first_column = 4 * (label if is_class_aware else jnp.minimum(label, 1))
    class_deltas = jnp.take_along_axis(
        all_deltas, first_column[:, None] + jnp.arange(4), axis=1
    )  # NaN for a class out of range
    num_boxes = cross_replica.psum(ctx, jnp.sum(mask, dtype=all_deltas.dtype))
    box_sets = apply_deltas(rows[:, 1:], read_normalization(ctx).denormalize(class_deltas)), rows[:, 1:]
    box_overlaps = [
        jnp.where(mask & (label > 0), overlaps(boxes, truth[:, 1:5], 1.0, must_touch=True), 0) for boxes in box_sets
    ]
    sums = [cross_replica.psum(ctx, jnp.sum(overlap)) for overlap in box_overlaps]
    means = [jnp.where(num_boxes > 0, s / jnp.maximum(num_boxes, 1), -1).reshape(1, 1, 1, 1) for s in sums]
    return tuple(means[: ctx.num_tops])
