"""DetectionLoss and DetectionGroupLoss: losses of class scores and box deltas on maps, over a sample of the cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...core.layers import cross_replica
from ...core.layers.context import Context
from ...core.layers.declaration import declare, register
from ...core.layers.dtype_policy import promote
from ...core.layers.helpers import as_nchw
from ...core.layers.loss_helpers import in_valid_rows
from ...core.layers.types import Indices
from ...core.schema.caffe_pb2 import DetectionGroupLossParameter, DetectionLossParameter
from .anchors_and_deltas import (
    count_images,
    group_by_image,
    make_anchor_grid,
    read_bounds,
    read_normalization,
    require_joint_map,
    require_score_and_delta_maps,
    ungroup_images,
)


def masked_topk(scores: jax.Array, eligible: jax.Array, count: jax.Array) -> jax.Array:
    """Return the mask (rows, n) of the `count` largest eligible scores in each row.

    Among equal scores, the last is selected first.

    Args:
        scores: (rows, n).
        eligible: (rows, n), True for entries that may be selected.
        count: (rows,).
    """
    order = jnp.argsort(jnp.flip(jnp.where(eligible, -scores, jnp.inf), 1), axis=1, stable=True)
    rank = jnp.flip(jnp.argsort(order, axis=1), 1)
    return eligible & (rank < count[:, None])


def masked_sample(key: jax.Array, eligible: jax.Array, count: jax.Array) -> jax.Array:
    """Return the mask (rows, n) of `count` random eligible entries in each row.

    If a row has fewer eligible entries, all of them are selected.

    Args:
        key: a random key.
        eligible: (rows, n), True for entries that may be selected.
        count: (rows,).
    """
    return masked_topk(jax.random.uniform(key, eligible.shape), eligible, count)


_MIN_PROBABILITY = float(jnp.finfo(jnp.float32).tiny)  # smaller probabilities are set to this before the logarithm


@dataclass(frozen=True)
class CellLabels:
    """Ground truth at each cell of a map.

    Attributes:
        classes: (batch, height, width), int32; 0 is background.
        boxes: (batch, 4, height, width), x and y of the center, width and height, in pixels.
        overlap: (batch, height, width), the overlap of the cell's anchor with the nearest object.
    """

    classes: jax.Array
    boxes: jax.Array
    overlap: jax.Array

    def ignored_mask(self, ctx: Any, classes: jax.Array) -> jax.Array:
        """Return the mask of cells where `classes` is the ignore_label of loss_param, (batch, height, width)."""
        p = ctx.layer.loss_param
        return classes == p.ignore_label if p.HasField("ignore_label") else jnp.zeros(classes.shape, bool)


def read_labels(x: jax.Array, score_shape: Any, name: str) -> CellLabels:
    """Return the ground truth in a bottom (batch, 6, height, width), with label, box and overlap of each cell.

    `score_shape` is the shape of bottom 0, and `name` is the name of the bottom in messages.

    Raises:
        LayerError: if the shape does not match that of the scores.
    """
    batch, _, height, width = as_nchw(score_shape, "bottom 0")
    require(
        tuple(x.shape) == (batch, 6, height, width),
        f"{name} must have label, box (4) and overlap for each cell, ({batch}, 6, {height}, {width}), not {x.shape}",
    )
    x = jax.lax.stop_gradient(x)
    return CellLabels(x[:, 0].astype(jnp.int32), x[:, 1:5], x[:, 5])


def log_probabilities(scores: jax.Array) -> jax.Array:
    """Return the log-softmax of scores over axis 1.

    As in the forks, probabilities are at least the smallest normal float32.
    """
    return jnp.maximum(jax.nn.log_softmax(scores, axis=1), jnp.log(jnp.asarray(_MIN_PROBABILITY, scores.dtype)))


def class_loss(ctx: Context, scores: jax.Array, classes: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the weighted mean of -log(probability of the cell's class), and its gradient with respect to the scores.

    The weighted sum is divided by the number of cells with a weight, not by the sum of the weights.

    Args:
        ctx: the layer.
        scores: (batch, classes, height, width).
        classes: (batch, height, width). The loss is NaN if the class of a cell with a weight is out of range.
        weights: (batch, height, width), NaN for cells without a weight, which do not contribute to the loss.
    """
    is_label = classes[:, None] == jnp.arange(scores.shape[1])[:, None, None]
    mask = ~jnp.isnan(weights)
    weights = jnp.where(mask, weights, 0)
    count = cross_replica.global_count(ctx, mask).astype(scores.dtype)
    loss = -jnp.sum(jnp.where(is_label, log_probabilities(scores), 0) * weights[:, None]) / count
    is_valid = jnp.all(jnp.any(is_label, axis=1) | ~mask)
    return jnp.where(is_valid, loss, jnp.nan), (jax.nn.softmax(scores, axis=1) - is_label) * weights[:, None] / count


