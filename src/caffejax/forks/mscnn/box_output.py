"""BoxOutput, BoxGroupOutput and FrcnnOutput, which select the best boxes by non-maximum suppression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...base.errors import require
from ...core.layers.context import Context
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.layers.helpers import as_nchw
from ...core.layers.types import IMAGE_INDICES_PER_DEVICE
from ...core.schema.caffe_pb2 import BoxGroupOutputParameter, BoxOutputParameter, FrcnnOutputParameter
from ..detection.boxes import Divisor, non_max_suppression, overlaps, select_best
from .anchors_and_deltas import (
    AnchorGrid,
    apply_deltas,
    count_images,
    expand_to_four_axes,
    group_by_image,
    make_anchor_grid,
    read_bounds,
    read_normalization,
    read_rows,
    require_equal_rows,
    require_score_and_delta_maps,
)

_EMPTY_ROI = (0.0, 1.0, 1.0, 10.0, 10.0)  # the only ROI if no box is selected
_PADDING_VALUE = -1.0


Measure = Callable[[jax.Array, jax.Array], jax.Array]
_DIVISORS: dict[str, Divisor] = {"IOU": "union", "IOMU": "smaller", "IOFU": "first"}


def make_overlap_measure(nms_type: str, side_offset: float) -> Measure:
    """Return the function that computes overlaps of boxes for an `nms_type`.

    An overlap is the area of the intersection, divided by the area of the union (IOU), by the smaller area (IOMU), or
    by the area of the first box (IOFU). `side_offset` is added to x2 - x1 to get the side of a box.

    Raises:
        LayerError: if the forks do not have this type.
    """
    require(nms_type in _DIVISORS, f"nms_type must be one of {', '.join(_DIVISORS)}, not '{nms_type}'")
    return partial(overlaps, side_offset=side_offset, must_touch=True, divisor=_DIVISORS[nms_type])


@dataclass(frozen=True)
class SelectionSettings:
    """Settings of non-maximum suppression.

    Attributes:
        threshold: a box is suppressed if its overlap with a better box exceeds this.
        measure: the function that computes overlaps.
        n_candidates: the number of best boxes of an image that suppression considers, or 0 for all.
        max_selected: the maximum number of boxes that remain after suppression, or 0 for all.
    """

    threshold: float
    measure: Measure
    n_candidates: int
    max_selected: int

    def select_boxes(self, boxes: jax.Array, scores: jax.Array, valid: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the selected rows [x1, y1, x2, y2, score] of an image, best first, and a mask, False for padding rows.

        Args:
            boxes: (n, 4).
            scores: (n,). Boxes with equal scores keep their order.
            valid: (n,), False for boxes that are ignored.
        """
        indices, selected = select_best(
            boxes,
            scores,
            valid,
            self.threshold,
            n_candidates=self.n_candidates or None,
            max_selected=self.max_selected or None,
            measure=self.measure,
        )
        return jnp.concatenate([boxes, scores[:, None]], axis=1)[indices], selected


def read_selection_settings(p: Any, side_offset: float) -> SelectionSettings:
    """Return the layer's settings of non-maximum suppression.

    `side_offset` is added to x2 - x1 to get the side of a box.
    """
    measure = make_overlap_measure(p.nms_type, side_offset)
    require(p.min_size >= 0, f"min_size must not be below 0, but is {p.min_size}")
    return SelectionSettings(p.iou_thr, measure, p.max_nms_num, p.max_post_nms_num)


def make_proposals(
    selection_settings: SelectionSettings,
    boxes: jax.Array,
    scores: jax.Array,
    valid: jax.Array,
    n_tops: int,
    dtype: Any,
) -> tuple[jax.Array, ...]:
    """Select boxes; return one or two tops with rows [image, x1, y1, x2, y2] and [image, x1, y1, x2, y2, score].

    The tops have the shapes (R, 5, 1, 1) and (R, 6, 1, 1). Padding rows of -1 come last. If no box is selected, the
    first row of the first top is [0, 1, 1, 10, 10], and the first row of the second top is zero.

    Args:
        selection_settings: the settings.
        boxes, scores, valid: the arguments of `SelectionSettings.select_boxes`, with an additional first axis for the
            images.
        n_tops: the number of tops, 1 or 2.
        dtype: the dtype of the tops.
    """
    rows, selected = jax.vmap(selection_settings.select_boxes)(boxes, scores, valid)
    image_indices = jnp.broadcast_to(jnp.arange(rows.shape[0], dtype=rows.dtype)[:, None, None], (*rows.shape[:2], 1))
    rows = jnp.concatenate([image_indices, rows], axis=2).reshape(-1, 6)
    selected = selected.reshape(-1)
    order = jnp.argsort(~selected, stable=True)
    rows = jnp.where(selected[order][:, None], rows[order], _PADDING_VALUE)
    tops = []
    for columns, empty_row in ((5, _EMPTY_ROI), (6, (0.0,) * 6)):
        first_row = jnp.where(jnp.any(selected), rows[0, :columns], jnp.asarray(empty_row, rows.dtype))
        tops.append(expand_to_four_axes(rows[:, :columns].at[0].set(first_row).astype(dtype)))
    return tuple(tops[:n_tops])


