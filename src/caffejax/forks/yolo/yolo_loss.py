"""RegionLoss (YOLOv2) and Yolov3, losses of prediction maps, with the IoU, GIoU, DIoU and CIoU of boxes.

The functions for boxes take boxes (x, y, width, height), where (x, y) is the center.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import require
from ...core.layers import cross_replica
from ...core.layers.context import Context
from ...core.layers.declaration import register
from ...core.layers.loss_helpers import batch_size, sum_rows
from ...core.layers.types import Indices
from ...core.schema.caffe_pb2 import RegionLossParameter, Yolov3Parameter
from .prediction_map import (
    GroundTruth,
    PredictionMap,
    center_size_overlaps,
    nan_for_unknown_labels,
    read_anchor_sizes,
    read_ground_truth,
    read_prediction_map,
    select_anchors,
    size_overlaps,
    to_corners,
    to_map,
)

IouMeasure = Callable[
    [jax.Array, jax.Array], jax.Array
]  # takes boxes (..., 4) and their targets (..., 4), which broadcast; returns (...)


def iou(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the intersection over union (IoU) of boxes `a` and `b`, (..., 4); the result has shape (...)."""
    intersection, union, _ = _overlap_areas(a, b)
    return intersection / union


def giou(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the IoU minus the fraction of the enclosing box that neither box covers, (...)."""
    intersection, union, enclosing_sides = _overlap_areas(a, b)
    enclosing_area = jnp.prod(enclosing_sides, axis=-1)
    return intersection / union - (enclosing_area - union) / enclosing_area


def diou(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the IoU minus the power 0.6 of the relative squared distance of the centers, as in the fork, (...)."""
    return iou(a, b) - jnp.power(_squared_distance(a, b), 0.6)


def ciou(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the IoU minus the relative squared distance of the centers and a weighted aspect-ratio term, (...)."""
    aspect_term = jnp.square(_aspect_difference(a, b)) * (4 / np.pi**2)
    weight = aspect_term / (1 - iou(a, b) + aspect_term + 1e-6)
    return iou(a, b) - _squared_distance(a, b) - weight * aspect_term


IOU_MEASURES: Mapping[str, IouMeasure] = {"MSE": iou, "IOU": iou, "GIOU": giou, "DIOU": diou, "CIOU": ciou}


def iou_gradients(measure_name: str, pred: jax.Array, truth: jax.Array) -> jax.Array:
    """Return the fork's gradients of a measure with respect to predicted boxes (x, y, width, height), (..., 4).

    They differ from the derivatives. The gradients of the IoU with respect to width and height are doubled. The area of
    the intersection of disjoint boxes is a product of negative sides. The terms of the distance and of the aspect ratio
    have additional factors.

    Args:
        measure_name: the name of the measure, a key of `IOU_MEASURES`.
        pred: the predicted boxes, (..., 4).
        truth: the labelled boxes, (..., 4).
    """
    (low, high), (truth_low, truth_high) = (jnp.split(to_corners(box), 2, axis=-1) for box in (pred, truth))
    intersection_sides = jnp.minimum(high, truth_high) - jnp.maximum(low, truth_low)
    enclosing_sides = jnp.maximum(high, truth_high) - jnp.minimum(low, truth_low)
    intersection, enclosing_area = (
        jnp.prod(sides, axis=-1, keepdims=True) for sides in (intersection_sides, enclosing_sides)
    )
    areas = (jnp.prod(b - a, axis=-1, keepdims=True) for a, b in ((low, high), (truth_low, truth_high)))
    union = sum(areas) - intersection
    intersects = jnp.all(intersection_sides > 0, axis=-1, keepdims=True)

    def edge_gradient(sign: int, is_inner: jax.Array, is_outer: jax.Array) -> jax.Array:
        """Return the gradients with respect to the low (sign -1) or high (sign 1) edges along x and y, (..., 2)."""
        d_intersection = jnp.where(is_inner, sign * intersection_sides[..., ::-1], 0)
        d_union = sign * (high - low)[..., ::-1] - d_intersection
        slope = jnp.where(union > 0, (union * d_intersection - intersection * d_union) / jnp.square(union), 0)
        if measure_name != "GIOU":
            return slope
        d_enclosing = jnp.where(is_outer, sign * enclosing_sides[..., ::-1], 0)
        enclosing_term = (enclosing_area * d_union - union * d_enclosing) / jnp.square(enclosing_area)
        return jnp.where(intersects, slope, 0) + enclosing_term

    beyond_low, beyond_high = low < truth_low, high > truth_high
    d_low, d_high = edge_gradient(-1, low > truth_low, beyond_low), edge_gradient(1, high < truth_high, beyond_high)
    gradients = jnp.concatenate([d_low + d_high, d_high - d_low], axis=-1)
    if measure_name not in ("DIOU", "CIOU"):
        return gradients
    diagonal = jnp.sum(jnp.square(enclosing_sides), axis=-1, keepdims=True)
    offset = truth[..., :2] - pred[..., :2]
    relative_distance = jnp.sum(jnp.square(offset), axis=-1, keepdims=True) / diagonal
    d_center = 2 * (offset - enclosing_sides * (1.0 * beyond_high - beyond_low) * relative_distance) / diagonal
    d_size = enclosing_sides * (1.0 * beyond_high + beyond_low) * relative_distance / diagonal
    if measure_name == "CIOU":
        angle_difference = _aspect_difference(pred, truth)[..., None]
        aspect_term = jnp.square(angle_difference) * (4 / np.pi**2)
        weight = aspect_term / (1 - intersection / union + aspect_term + 1e-6)
        d_size += weight * angle_difference * (8 / np.pi**2) * pred[..., :1:-1] * np.array([1, -1])
    return jnp.where(intersects, gradients, 0) + jnp.concatenate([d_center, d_size], axis=-1)


def negative_iou_gradient(measure_name: str, pred: jax.Array, truth: jax.Array, log_sizes: jax.Array) -> jax.Array:
    """Return minus the gradients of a measure with respect to predictions, (..., 4), or 0 where they are not finite.

    The gradients with respect to width and height are multiplied by the exponentials of `log_sizes`, (..., 2). The size
    of the anchor, which is also a factor of width and height, is not included. The other arguments are those of
    `iou_gradients`.
    """
    gradients = iou_gradients(measure_name, pred, truth)
    scaled_gradients = jnp.concatenate([gradients[..., :2], gradients[..., 2:] * jnp.exp(log_sizes)], axis=-1)
    return -jnp.where(jnp.isfinite(scaled_gradients), scaled_gradients, 0)


def _aspect_difference(a: jax.Array, b: jax.Array) -> jax.Array:
    angle_a, angle_b = (jnp.arctan2(box[..., 2], box[..., 3]) for box in (a, b))
    return angle_b - angle_a


def _squared_distance(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the squared distance of the centers, divided by the squared diagonal of the enclosing box, (...)."""
    _, _, enclosing_sides = _overlap_areas(a, b)
    return jnp.sum(jnp.square(a[..., :2] - b[..., :2]), -1) / jnp.sum(jnp.square(enclosing_sides), -1)


def _overlap_areas(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the areas of the intersection and the union of boxes, and the sides of the enclosing box.

    The areas have shape (...), and the sides (width, height) have shape (..., 2).
    """
    (a_low, a_high), (b_low, b_high) = (jnp.split(to_corners(box), 2, axis=-1) for box in (a, b))
    intersection = jnp.prod(jnp.maximum(jnp.minimum(a_high, b_high) - jnp.maximum(a_low, b_low), 0), axis=-1)
    union = a[..., 2] * a[..., 3] + b[..., 2] * b[..., 3] - intersection
    return intersection, union, jnp.maximum(a_high, b_high) - jnp.minimum(a_low, b_low)


@register(
    "RegionLoss",
    bottoms=2,
    param="region_loss_param",
    loss=True,
    overrides_autodiff=True,
    indices=Indices((1,)),
    counts_rows=True,
    origin="MobileNet-YOLO",
    restrictions="`coords` must be 4. `side`, `softmax`, `softmax_tree`, `class_map`, `jitter`, `absolute` and "
    "`random` are ignored, as in the fork.",
)
def region_loss(p: RegionLossParameter, x: jax.Array, labels: jax.Array, *, ctx: Context) -> jax.Array:
    """Compute YOLOv2's loss of a prediction map: the sum of squared differences from targets, divided by N.

    Bottoms: a map (N, num * (5 + num_class), H, W), and labels (N, 1, boxes, 5) with rows class, x, y, width, height,
    up to the first row of zeros. The top is a scalar. Each box is assigned to its cell and the most similar anchor. If
    several boxes are assigned to one cell and anchor, the last is used. The objectness target of an assigned cell is 1,
    or with `rescore` the overlap of the prediction with the box. The objectness target of other cells is 0, but they
    have no loss if the prediction overlaps a box by more than `thresh`. Class scores go through a softmax. The gradient
    is the differences themselves, divided by N.
    """
    predictions, objects = _read_region_bottoms(p, x, labels)
    loss = sum_rows(ctx, jnp.square(_region_differences(p, predictions, objects))) / batch_size(ctx, x)
    return nan_for_unknown_labels(loss, objects, p.num_class)


@region_loss.backward
def region_loss_backward(
    p: RegionLossParameter, x: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context
) -> tuple[jax.Array, None]:
    predictions, objects = _read_region_bottoms(p, x, labels)
    return to_map(dy / batch_size(ctx, x) * _region_differences(p, predictions, objects), x, p.num).astype(
        x.dtype
    ), None


def _read_region_bottoms(p: RegionLossParameter, x: jax.Array, labels: jax.Array) -> tuple[PredictionMap, GroundTruth]:
    anchors = read_anchor_sizes(p.biases, "region_loss_param")
    require(p.coords == 4, f"region_loss_param.coords must be 4, not {p.coords}")
    require(len(anchors) == p.num, f"region_loss_param.biases must have num = {p.num} anchors, not {len(anchors)}")
    predictions = read_prediction_map(x, anchors, 1, p.num_class)
    return predictions, read_ground_truth(x.shape, labels, predictions.grid_size)


def _region_differences(p: RegionLossParameter, predictions: PredictionMap, objects: GroundTruth) -> jax.Array:
    """Return predictions minus targets, (N, cells, 5 + classes).

    The differences are multiplied by the scales in the settings and, where the prediction is a sigmoid, by its slope.
    """
    map_images = jax.vmap(lambda raw, boxes: _region_differences_of_image(p, predictions._replace(raw=raw), boxes))
    differences: jax.Array = map_images(predictions.raw, objects)
    return differences


def _region_differences_of_image(p: Any, predictions: PredictionMap, objects: GroundTruth) -> jax.Array:
    dtype = predictions.raw.dtype
    s = jax.nn.sigmoid(predictions.raw)
    boxes = predictions.decode_boxes(s[:, :2])
    overlap = jnp.max(center_size_overlaps(boxes[:, None], objects.boxes), axis=1, where=objects.valid, initial=0)
    slope = s[:, 4] * (1 - s[:, 4])

    box_index = _find_last_boxes(p, predictions, objects)
    is_assigned = box_index >= 0
    truth, label = (
        objects.boxes[box_index],
        objects.classes[box_index],
    )  # an index of -1 reads the last box, which is masked below
    truth = jnp.where(is_assigned[:, None], truth, 1)
    objectness_target = center_size_overlaps(boxes, truth) if p.rescore else 1
    objectness_diffs = jnp.where(
        is_assigned,
        p.object_scale * (s[:, 4] - objectness_target),
        jnp.where(overlap > p.thresh, 0, p.noobject_scale * s[:, 4]),
    )
    scale = p.coord_scale * (1 if p.rescore else 2 - truth[:, 2:3] * truth[:, 3:])
    cell_corners, grid_size = predictions.cell_corners.astype(dtype), predictions.grid_size.astype(dtype)
    coordinate_diffs = scale * _coordinate_differences(
        s,
        predictions,
        truth[:, :2] * grid_size - cell_corners,
        jnp.log(truth[:, 2:] / predictions.anchors.astype(dtype)),
    )
    one_hot = label[:, None] == np.arange(p.num_class)
    return jnp.concatenate(
        [
            jnp.where(is_assigned[:, None], coordinate_diffs, 0),
            (objectness_diffs * slope)[:, None],
            jnp.where(is_assigned[:, None], p.class_scale * (jax.nn.softmax(predictions.raw[:, 5:]) - one_hot), 0),
        ],
        axis=1,
    )


def _coordinate_differences(s: jax.Array, predictions: PredictionMap, target_offsets: Any, log_sizes: Any) -> jax.Array:
    """Return predicted minus target coordinates, (cells, 4).

    The differences of x and y are multiplied by the slope of the sigmoid. For width and height, they are differences of
    log(size).

    Args:
        s: (cells, 5 + classes), sigmoids of the predictions.
        predictions: the prediction map of one image.
        target_offsets: (cells, 2), the targets of x and y in cells.
        log_sizes: (cells, 2), the targets of width and height: log(size / size of the anchor).
    """
    offsets = s[:, :2]
    return jnp.concatenate(
        [(offsets - target_offsets) * offsets * (1 - offsets), predictions.raw[:, 2:4] - log_sizes], axis=1
    )


def _find_last_boxes(p: Any, predictions: PredictionMap, objects: GroundTruth) -> jax.Array:
    """Return the index of the last box that is assigned to each cell, or -1 without one, (cells,)."""
    cells_per_anchor = len(predictions.cell_corners) // p.num
    candidate_cells = objects.cell_indices[:, None] + np.arange(p.num) * cells_per_anchor  # (boxes, num)
    if p.bias_match:
        sizes = jnp.asarray(predictions.anchors[::cells_per_anchor], objects.boxes.dtype)
    else:
        clipped_cells = jnp.clip(candidate_cells, 0, len(predictions.cell_corners) - 1)
        sizes = (jnp.exp(predictions.raw[:, 2:4]) * predictions.anchors.astype(predictions.raw.dtype))[clipped_cells]
    best_anchor = jnp.argmax(size_overlaps(objects.boxes[:, None, 2:], sizes), axis=1)
    assigned_cells = jnp.where(
        objects.is_assigned, objects.cell_indices + best_anchor * cells_per_anchor, len(predictions.cell_corners)
    )
    return (
        jnp.full(len(predictions.cell_corners), -1).at[assigned_cells].max(jnp.arange(len(assigned_cells)), mode="drop")
    )


@register(
    "Yolov3",
    bottoms=2,
    param="yolov3_param",
    loss=True,
    overrides_autodiff=True,
    indices=Indices((1,)),
    counts_rows=True,
    origin="MobileNet-YOLO",
    restrictions="`side` and `noobject_scale` are ignored, as in the fork; `object_scale` is used only with "
    "`use_logic_gradient`.",
)
def yolov3(p: Yolov3Parameter, x: jax.Array, labels: jax.Array, *, ctx: Context) -> jax.Array:
    """Compute YOLOv3's loss of a prediction map: the sum of squared differences from targets, divided by N.

    Bottoms: a map (N, num * (5 + num_class), H, W), and labels (N, 1, boxes, 5) with rows class, x, y, width, height,
    up to the first row of zeros. The top is a scalar. Each box is assigned to its cell and the most similar anchor, if
    that anchor is in `mask`. It is also assigned to other anchors of `mask` that overlap it by more than `iou_thresh`.
    To exclude the most similar anchor from these, the fork compares anchor indices with its position in `mask`, so the
    box may be assigned to it twice. The objectness target of an assigned cell is 1. The target of other cells is 0, but
    they have no loss if the prediction overlaps a box by more than `thresh`.

    The gradient is the differences themselves, divided by N. With `use_logic_gradient`, they are multiplied by the
    slope of the sigmoid. If `iou_loss` is not MSE, overlaps are that measure, and the loss of coordinates is
    `iou_normalizer` times the mean of 1 minus the measure over all assignments (with IOU, the measure in this loss is
    DIOU). Its gradient is computed as in the fork, see `iou_gradients`.
    """
    predictions, objects = _read_yolov3_bottoms(p, x, labels)
    differences, box_losses, assignment_counts = _yolov3_differences(p, predictions, objects)
    squares = sum_rows(ctx, jnp.square(differences if p.iou_loss == p.MSE else differences[..., 4:]))
    num_assignments = jnp.maximum(cross_replica.psum(ctx, jnp.sum(assignment_counts)), 1)
    loss = (squares + p.iou_normalizer * jnp.sum(box_losses) / num_assignments) / batch_size(ctx, x)
    return nan_for_unknown_labels(loss, objects, p.num_class)


@yolov3.backward
def yolov3_backward(
    p: Yolov3Parameter, x: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context
) -> tuple[jax.Array, None]:
    predictions, objects = _read_yolov3_bottoms(p, x, labels)
    differences, _, _ = _yolov3_differences(p, predictions, objects)
    if p.use_logic_gradient:
        s = jax.nn.sigmoid(predictions.raw)
        if p.iou_loss != p.MSE:  # as in the fork, which then uses the raw coordinates as if they were sigmoids
            s = s.at[..., :2].set(predictions.raw[..., :2])
        differences *= (s * (1 - s)).at[..., 2:4].set(1)
    return to_map(dy / batch_size(ctx, x) * differences, x, p.num).astype(x.dtype), None


def _read_yolov3_bottoms(p: Yolov3Parameter, x: jax.Array, labels: jax.Array) -> tuple[PredictionMap, GroundTruth]:
    anchors = read_anchor_sizes(p.biases, "yolov3_param")
    require(
        p.num > 0 and len(set(p.mask)) == len(p.mask) == p.num,
        f"yolov3_param.mask must have num = {p.num} distinct anchors, not {list(p.mask)}",
    )
    require(p.anchors_scale > 0, f"yolov3_param.anchors_scale must be above 0, not {p.anchors_scale}")
    predictions = read_prediction_map(x, select_anchors(anchors, p.mask, "yolov3_param"), p.anchors_scale, p.num_class)
    return predictions, read_ground_truth(x.shape, labels, predictions.grid_size)


def _count_assignments(p: Any, objects: GroundTruth, anchors: np.ndarray) -> jax.Array:
    """Return how often each box is assigned to each anchor of `mask`: 0, 1 or 2 times, (N, boxes, num).

    `anchors`, (anchors, 2), contains the sizes of all anchors as fractions of the image.
    """
    sizes = jnp.asarray(anchors, objects.boxes.dtype)
    corner_boxes = [jnp.concatenate([jnp.zeros_like(s), s], axis=-1) for s in (objects.boxes[..., None, 2:], sizes)]
    similarities = _select_measure(p)(corner_boxes[1], corner_boxes[0])
    is_best = jnp.where(jnp.max(similarities, axis=-1) > 0, jnp.argmax(similarities, axis=-1), -1)[
        ..., None
    ] == np.array(p.mask)
    is_above_threshold = (similarities[..., list(p.mask)] > p.iou_thresh) & (p.iou_thresh < 1)
    # the fork ignores the anchor whose index is the position of the best anchor in `mask`
    is_above_threshold &= ~(
        jnp.any(is_best, axis=-1, keepdims=True) & (jnp.argmax(is_best, axis=-1)[..., None] == np.array(p.mask))
    )
    return (is_best.astype(jnp.int32) + is_above_threshold) * objects.is_assigned[..., None]


def _select_measure(p: Any) -> IouMeasure:
    return IOU_MEASURES[p.IOU_LOSS.Name(p.iou_loss)]


def _yolov3_differences(
    p: Yolov3Parameter, predictions: PredictionMap, objects: GroundTruth
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compare predictions with their targets.

    Returns:
        the differences, predictions minus targets, (N, cells, 5 + classes), whose coordinates are as in
        `_box_differences`; the sum of the `iou_loss` losses of each image's boxes, (N,); and the number of assignments
        of boxes to anchors in each image, (N,).
    """
    image_size = predictions.grid_size * p.anchors_scale
    assignment_counts = _count_assignments(p, objects, read_anchor_sizes(p.biases, "yolov3_param") / image_size)
    differences, box_losses = jax.vmap(
        lambda *arrays: _yolov3_differences_of_image(p, predictions._replace(raw=arrays[0]), *arrays[1:])
    )(predictions.raw, objects, assignment_counts)
    return differences, box_losses, jnp.sum(assignment_counts, axis=(1, 2))


def _yolov3_differences_of_image(
    p: Any, predictions: PredictionMap, objects: GroundTruth, assignment_counts: jax.Array
) -> tuple[jax.Array, jax.Array]:
    num_cells, (cells_per_anchor, num_boxes) = (
        len(predictions.cell_corners),
        (len(predictions.cell_corners) // p.num, len(objects.classes)),
    )
    s = jax.nn.sigmoid(predictions.raw)
    boxes = predictions.decode_boxes(s[:, :2])
    overlap = jnp.max(_select_measure(p)(boxes[:, None], objects.boxes), axis=1, where=objects.valid, initial=0)

    # the cell of each box and anchor; unassigned ones get an index past the last cell, where nothing is written
    assigned_cells = jnp.where(
        assignment_counts > 0, objects.cell_indices[:, None] + np.arange(p.num) * cells_per_anchor, num_cells
    )
    box_index = jnp.broadcast_to(jnp.arange(num_boxes)[:, None], assigned_cells.shape)
    first_box_index = jnp.full(num_cells, num_boxes).at[assigned_cells].min(box_index, mode="drop")
    last_box_index = jnp.full(num_cells, -1).at[assigned_cells].max(box_index, mode="drop")
    cell = jnp.minimum(assigned_cells, num_cells - 1)
    classes = jnp.broadcast_to(objects.classes[:, None], assigned_cells.shape)

    is_assigned = first_box_index < num_boxes
    unassigned_diffs = jnp.where(overlap > p.thresh, 0, s[:, 4])
    objectness_diffs = (s[:, 4] - 1) * (p.object_scale if p.use_logic_gradient else 1)
    box_diffs, box_losses = _box_differences(p, predictions, s, boxes, objects, cell)
    if p.accumulate and p.iou_loss != p.MSE:
        target_cells, box_diffs = assigned_cells, box_diffs * assignment_counts[..., None]
    else:
        target_cells = jnp.where(box_index == last_box_index[cell], assigned_cells, num_cells)
    is_first = box_index == first_box_index[cell]
    return jnp.concatenate(
        [
            jnp.zeros_like(s[:, :4]).at[target_cells].add(box_diffs, mode="drop"),
            jnp.where(is_assigned, objectness_diffs, unassigned_diffs)[:, None],
            jnp.where(
                is_assigned[:, None],
                _class_differences(p, s[:, 5:], assigned_cells, classes, is_first, assignment_counts > is_first),
                0,
            ),
        ],
        axis=1,
    ), jnp.sum(jnp.where(assignment_counts > 0, box_losses * assignment_counts, 0))


def _box_differences(
    p: Any, predictions: PredictionMap, s: jax.Array, boxes: jax.Array, objects: GroundTruth, cell: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the coordinate differences of boxes, (boxes, num, 4), and 1 minus their `iou_loss` measure, (boxes, num).

    With MSE, the differences are predicted minus target coordinates, times coord_scale * (2 - area of the box), and the
    second result is 0. Otherwise, the differences are minus the gradients of the measure, times iou_normalizer and
    clipped to max_delta.

    Args:
        p: the settings.
        predictions: the prediction map of one image.
        s: (cells, 5 + classes), sigmoids of the predictions.
        boxes: (cells, 4), the predicted boxes.
        objects: the labelled boxes.
        cell: (boxes, num), the cell of each box and anchor.
    """
    truth = jnp.broadcast_to(objects.boxes[:, None], (*cell.shape, 4))
    measure_name = p.IOU_LOSS.Name(p.iou_loss)
    if measure_name == "MSE":
        dtype = truth.dtype
        target_offsets = (
            truth[..., :2] * predictions.grid_size.astype(dtype) - jnp.asarray(predictions.cell_corners, dtype)[cell]
        )
        # padding rows have size 0, which has no logarithm; they get no gradient
        log_sizes = jnp.log(
            jnp.where(truth[..., 2:] > 0, truth[..., 2:], 1) / jnp.asarray(predictions.anchors, dtype)[cell]
        )
        predicted_coordinates = jnp.concatenate([s[:, :2], predictions.raw[:, 2:4]], axis=1)[cell]
        scale = p.coord_scale * (2 - truth[..., 2:3] * truth[..., 3:])
        return scale * (predicted_coordinates - jnp.concatenate([target_offsets, log_sizes], axis=-1)), jnp.zeros(
            cell.shape, dtype
        )
    pred = boxes[cell]
    gradient = p.iou_normalizer * negative_iou_gradient(measure_name, pred, truth, predictions.raw[cell][..., 2:4])
    measure = diou if measure_name == "IOU" else IOU_MEASURES[measure_name]
    return jnp.clip(gradient, -p.max_delta, p.max_delta), 1 - measure(pred, truth)


def _class_differences(
    p: Any, s: jax.Array, assigned_cells: jax.Array, classes: jax.Array, is_first: jax.Array, is_later: jax.Array
) -> jax.Array:
    """Return class scores minus targets, (cells, classes), for cells with an assigned box.

    The first assignment to a cell sets the targets of all classes; later assignments only raise the target of their own
    class.

    Args:
        p: the settings.
        s: (cells, classes), the class scores.
        assigned_cells: (boxes, num), the cell of each box and anchor, or the number of cells if the box is not assigned
            to the anchor.
        classes: (boxes, num), the class of the box.
        is_first: (boxes, num), True for the first assignment to a cell.
        is_later: (boxes, num), True for other assignments.
    """
    one_hot = jnp.zeros_like(s).at[jnp.where(is_first, assigned_cells, len(s)), classes].set(1, mode="drop")
    is_later_class = (
        jnp.zeros(s.shape, bool).at[jnp.where(is_later, assigned_cells, len(s)), classes].set(True, mode="drop")
    )
    label_smoothing = p.label_smooth_eps
    positive_diffs = s - (1 - 0.5 * label_smoothing)
    if p.use_focal_loss:
        probability = jnp.sum(one_hot * s, axis=1, keepdims=True) + 1e-15
        class_diffs = (
            (s - one_hot) * 0.5 * -(1 - probability) * (2 * probability * jnp.log(probability) + probability - 1)
        )
    else:
        class_diffs = s - (one_hot * (1 - label_smoothing) + 0.5 * label_smoothing)
    return p.class_scale * jnp.where(is_later_class, positive_diffs, class_diffs)