def box_loss(
    ctx: Context, deltas: jax.Array, targets: jax.Array, mask: jax.Array, is_smooth: bool
) -> tuple[jax.Array, jax.Array]:
    """Return the loss of deltas as a scalar, and its gradient with respect to the deltas.

    The loss is the mean of half the squared differences or of smooth L1 over all deltas of the cells in `mask`.

    Args:
        ctx: the layer.
        deltas, targets: (batch, 4, height, width).
        mask: (batch, height, width), True for cells that contribute to the loss.
        is_smooth: whether to use smooth L1, which is linear where the absolute difference is more than 1.
    """
    difference = jnp.where(mask[:, None], deltas - targets, 0)
    slope = jnp.clip(difference, -1, 1) if is_smooth else difference
    count = 4 * cross_replica.global_count(ctx, mask).astype(deltas.dtype)
    return jnp.sum(slope * (difference - slope / 2)) / count, slope / count


def stack_losses(ctx: Context, class_value: jax.Array, box_value: jax.Array) -> jax.Array:
    """Return the top (1, 1, 1, 2): the sum of the losses of classes and boxes, then the loss of boxes.

    Both are averaged over the batches of all devices.
    """
    return cross_replica.pmean(ctx, jnp.stack([class_value + box_value, box_value])).reshape(1, 1, 1, 2)


def compute_gradient_scale(ctx: Context, dy: jax.Array) -> jax.Array:
    """Return the scale of this device's gradients: the first value of dy, divided by the number of devices."""
    return dy.reshape(2)[0] / cross_replica.axis_size(ctx)


def balanced_weights(
    ctx: Context, is_object: jax.Array, is_background: jax.Array, ratio: float, dtype: Any
) -> tuple[jax.Array, jax.Array]:
    """Return the weight of an object cell and the weight of a background cell, two scalars.

    The object cells together have the fraction `ratio` of the total weight.

    Args:
        ctx: the layer.
        is_object: (batch, height, width), the mask of the sampled object cells.
        is_background: (batch, height, width), the mask of the sampled background cells.
        ratio: from 0 to 1.
        dtype: the dtype of the weights.
    """
    sums = [cross_replica.psum(ctx, jnp.sum(mask, dtype=dtype)) for mask in (is_object, is_background)]
    object_weight, background_weight = (
        jnp.where(total > 0, fraction * sum(sums) / jnp.maximum(total, 1), 1)
        for fraction, total in zip((ratio, 1 - ratio), sums, strict=True)
    )
    return object_weight, background_weight


_MIN_BACKGROUND_CELLS = 4  # the minimum number of background cells selected for each class

Losses = tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


@declare(
    "DetectionLoss",
    bottoms=2,
    param="detection_loss_param",
    further_params=("bbox_reg_param",),
    loss=True,
    in_place=False,
    overrides_autodiff=True,
    indices=Indices((1,)),
    counts_rows=True,
    origin="MS-CNN",
)
def detection_loss(p: DetectionLossParameter, x: jax.Array, truth: jax.Array, *, ctx: Context) -> jax.Array:
    """Compute the softmax loss of classes plus `lambda` times the loss of deltas, over objects and some background.

    Bottoms: a map (N, cls_num + 4, H, W) of scores and deltas, and ground truth (N, 6, H, W) with label, box (4) and
    overlap. The top (1, 1, 1, 2) contains the sum, then `lambda` times the loss of deltas; the diff of the second value
    is ignored. Background cells have label 0 and an overlap below `bg_threshold`. `sample_mode` selects `bg_multiple`
    background cells for each object. "bootstrap" selects, for each class of objects, the cells with the largest scores
    of this class. "random" selects cells at random. "mixture" selects half of the cells in each of these ways. Any
    other value selects all background cells. Deltas are clipped to their bounds in the loss, and the gradient ignores
    the clipping.
    """
    (class_value, _), (box_value, _) = _compute_map_losses(ctx, x, truth)
    return stack_losses(ctx, class_value, getattr(p, "lambda") * box_value)