@register(
    "BoxOutput",
    bottoms=(1, None),
    tops=(1, 2),
    param="box_output_param",
    further_params=("bbox_reg_param",),
    in_place=False,
    differentiable=False,
    pads_rows=True,
    origin="MS-CNN",
    unsupported={
        "shard": "the rows of all images are compacted together, with padding last",
        "joint_batch": IMAGE_INDICES_PER_DEVICE,
    },
)
def box_output(p: BoxOutputParameter, *maps: jax.Array, ctx: Context) -> tuple[jax.Array, ...]:
    """Propose regions of interest (ROIs) from maps of scores and deltas, as rows [image, x1, y1, x2, y2].

    Bottoms: maps (N, classes + 4, H, W), one for each anchor. The top has shape (R, 5, 1, 1), and an optional second
    top (R, 6, 1, 1) has rows [image, x1, y1, x2, y2, score]. The score of a box is its largest class score minus the
    score of background. Boxes with a score of at least `fg_thr` and sides of at least `min_size` go through non-maximum
    suppression, which treats all maps of an image together. A side is x2 - x1. If no box is selected, there is one row
    0, 1, 1, 10, 10. Padding rows of -1 come last.
    """
    counts = {name: len(getattr(p, name)) for name in ("field_w", "field_h", "downsample_rate")}
    require(
        set(counts.values()) == {len(maps)},
        f"needs one value of each setting for each of {len(maps)} bottoms, not {counts}",
    )
    candidates = []
    for i, x in enumerate(maps):
        as_nchw(x.shape, f"bottom {i}")
        require(
            x.ndim == 4 and x.shape[1] >= 6 and x.shape[0] == maps[0].shape[0],
            f"bottom {i} must be {maps[0].shape[0]} x (classes + 4) x H x W with two classes or more, not {x.shape}",
        )
        grid = make_anchor_grid(p.field_w[i : i + 1], p.field_h[i : i + 1], p.downsample_rate[i], "downsample_rate")
        candidates.append(_read_candidates(ctx, lax.stop_gradient(promote(x)), grid))
    # reversed, so that the last comes first if scores are equal
    boxes, scores, valid = (jnp.flip(jnp.concatenate(arrays, axis=1), 1) for arrays in zip(*candidates, strict=True))
    return make_proposals(read_selection_settings(p, 0.0), boxes, scores, valid, ctx.num_tops, maps[0].dtype)


