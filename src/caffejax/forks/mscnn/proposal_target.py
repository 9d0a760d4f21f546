"""ProposalTarget, which samples regions of interest (ROIs) to train a detection stage, and computes their targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...base.errors import LayerError, require
from ...core.layers.context import Context, Shape
from ...core.layers.declaration import register
from ...core.layers.helpers import no_gradient, numpy_rng, promote_numpy
from ...core.schema.caffe_pb2 import ProposalTargetParameter
from ..detection.boxes import overlaps
from .anchors_and_deltas import expand_to_four_axes, read_normalization, read_rows, require_columns

_MIN_SIDE = 32  # pixels; the shortest side of a random box
_MAX_TRIES = 10_000


@dataclass(frozen=True)
class GroundTruth:
    """Ground-truth boxes of all images.

    Attributes:
        rows: (M, 5), rows [image, x1, y1, x2, y2] in pixels.
        labels: (M,), the class of each box; 0 is background.
        is_ignored: (M,), True for boxes whose matched ROIs are neither objects nor background.
    """

    rows: np.ndarray
    labels: np.ndarray
    is_ignored: np.ndarray


@dataclass(frozen=True)
class RoiSample:
    """Sampled ROIs: first objects, then background.

    Attributes:
        rows: (n, 5), rows [image, x1, y1, x2, y2] in pixels.
        match_index: (n,), the index of the matched ground truth, or -1.
        overlap: (n,), the overlap with the matched ground truth.
        num_objects: the number of objects.
    """

    rows: np.ndarray
    match_index: np.ndarray
    overlap: np.ndarray
    num_objects: int


def sample_rois(p: Any, rows: np.ndarray, truth: GroundTruth, make_rng: Callable[[], np.random.Generator]) -> RoiSample:
    """Return a sample of the ROIs: first objects, then background.

    Args:
        p: the ProposalTargetParameter.
        rows: (N, 5), all ROIs, as rows [image, x1, y1, x2, y2].
        truth: the ground truth.
        make_rng: a function that returns a random generator; called only if ROIs are sampled at random.
    """
    match_index, overlap = _match_rois(rows, truth)
    foreground_indices = np.flatnonzero(overlap >= p.fg_thr)
    require(
        np.all(truth.labels[match_index[foreground_indices]] > 0),
        f"ground truth must have labels above 0, not {truth.labels}",
    )
    object_indices = foreground_indices[~truth.is_ignored[match_index[foreground_indices]]]
    is_in_background_range = (overlap >= p.bg_thr_lw) & (overlap < p.bg_thr_hg)
    background_indices = np.flatnonzero(is_in_background_range & (overlap < p.fg_thr))
    discarded_indices = np.flatnonzero(~is_in_background_range & (overlap < p.fg_thr))
    if p.batch_size == -1:
        num_rois, max_objects = len(object_indices) + len(background_indices), len(object_indices)
    else:
        num_rois, max_objects = p.batch_size, int(np.floor(p.fg_fraction * p.batch_size + 0.5))
    object_indices = _sample_at_most(object_indices, min(max_objects, num_rois), make_rng)
    capacity = num_rois - len(object_indices)
    if len(background_indices) > capacity:
        background_indices = _sample_at_most(background_indices, capacity, make_rng)
    elif p.pickup_discard:
        background_indices = np.concatenate(
            [background_indices, discarded_indices[: capacity - len(background_indices)]]
        )
    sampled_indices = np.concatenate([object_indices, background_indices])
    if not len(sampled_indices):
        return RoiSample(_sample_random_box(p, truth, make_rng()), np.full(1, -1), np.zeros(1, overlap.dtype), 0)
    return RoiSample(rows[sampled_indices], match_index[sampled_indices], overlap[sampled_indices], len(object_indices))


def _match_rois(rows: np.ndarray, truth: GroundTruth) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of the ground truth that each ROI overlaps most, or -1, and their overlap, (N,) each.

    An ROI is only compared with ground truth of its own image.
    """
    if not len(truth.rows):
        return np.full(len(rows), -1), np.zeros(len(rows), rows.dtype)
    overlap = overlaps(rows[:, None, 1:], truth.rows[None, :, 1:], 1.0, must_touch=True).astype(rows.dtype)
    overlap = np.where(rows[:, None, 0] == truth.rows[None, :, 0], overlap, -1)
    best_index, largest_overlap = np.argmax(overlap, axis=1), np.max(overlap, axis=1)
    return np.where(largest_overlap < 0, -1, best_index), np.maximum(largest_overlap, 0)