@detection_loss.backward
def detection_loss_backward(
    p: DetectionLossParameter, x: jax.Array, truth: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context
) -> tuple[jax.Array, None]:
    (_, d_scores), (_, d_deltas) = _compute_map_losses(ctx, x, truth)
    dx = jnp.concatenate([d_scores, getattr(p, "lambda") * d_deltas], axis=1)
    return compute_gradient_scale(ctx, dy) * dx, None


def _compute_map_losses(ctx: Context, x: jax.Array, truth: jax.Array) -> Losses:
    """Return the loss of classes and the loss of boxes, each with its gradient.

    The gradients are with respect to the scores, (N, cls_num, H, W), and with respect to the deltas, (N, 4, H, W).
    """
    p, norm = ctx.param, read_normalization(ctx)
    grid = make_anchor_grid([p.field_w], [p.field_h], p.downsample_rate, "downsample_rate")
    require_joint_map(p, x.shape)
    labels = read_labels(truth, x.shape, "bottom 1 (ground truth)")
    x = promote(x)
    scores, deltas = x[:, : p.cls_num], x[:, p.cls_num :]
    is_object, is_background = labels.classes != 0, _select_background(ctx, scores, labels)
    weights = jnp.ones(is_object.shape, x.dtype)
    if p.pos_neg_weighted:
        object_weight, background_weight = balanced_weights(
            ctx, is_object, is_background, 1 / (1 + p.bg_multiple), x.dtype
        )
        weights = jnp.where(
            is_object, object_weight, jnp.where(cross_replica.psum(ctx, jnp.sum(is_object)) > 0, background_weight, 1)
        )
    is_ignored = labels.ignored_mask(ctx, labels.classes)
    mask = (is_object | is_background) & ~is_ignored
    class_result = class_loss(ctx, scores, labels.classes, jnp.where(mask, weights, jnp.nan))
    deltas = read_bounds(p).clip_normalized(deltas, 1, norm)
    targets = grid.encode(promote(labels.boxes), norm)
    return class_result, box_loss(ctx, deltas, targets, is_object & ~is_ignored, p.bb_smooth)


def _find_background(ctx: Context, labels: CellLabels) -> jax.Array:
    """Return the mask of cells without an object, (batch, height, width)."""
    return in_valid_rows(ctx, (labels.classes == 0) & (labels.overlap < ctx.param.bg_threshold))


def _select_background(ctx: Context, scores: jax.Array, labels: CellLabels) -> jax.Array:
    """Return the mask of background cells that `sample_mode` selects, (batch, height, width)."""
    p, shape = ctx.param, labels.classes.shape
    num_cells = shape[1] * shape[2]
    eligible = _find_background(ctx, labels).reshape(shape[0], num_cells)
    if p.sample_mode not in ("bootstrap", "random", "mixture"):
        return eligible.reshape(shape)
    ratio = p.bg_multiple * (0.5 if p.sample_mode == "mixture" else 1.0)
    selected = jnp.zeros(eligible.shape, bool)
    classes = labels.classes.reshape(shape[0], num_cells)
    if p.sample_mode != "random":
        for k in range(1, p.cls_num):
            count = jnp.floor(jnp.sum(classes == k, axis=1) * ratio).astype(jnp.int32)
            class_scores = scores[:, k].reshape(shape[0], num_cells)
            selected |= masked_topk(class_scores, eligible, jnp.maximum(count, _MIN_BACKGROUND_CELLS))
    if p.sample_mode != "bootstrap":
        count = jnp.floor(jnp.sum(classes != 0, axis=1) * ratio).astype(jnp.int32)
        min_count = _MIN_BACKGROUND_CELLS * (p.cls_num - 1)
        selected |= _sample_with_repetition(
            ctx.key, eligible, jnp.maximum(count, min_count), max(int(num_cells * ratio), min_count)
        )
    return selected.reshape(shape)


