"""DecodeBBox, ScaleRoute and HardMining, which move ROIs by deltas, and select ROIs by scale or by score."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...base.errors import require
from ...core.layers.context import Context, LayerDefinition, Shape
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.layers.helpers import no_gradient, pad_to_four_axes, promote_numpy
from ...core.layers.types import (
    IMAGE_INDICES_PER_DEVICE,
    SAME_AS_BOTTOMS,
    HostFunction,
    LayerType,
    Traced,
)
from ...core.schema.caffe_pb2 import HardMiningParameter
from .anchors_and_deltas import (
    apply_deltas,
    expand_to_four_axes,
    read_normalization,
    read_rows,
    require_columns,
    require_equal_rows,
)


@register(
    "DecodeBBox",
    bottoms=(2, 3),
    param="decode_bbox_param",
    further_params=("bbox_reg_param",),
    in_place=False,
    per_layer=True,
    backward=no_gradient,
    overrides_autodiff=True,
    row_wise=lambda *, phase: phase == "TEST",
    origin="Cascade R-CNN",
    restrictions="In TRAIN it runs on the host.",
)
def make_decode_bbox(definition: LayerDefinition, *, ctx: Context) -> LayerType:
    """Move each ROI by the last four of its deltas. The top has rows [image, x1, y1, x2, y2], (N, 5, 1, 1).

    Bottoms: deltas (N, 8), ROIs (N, 5) and, in TRAIN, optionally the matched ground truth, whose last column is the
    overlap. A side is x2 - x1 + 1, and deltas of 0 do not change a box. In TRAIN, the layer runs on the host and drops
    boxes without positive sides. With a third bottom, it also drops ROIs with an overlap of at least `gt_iou_thr`.
    """
    if not ctx.training:
        return replace(ctx.type, implementation=Traced(decode_bbox))
    return replace(ctx.type, implementation=HostFunction(decode_bbox_on_host, decode_bbox_top_shapes, ragged_axis=0))


def decode_bbox(deltas: jax.Array, rois: jax.Array, *matched_truth: jax.Array, ctx: Context) -> jax.Array:
    """Return the moved ROIs as rows [image, x1, y1, x2, y2], (N, 5, 1, 1).

    Padding rows keep their negative image index.
    """
    require(not matched_truth, "takes a third bottom, the matched ground truth, only in TRAIN")
    deltas, rows = _read_deltas_and_rois(deltas, rois)
    boxes = apply_deltas(promote(rows)[:, 1:], read_normalization(ctx).denormalize(promote(deltas)[:, 4:]))
    return expand_to_four_axes(jnp.concatenate([rows[:, :1], boxes.astype(rows.dtype)], axis=1))


def decode_bbox_on_host(deltas: np.ndarray, rois: np.ndarray, *matched_truth: np.ndarray, ctx: Context) -> np.ndarray:
    delta_rows, rows = map(promote_numpy, _read_deltas_and_rois(deltas, rois, *matched_truth))
    boxes = apply_deltas(rows[:, 1:], read_normalization(ctx).denormalize(delta_rows[:, 4:], xp=np), xp=np)
    mask = np.all(boxes[:, 2:] >= boxes[:, :2], axis=1) & (rows[:, 0] >= 0)
    for matches in matched_truth:
        overlap = read_rows(promote_numpy(matches), "bottom 2 (matched ground truth)")[:, -1]
        mask &= overlap < ctx.layer.decode_bbox_param.gt_iou_thr
    require(np.any(mask), f"none of {len(rows)} boxes remains: each is empty or is ground truth")
    return np.asarray(expand_to_four_axes(np.concatenate([rows[:, :1], boxes], axis=1)[mask].astype(rois.dtype)))


def decode_bbox_top_shapes(deltas: Any, rois: Any, *matched_truth: Any, ctx: Context) -> list[Shape]:
    read_normalization(ctx)
    _require_rows(deltas, rois, *matched_truth)
    return [(rois.shape[0], 5, 1, 1)]


def _read_deltas_and_rois(deltas: Any, rois: Any, *matched_truth: Any) -> tuple[Any, Any]:
    _require_rows(deltas, rois, *matched_truth)
    return read_rows(deltas, "bottom 0 (deltas)", 8), read_rows(rois, "bottom 1 (ROIs)", 5)


def _require_rows(deltas: Any, rois: Any, *matched_truth: Any) -> None:
    require_equal_rows(deltas=deltas, rois=rois, **dict(zip(("matched",), matched_truth, strict=False)))
    require_columns(deltas.shape, "bottom 0 (deltas)", 8)
    require_columns(rois.shape, "bottom 1 (ROIs)", 5)


_DEFAULT_SCALE = 256.0  # pixels; replaces the geometric mean if no bound is set


@register(
    "ScaleRoute",
    bottoms=(1, None),
    tops=SAME_AS_BOTTOMS,
    param="scale_route_param",
    in_place=False,
    per_layer=True,
    backward=no_gradient,
    overrides_autodiff=True,
    pads_rows=True,
    origin="Cascade R-CNN",
    restrictions="In TRAIN, and with several bottoms, it runs on the host.",
    unsupported={
        "shard": "selected rows of all images move to the front, and padding rows to the end",
        "joint_batch": IMAGE_INDICES_PER_DEVICE,
    },
)
def make_scale_route(definition: LayerDefinition, *, ctx: Context) -> LayerType:
    """Select the ROIs (N, 5) whose scale is in [`low_scale`, `high_scale`). The scale is the square root of the area.

    A side is x2 - x1 + 1. If no ROI is in this range, the ROI nearest to the geometric mean of the bounds is selected.
    For each further bottom, there is a top with the rows of the selected ROIs. No gradient passes. In TRAIN, and with
    further bottoms, the layer runs on the host. Otherwise the top has N rows, with padding rows of -1 at the end.
    """
    if ctx.training or len(definition.layer.bottom) > 1:
        host_layer = HostFunction(scale_route_on_host, scale_route_top_shapes, ragged_axis=0)
        return replace(ctx.type, implementation=host_layer, traits=replace(ctx.type.traits, pads_rows=False))
    return replace(ctx.type, implementation=Traced(scale_route))


def scale_route(p: Any, rois: jax.Array) -> jax.Array:
    """Return the selected ROIs, rows [image, x1, y1, x2, y2], (N, 5, 1, 1), followed by padding rows of -1."""
    rows = read_rows(lax.stop_gradient(rois), "bottom 0 (ROIs)", 5)
    selected = _select_in_range(p, promote(rows), jnp)
    order = jnp.argsort(~selected, stable=True)
    return expand_to_four_axes(jnp.where(selected[order][:, None], rows[order], -1))


def scale_route_on_host(p: Any, rois: np.ndarray, *further_bottoms: np.ndarray) -> tuple[np.ndarray, ...]:
    selected = np.flatnonzero(_select_in_range(p, read_rows(promote_numpy(rois), "bottom 0 (ROIs)", 5), np))
    return tuple(expand_to_four_axes(x)[selected] for x in (rois, *further_bottoms))


def scale_route_top_shapes(p: Any, rois: Any, *further_bottoms: Any) -> list[Shape]:
    _read_scale_bounds(p)
    require_columns(rois.shape, "bottom 0 (ROIs)", 5)
    for i, x in enumerate(further_bottoms, 1):
        require(x.shape[:1] == rois.shape[:1], f"bottom {i} must have one row per ROI, not shape {x.shape}")
    return [pad_to_four_axes(x.shape) for x in (rois, *further_bottoms)]


def _read_scale_bounds(p: Any) -> tuple[float, float, float]:
    """Return the lower and the upper bound of the scale, and their geometric mean, in pixels."""
    bounds = [getattr(p, name) for name in ("low_scale", "high_scale") if p.HasField(name)]
    require(all(bound > 0 for bound in bounds), f"low_scale and high_scale must be above 0: {bounds}")
    low = p.low_scale if p.HasField("low_scale") else 0.0
    high = p.high_scale if p.HasField("high_scale") else math.inf
    require(low <= high, f"low_scale {low} must not be above high_scale {high}")
    return low, high, math.prod(bounds) ** (1 / len(bounds)) if bounds else _DEFAULT_SCALE


def _select_in_range(p: Any, rows: Any, xp: Any) -> Any:
    """Return the mask (N,) of ROIs with a scale in the range or else of the nearest ROI.

    Padding rows are never selected.
    """
    require(rows.shape[0] != 0, "needs one ROI or more, but bottom 0 has no rows")
    low, high, mean_scale = _read_scale_bounds(p)
    valid = rows[:, 0] >= 0
    sides = rows[:, 3:] - rows[:, 1:3]
    scale = xp.sqrt(xp.where(xp.all(sides >= 0, axis=1), (sides[:, 0] + 1) * (sides[:, 1] + 1), 0))
    is_in_range = valid & (scale >= low) & (scale < high)
    tiny = xp.finfo(scale.dtype).tiny
    distance = xp.where(valid, xp.abs(xp.log2(xp.maximum(scale, tiny) / mean_scale)), xp.inf)
    is_nearest = (xp.arange(rows.shape[0]) == xp.argmin(distance)) & valid
    return xp.where(xp.any(is_in_range), is_in_range, is_nearest)


@register(
    "HardMining",
    bottoms=(2, None),
    tops=(1, None),
    param="hard_mining_param",
    in_place=False,
    on_host=True,
    ragged_axis=0,
    backward=no_gradient,
    overrides_autodiff=True,
    origin="Cascade R-CNN",
)
def hard_mining(
    p: HardMiningParameter, scores: np.ndarray, rois: np.ndarray, *further_bottoms: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Select the `num_roi_per_image` rows of each image with the largest scores.

    Bottoms: scores (N,), such as losses, then ROIs (N, 5) with rows [image, x1, y1, x2, y2], and further bottoms with N
    rows. There is a top for each bottom after the scores, with num_image * num_roi_per_image rows in their original
    order, or all rows if there are fewer. If an image has fewer rows than num_roi_per_image, the best remaining rows of
    other images are added. No gradient passes.
    """
    image_indices = read_rows(rois, "bottom 1 (ROIs)", 5)[:, 0].astype(int)
    valid = image_indices >= 0
    require(
        np.all(image_indices < p.num_image),
        f"ROIs must be in images 0 to {p.num_image - 1} (num_image {p.num_image}), not {image_indices.max(initial=0)}",
    )
    indices, flat_scores = np.arange(len(image_indices)), promote_numpy(scores).reshape(-1)
    order = np.lexsort((-indices, -flat_scores, image_indices))  # if scores are equal, the last comes first
    order = order[valid[order]]
    image_starts = np.searchsorted(image_indices[order], image_indices[order])
    rank = np.arange(len(order)) - image_starts
    remaining_indices = order[rank >= p.num_roi_per_image]
    selected_indices = order[rank < p.num_roi_per_image]
    added_indices = remaining_indices[np.lexsort((-remaining_indices, -flat_scores[remaining_indices]))][
        : _limit_rows(p, int(valid.sum())) - len(selected_indices)
    ]
    row_indices = np.sort(np.concatenate([selected_indices, added_indices]))
    return tuple(expand_to_four_axes(x)[row_indices] for x in (rois, *further_bottoms))


@hard_mining.top_shapes
def hard_mining_top_shapes(
    p: HardMiningParameter, scores: Any, rois: Any, *further_bottoms: Any, num_tops: int
) -> list[Shape]:
    require(
        p.num_image > 0 and p.num_roi_per_image > 0,
        f"num_image {p.num_image} and num_roi_per_image {p.num_roi_per_image} must be above 0",
    )
    require(
        num_tops == 1 + len(further_bottoms),
        f"needs {1 + len(further_bottoms)} tops, one for each bottom except the scores, not {num_tops}",
    )
    for i, x in enumerate((rois, *further_bottoms), 1):
        require(x.shape[:1] == scores.shape[:1], f"bottom {i} must have one row per score, not shape {x.shape}")
    require(all(n == 1 for n in scores.shape[1:]), f"bottom 0 must have one score per row, not shape {scores.shape}")
    require_columns(rois.shape, "bottom 1 (ROIs)", 5)
    num_rows = _limit_rows(p, rois.shape[0])
    return [(num_rows, *pad_to_four_axes(x.shape)[1:]) for x in (rois, *further_bottoms)]


def _limit_rows(p: HardMiningParameter, num_rows: int) -> int:
    return int(min(p.num_image * p.num_roi_per_image, num_rows))