def _sample_at_most(indices: np.ndarray, count: int, make_rng: Callable[[], np.random.Generator]) -> np.ndarray:
    return indices if len(indices) <= count else make_rng().permutation(indices)[:count]


def _sample_random_box(p: Any, truth: GroundTruth, rng: np.random.Generator) -> np.ndarray:
    """Return one random row [image, x1, y1, x2, y2] whose overlap with every object is below fg_thr, (1, 5)."""
    width, height = p.img_width, p.img_height
    require(
        min(width, height) > _MIN_SIDE,
        f"no ROI remains, and no random box can be sampled: img_width {width} and img_height {height} must be "
        f"above {_MIN_SIDE}",
    )
    for _ in range(_MAX_TRIES):
        corner = [rng.integers(width - _MIN_SIDE), rng.integers(height - _MIN_SIDE)]
        sides = [max(rng.integers(n - c), _MIN_SIDE) for n, c in zip((width, height), corner, strict=True)]
        end_corner = [c + s - 1 for c, s in zip(corner, sides, strict=True)]
        row = np.asarray([[rng.integers(p.num_img_per_batch), *corner, *end_corner]], truth.rows.dtype)
        if _match_rois(row, truth)[1][0] < p.fg_thr:
            return row
    raise LayerError(
        f"no ROI remains, and no random box can be sampled: {_MAX_TRIES} random boxes all overlap ground truth"
    )


@register(
    "ProposalTarget",
    bottoms=2,
    tops=(6, 7),
    param="proposal_target_param",
    further_params=("bbox_reg_param",),
    in_place=False,
    on_host=True,
    ragged_axis=0,
    backward=no_gradient,
    overrides_autodiff=True,
    origin="Cascade R-CNN",
    restrictions="If no ROI remains, one random box is sampled; MS-CNN's first version filled the batch.",
)
def proposal_target(
    p: ProposalTargetParameter, rois: np.ndarray, truth: np.ndarray, *, ctx: Context
) -> tuple[np.ndarray, ...]:
    """Sample ROIs for training, and compute their labels, box targets and weights.

    Bottoms: ROIs (N, 5) with rows [image, x1, y1, x2, y2], and ground truth (M, 7) with rows [image, x1, y1, x2, y2,
    label, ignored], which is added to the ROIs if `append_gtbox`. ROIs with an overlap of at least `fg_thr` are
    objects, and ROIs with an overlap from `bg_thr_lw` to `bg_thr_hg` are background. With `pickup_discard`, other ROIs
    fill the sample. The sample has `batch_size` ROIs, with at most the fraction `fg_fraction` of objects. If
    `batch_size` is -1, all ROIs are used.

    Tops for n ROIs: ROIs (n, 5); labels (n, 1); targets, inside weights and outside weights (n, 4 * classes), or (n, 8)
    if not `cls_aware`; matched ground truth (n, 6) with rows [label, x1, y1, x2, y2, overlap], which are 0 for
    background. In SmoothL1Loss, inside weights multiply the differences from the targets, and outside weights multiply
    the losses. A seventh top (n, 1) contains a weight for each ROI; objects together have the fraction `fg_fraction` of
    the total weight.
    """
    ground_truth = _read_truth(p, promote_numpy(truth))
    rows = read_rows(promote_numpy(rois), "bottom 0 (ROIs)", 5)
    rows = rows[rows[:, 0] >= 0]
    for name, image_indices in ("ROIs", rows[:, 0]), ("ground truth", ground_truth.rows[:, 0]):
        require(
            np.all(image_indices < p.num_img_per_batch),
            f"{name} must be in images 0 to {p.num_img_per_batch - 1} (num_img_per_batch {p.num_img_per_batch}), "
            f"not {image_indices.max(initial=0):g}",
        )
    if p.append_gtbox:
        rows = np.concatenate([rows, ground_truth.rows])
    sample = sample_rois(p, rows, ground_truth, lambda: numpy_rng(ctx))
    labels = np.zeros(len(sample.rows), rows.dtype)
    labels[: sample.num_objects] = ground_truth.labels[sample.match_index[: sample.num_objects]]
    tops = (
        sample.rows,
        labels[:, None],
        *_make_targets(ctx, sample, labels, ground_truth),
        _matched_rows(sample, labels, ground_truth),
    )
    weights = [_make_weights(p, sample, labels)] if ctx.num_tops > 6 else []
    return tuple(expand_to_four_axes(top.astype(rois.dtype)) for top in (*tops, *weights))