def _sample_with_repetition(key: jax.Array, eligible: jax.Array, count: jax.Array, max_count: int) -> jax.Array:
    """Sample `count` random entries of each row with replacement; return the mask of eligible entries in the sample.

    Args:
        key: a random key.
        eligible: (rows, n), True for entries that may be selected.
        count: (rows,), the number of sampled entries.
        max_count: the largest possible count.
    """
    num_rows, num_cells = eligible.shape
    indices = jax.random.randint(key, (num_rows, max_count), 0, num_cells)
    indices = jnp.where(
        jnp.arange(max_count) < count[:, None], indices, num_cells
    )  # an index out of range selects nothing
    return eligible & jax.vmap(lambda row_indices: jnp.zeros(num_cells, bool).at[row_indices].set(True, mode="drop"))(
        indices
    )


@register(
    "DetectionGroupLoss",
    bottoms=3,
    param="detection_group_loss_param",
    further_params=("bbox_reg_param",),
    loss=True,
    in_place=False,
    overrides_autodiff=True,
    indices=Indices((2,)),
    counts_rows=True,
    origin="Cascade R-CNN",
    restrictions="Clipping the deltas does not change the bottom, which other layers read.",
)
def detection_group_loss(
    p: DetectionGroupLossParameter, scores: jax.Array, deltas: jax.Array, truth: jax.Array, *, ctx: Context
) -> jax.Array:
    """Compute the softmax loss of classes plus `lambda` times the loss of deltas, over a sample of the cells.

    Bottoms: scores (images * anchors, cls_num, H, W), deltas (images * anchors, 4, H, W), and ground truth (images *
    anchors, 6, H, W) with label, box (4) and overlap. The top (1, 1, 1, 2) contains the sum, then `lambda` times the
    loss of deltas; the diff of the second value is ignored. Objects have labels above 0. Background cells have label 0
    and an overlap below `bg_threshold`. The sample of an image has `batch_size` cells, with `bg_multiple` background
    cells for each object. If `batch_size` is -1, it has all objects. `neg_mining_type` selects background cells at
    random ("random"), by the largest loss ("bootstrap"), or half of them in each of these ways ("mixture"). With
    field_xyr and field_whr, deltas are clipped to their bounds in the loss, and the gradient ignores the clipping.
    """
    (class_value, _), (box_value, _) = _compute_group_losses(ctx, scores, deltas, truth)
    return stack_losses(ctx, class_value, getattr(p, "lambda") * box_value)


@detection_group_loss.backward
def detection_group_loss_backward(
    p: DetectionGroupLossParameter,
    scores: jax.Array,
    deltas: jax.Array,
    truth: jax.Array,
    *,
    y: jax.Array,
    dy: jax.Array,
    ctx: Context,
) -> tuple[jax.Array, jax.Array, None]:
    (_, d_scores), (_, d_deltas) = _compute_group_losses(ctx, scores, deltas, truth)
    weight = compute_gradient_scale(ctx, dy)
    return weight * d_scores, weight * getattr(p, "lambda") * d_deltas, None