def _read_candidates(ctx: Context, x: jax.Array, grid: AnchorGrid) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Decode the boxes of an output map of scores and deltas, and find those that satisfy fg_thr and min_size.

    Args:
        ctx: the layer's context.
        x: the map, (N, channels, H, W): class scores, followed by four deltas.
        grid: the anchors of the map's cells, to which the deltas apply.

    Returns:
        The boxes (x1, y1, x2, y2) in pixels, (N, H * W, 4), their scores, (N, H * W), and the mask of valid boxes.
    """
    p, (n, channels, height, width) = ctx.param, x.shape
    scores = jnp.max(x[:, 1:-4], axis=1) - x[:, 0]
    decoded_boxes = grid.decode(x[:, channels - 4 :], read_normalization(ctx), read_bounds(p))
    corner = jnp.maximum(decoded_boxes[:, :2], 0)
    image_size = jnp.asarray([width, height], x.dtype)[:, None, None] * grid.stride
    sides = jnp.minimum(decoded_boxes[:, 2:], image_size - corner)
    valid = (scores >= p.fg_thr) & jnp.all(sides >= p.min_size, axis=1)
    boxes = jnp.concatenate([corner, corner + sides], axis=1).reshape(n, 4, height * width)
    return jnp.moveaxis(boxes, 1, 2), scores.reshape(n, -1), valid.reshape(n, -1)


@register(
    "BoxGroupOutput",
    bottoms=(2, None),
    tops=(1, 2),
    param="box_group_output_param",
    further_params=("bbox_reg_param",),
    in_place=False,
    differentiable=False,
    pads_rows=True,
    origin="Cascade R-CNN",
    unsupported={
        "shard": "the rows of all images are compacted together, with padding last",
        "joint_batch": IMAGE_INDICES_PER_DEVICE,
    },
)
def box_group_output(p: BoxGroupOutputParameter, *maps: jax.Array, ctx: Context) -> tuple[jax.Array, ...]:
    """Propose regions of interest (ROIs) from pairs of probability and delta maps, as rows [image, x1, y1, x2, y2].

    Bottoms: pairs of probabilities (images * anchors, classes, H, W) and deltas (images * anchors, 4, H, W). Each pair
    has a `box_group_param` with its anchors. The top has shape (R, 5, 1, 1), and an optional second top (R, 6, 1, 1)
    has rows [image, x1, y1, x2, y2, score]. The score of a box is 1 minus the probability of class 0. Boxes with a
    score of at least `fg_thr` and sides of at least `min_size` go through non-maximum suppression, which treats all
    pairs of an image together. A side is x2 - x1 + 1. If no box is selected, there is one row 0, 1, 1, 10, 10. Padding
    rows of -1 come last.
    """
    require(
        len(maps) == 2 * len(p.box_group_param),
        f"needs two bottoms, probabilities and deltas, for each box_group_param: {len(maps)} bottoms for "
        f"{len(p.box_group_param)}",
    )
    pairs = list(zip(maps[::2], maps[1::2], p.box_group_param, strict=True))
    image_counts = [count_images(deltas.shape[0], len(group.field_w) or 1, "a bottom") for _, deltas, group in pairs]
    require(
        all(n == image_counts[0] for n in image_counts),
        f"all bottoms must have equal numbers of images, not {image_counts}",
    )
    candidates = [_read_group_candidates(ctx, probabilities, deltas, group) for probabilities, deltas, group in pairs]
    boxes, scores, valid = (jnp.concatenate(arrays, axis=1) for arrays in zip(*candidates, strict=True))
    return make_proposals(read_selection_settings(p, 1.0), boxes, scores, valid, ctx.num_tops, maps[0].dtype)


def _read_group_candidates(
    ctx: Context, probabilities: jax.Array, deltas: jax.Array, group: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Decode the boxes of a pair of maps; return the boxes, their scores, and the mask of valid boxes.

    Boxes are valid if they satisfy fg_thr and min_size. The boxes (x1, y1, x2, y2), in pixels, have shape (images, n,
    4). The scores and the mask have shape (images, n). n is the number of anchors times the number of cells.
    """
    p, grid = ctx.param, make_anchor_grid(group.field_w, group.field_h, group.stride)
    require_score_and_delta_maps(probabilities.shape, deltas.shape)
    batch, _, height, width = deltas.shape
    num_anchors = len(grid.widths)
    num_images = count_images(batch, num_anchors)
    scores = 1 - lax.stop_gradient(promote(probabilities))[:, 0]
    decoded_boxes = grid.decode(lax.stop_gradient(promote(deltas)), read_normalization(ctx), read_bounds(p))
    image_size = jnp.asarray([width, height], decoded_boxes.dtype)[:, None, None] * grid.stride
    corners = (
        jnp.maximum(decoded_boxes[:, :2], 0),
        jnp.minimum(decoded_boxes[:, :2] + decoded_boxes[:, 2:] - 1, image_size),
    )
    sides = corners[1] - corners[0] + 1
    valid = (scores >= p.fg_thr) & jnp.all(sides >= p.min_size, axis=1)
    boxes = jnp.moveaxis(jnp.concatenate(corners, axis=1), 1, -1)
    num_boxes = num_anchors * height * width
    return (
        group_by_image(boxes, num_images, num_anchors).reshape(num_images, num_boxes, 4),
        group_by_image(scores, num_images, num_anchors).reshape(num_images, num_boxes),
        group_by_image(valid, num_images, num_anchors).reshape(num_images, num_boxes),
    )