@proposal_target.top_shapes
def proposal_target_top_shapes(p: ProposalTargetParameter, rois: Any, truth: Any, *, ctx: Context) -> list[Shape]:
    require(p.batch_size == -1 or p.batch_size > 0, f"batch_size must be above 0, or -1 for all, not {p.batch_size}")
    require(p.fg_thr >= p.bg_thr_hg, f"fg_thr {p.fg_thr} must not be below bg_thr_hg {p.bg_thr_hg}")
    require(0 <= p.fg_fraction <= 1, f"fg_fraction must be between 0 and 1, not {p.fg_fraction}")
    require(p.cls_num > 1, f"cls_num, background included, must be 2 or more, not {p.cls_num}")
    require_columns(rois.shape, "bottom 0 (ROIs)", 5)
    num_columns = require_columns(truth.shape, "bottom 1 (ground truth)")
    require(
        num_columns >= 7,
        f"ground truth must have rows [image, x1, y1, x2, y2, label, ignored], not {num_columns} values",
    )
    read_normalization(ctx)
    num_all_rows = rois.shape[0] + (truth.shape[0] if p.append_gtbox else 0)
    num_rows = p.batch_size if p.batch_size > 0 else max(num_all_rows, 1)
    return [(num_rows, n, 1, 1) for n in (5, 1, *[_count_columns(ctx)] * 3, 6, 1)[: ctx.num_tops]]


def _count_columns(ctx: Context) -> int:
    return 4 * int(ctx.param.cls_num if ctx.layer.bbox_reg_param.cls_aware else 2)


def _read_truth(p: ProposalTargetParameter, truth: np.ndarray) -> GroundTruth:
    rows = read_rows(truth, "bottom 1 (ground truth)")
    rows = rows[rows[:, 0].astype(int) >= 0]
    labels, max_label = rows[:, 5].astype(int), p.cls_num - 1
    require(np.all(labels <= max_label), f"labels must not be above {max_label} (cls_num {max_label + 1}): {labels}")
    return GroundTruth(rows[:, :5], labels, rows[:, 6] != 0)


def _make_targets(ctx: Context, sample: RoiSample, labels: np.ndarray, truth: GroundTruth) -> tuple[np.ndarray, ...]:
    """Return box targets, inside weights and outside weights of the sampled ROIs, (rows, columns) each.

    The targets are the normalized deltas from an object to its ground truth, in the columns of its class, or of class 1
    if not `cls_aware`.
    """
    p, n = ctx.param, sample.num_objects
    boxes, matched_boxes = sample.rows[:n, 1:], truth.rows[sample.match_index[:n], 1:]
    sides, truth_sides = (b[:, 2:] - b[:, :2] + 1 for b in (boxes, matched_boxes))
    shift = (matched_boxes[:, :2] + truth_sides / 2 - boxes[:, :2] - sides / 2) / sides
    deltas = read_normalization(ctx).normalize(np.concatenate([shift, np.log(truth_sides / sides)], axis=1), xp=np)
    class_columns = labels[:n].astype(int) if ctx.layer.bbox_reg_param.cls_aware else np.ones(n, int)
    has_target = (p.bbox_thr_lw <= sample.overlap[:n]) & (sample.overlap[:n] <= p.bbox_thr_hg)
    targets = np.zeros((len(sample.rows), _count_columns(ctx) // 4, 4), boxes.dtype)
    weights = np.zeros_like(targets)
    targets[np.arange(n), class_columns] = deltas
    weights[np.arange(n), class_columns] = has_target[:, None]
    flat_shape = len(targets), _count_columns(ctx)
    return targets.reshape(flat_shape), weights.reshape(flat_shape), weights.reshape(flat_shape)


def _matched_rows(sample: RoiSample, labels: np.ndarray, truth: GroundTruth) -> np.ndarray:
    n = sample.num_objects
    rows = np.zeros((len(sample.rows), 6), sample.rows.dtype)
    rows[:n] = np.concatenate(
        [labels[:n, None], truth.rows[sample.match_index[:n], 1:], sample.overlap[:n, None]], axis=1
    )
    return rows


def _make_weights(p: Any, sample: RoiSample, labels: np.ndarray) -> np.ndarray:
    """Return the weight of each ROI, (rows, 1). If there are no objects, all weights are 1.

    Objects together have the fraction fg_fraction of the total weight. With iou_weighted, the weights of objects are
    proportional to their overlaps.
    """
    is_object = labels > 0
    weights = np.where(is_object & p.iou_weighted, sample.overlap, 1).astype(sample.rows.dtype)
    if np.any(is_object):
        fraction = np.where(is_object, p.fg_fraction, 1 - p.fg_fraction)
        sums = np.where(is_object, weights[is_object].sum(), max(weights[~is_object].sum(), 1))
        weights = weights * fraction * len(weights) / sums
    return weights[:, None]