def _compute_group_losses(ctx: Context, scores: jax.Array, deltas: jax.Array, truth: jax.Array) -> Losses:
    """Return the loss of classes and the loss of boxes, each with its gradient.

    The first gradient is with respect to the scores, the second with respect to the deltas.
    """
    p, norm = ctx.param, read_normalization(ctx)
    grid = make_anchor_grid(p.field_w, p.field_h, p.stride)
    require_score_and_delta_maps(scores.shape, deltas.shape)
    require(scores.shape[1] == p.cls_num, f"needs scores of cls_num {p.cls_num} classes, not {scores.shape[1]}")
    require(not p.objectness or p.cls_num == 2, f"objectness needs cls_num 2, not {p.cls_num}")
    require(
        p.bbox_loss_type in ("Smooth_L1", "Euclidean_L2"),
        f"bbox_loss_type must be Smooth_L1 or Euclidean_L2, not '{p.bbox_loss_type}'",
    )
    labels = read_labels(truth, scores.shape, "bottom 2 (ground truth)")
    scores, deltas = promote(scores), promote(deltas)
    is_sampled = _sample_cells(ctx, scores, labels, len(grid.widths))
    classes = jnp.minimum(labels.classes, 1) if p.objectness else labels.classes
    weights = _cell_weights(ctx, labels, is_sampled, scores.dtype)
    class_result = class_loss(
        ctx, scores, classes, jnp.where(is_sampled & ~labels.ignored_mask(ctx, classes), weights, jnp.nan)
    )
    if p.HasField("field_xyr") and p.HasField("field_whr"):
        deltas = read_bounds(p).clip_normalized(deltas, 1, norm)
    mask = is_sampled & (labels.classes != 0) & ~labels.ignored_mask(ctx, labels.classes)
    targets = grid.encode(promote(labels.boxes), norm)
    return class_result, box_loss(ctx, deltas, targets, mask, p.bbox_loss_type == "Smooth_L1")


def _sample_cells(ctx: Context, scores: jax.Array, labels: CellLabels, num_anchors: int) -> jax.Array:
    """Sample cells of each image; return the mask of sampled cells, (batch, height, width)."""
    p, shape = ctx.param, labels.classes.shape
    require(p.batch_size == -1 or p.batch_size > 0, f"batch_size must be above 0, or -1 for all, not {p.batch_size}")
    num_images = count_images(shape[0], num_anchors)

    def flatten(x: jax.Array) -> jax.Array:
        return group_by_image(x, num_images, num_anchors).reshape(num_images, num_anchors * shape[1] * shape[2])

    is_object = flatten(labels.classes > 0)
    is_background = flatten(_find_background(ctx, labels))
    num_objects = jnp.sum(is_object, axis=1, dtype=jnp.int32)
    if p.batch_size == -1:
        num_background = jnp.maximum(num_objects * p.bg_multiple, p.min_num_neg)
    else:
        num_objects = jnp.minimum(num_objects, int(p.batch_size / (1 + p.bg_multiple) + 0.5))
        num_background = p.batch_size - num_objects
        is_object = masked_sample(jax.random.fold_in(ctx.key, 0), is_object, num_objects)
    num_background = jnp.minimum(num_background, jnp.sum(is_background, axis=1, dtype=jnp.int32))
    rankings = ("conf_loss", "conf_prob")  # both give the same order: less probable background has a larger loss
    require(p.neg_ranking_type in rankings, f"neg_ranking_type must be one of {rankings}, not '{p.neg_ranking_type}'")
    losses = flatten(-jax.nn.log_softmax(scores, axis=1)[:, 0])
    match p.neg_mining_type:
        case "bootstrap":
            is_background = masked_topk(losses, is_background, num_background)
        case "mixture":
            is_hardest = masked_topk(losses, is_background, (num_background + 1) // 2)
            is_random = masked_sample(jax.random.fold_in(ctx.key, 1), is_background & ~is_hardest, num_background // 2)
            is_background = is_hardest | is_random
        case "random":
            is_background = masked_sample(jax.random.fold_in(ctx.key, 1), is_background, num_background)
        case unknown_type:
            require(False, f"neg_mining_type must be random, bootstrap or mixture, not '{unknown_type}'")
    selected = (is_object | is_background).reshape(num_images, num_anchors, *shape[1:])
    return ungroup_images(selected, shape[0], num_anchors)


def _cell_weights(ctx: Context, labels: CellLabels, is_sampled: jax.Array, dtype: Any) -> jax.Array:
    """Return the weight of each cell in the class loss, (batch, height, width).

    `is_sampled` is the mask of the sampled cells, of the same shape.
    """
    p, is_object = ctx.param, labels.classes > 0
    if not p.pos_neg_weighted:
        return jnp.ones(is_object.shape, dtype)
    return jnp.where(
        is_object,
        *balanced_weights(ctx, is_object & is_sampled, ~is_object & is_sampled, 1 / (1 + p.bg_multiple), dtype),
    )