@register(
    "FrcnnOutput",
    bottoms=4,
    param="frcnn_output_param",
    further_params=("bbox_reg_param",),
    in_place=False,
    differentiable=False,
    pads_rows=True,
    origin="Cascade R-CNN",
    restrictions="No files are written: `save_output_param` has no effect.",
    unsupported={"shard": "boxes of all rows suppress each other", "joint_batch": IMAGE_INDICES_PER_DEVICE},
)
def frcnn_output(
    p: FrcnnOutputParameter,
    probabilities: jax.Array,
    deltas: jax.Array,
    rois: jax.Array,
    size: jax.Array,
    *,
    ctx: Context,
) -> jax.Array:
    """Select the detections of one image, as rows [image, x1, y1, x2, y2, class, score].

    Bottoms: probabilities (N, classes); deltas (N, 4 * classes), or (N, 8) if not `cls_aware`; ROIs (N, 5 or 6); height
    and width of the image (1, 2). The top has shape (R, 7, 1, 1). Rows are sorted by class, and by falling score. The
    ROIs are moved by their deltas and clipped to the image. Boxes of a class with a probability of at least `conf_thr`
    go through non-maximum suppression, and at most `max_det_num` boxes are selected. The first row is always 0 followed
    by -1. Padding rows of -1 come last. ROIs that begin with a negative number are padding.
    """
    dtype = probabilities.dtype
    prob, boxes, valid, max_corner = _read_inputs(ctx, probabilities, deltas, rois, size)
    n, num_classes = prob.shape
    boxes = jnp.concatenate([jnp.maximum(boxes[..., :2], 0), jnp.minimum(boxes[..., 2:], max_corner)], axis=-1)
    boxes = jnp.broadcast_to(jnp.swapaxes(boxes, 0, 1), (num_classes - 1, n, 4))
    scores = prob[:, 1:].T
    measure = make_overlap_measure(p.nms_type, 1.0)
    suppress_classes = jax.vmap(partial(_suppress_boxes, measure, p.iou_thr))
    selected, boxes, scores = suppress_classes(boxes, scores, valid & (scores >= p.conf_thr))
    class_index = jnp.arange(1, num_classes, dtype=scores.dtype)[:, None]
    columns = [jnp.zeros_like(scores), *jnp.moveaxis(boxes, -1, 0), jnp.broadcast_to(class_index, scores.shape), scores]
    rows = jnp.stack(columns, axis=-1).reshape(-1, 7)
    selected = _keep_best(selected.reshape(-1), rows[:, -1], p.max_det_num)
    order = jnp.argsort(~selected, stable=True)
    if p.max_det_num and not (isinstance(n, int) and n * (num_classes - 1) < p.max_det_num):
        order = jnp.concatenate([order, jnp.zeros(p.max_det_num, order.dtype)])[: p.max_det_num]
        valid = jnp.arange(p.max_det_num) < jnp.sum(selected)
    else:
        valid = selected[order]
    detections = jnp.where(valid[:, None], rows[order], -1)
    first_row = jnp.full((1, 7), -1, rows.dtype).at[0, 0].set(0)
    return expand_to_four_axes(jnp.concatenate([first_row, detections]).astype(dtype))


def _read_inputs(
    ctx: Context, probabilities: jax.Array, deltas: jax.Array, rois: jax.Array, size: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return the bottoms of FrcnnOutput, with the ROIs moved by their deltas.

    Returns:
        the probabilities (N, classes); the moved boxes (N, classes - 1, 4), or (N, 1, 4) if all classes share them; the
        mask of ROIs that are not padding, (N,); and (width, height) of the image in pixels.
    """
    require_equal_rows(probabilities=probabilities, deltas=deltas, rois=rois)
    prob = read_rows(lax.stop_gradient(promote(probabilities)), "bottom 0 (probabilities)")
    num_classes = prob.shape[1]
    require(
        num_classes > 1, f"needs probabilities of background and of one class or more, not of {num_classes} classes"
    )
    is_class_aware = ctx.layer.bbox_reg_param.cls_aware
    class_deltas = read_rows(
        lax.stop_gradient(promote(deltas)), "bottom 1 (deltas)", 4 * num_classes if is_class_aware else 8
    )
    class_deltas = class_deltas.reshape(class_deltas.shape[0], num_classes if is_class_aware else 2, 4)[:, 1:]
    rows = read_rows(lax.stop_gradient(promote(rois)), "bottom 2 (ROIs)", 5, 6)
    require(size.shape[:1] == (1,), f"takes one image: bottom 3 must be 1 x 2, height and width, not {size.shape}")
    height, width = read_rows(lax.stop_gradient(promote(size)), "bottom 3 (height and width)", 2)[0]
    boxes = apply_deltas(rows[:, None, 1:5], read_normalization(ctx).denormalize(class_deltas))
    return prob, boxes, rows[:, 0] >= 0, jnp.stack([width, height]).astype(boxes.dtype)


def _suppress_boxes(
    measure: Measure, threshold: float, boxes: jax.Array, scores: jax.Array, valid: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Suppress boxes of a class; return the mask of remaining boxes (n,), the boxes (n, 4), and their scores (n,).

    All three are sorted by falling score. Boxes that are not valid come last.
    """
    order = jnp.argsort(jnp.where(valid, -scores, jnp.inf), stable=True)
    boxes, scores, valid = boxes[order], scores[order], valid[order]
    return non_max_suppression(boxes, valid, threshold, measure=measure), boxes, scores


def _keep_best(selected: jax.Array, scores: jax.Array, limit: int) -> jax.Array:
    """Return the mask of the `limit` selected boxes with the largest scores. If `limit` is 0, return `selected`."""
    if not limit:
        return selected
    rank = jnp.argsort(jnp.argsort(jnp.where(selected, -scores, jnp.inf), stable=True))
    return selected & (rank < limit)
