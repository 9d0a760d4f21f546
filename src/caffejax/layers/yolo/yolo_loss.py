"""RegionLoss (YOLOv2) and Yolov3: losses of prediction maps, with IoU, GIoU, DIoU and CIoU losses of boxes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import require
from .. import cross_replica
from ..context import Context
from ..registry import define_layer
from ..types import Gradient, Indices, LayerDocs, Signature, Traced
from .yolo_head import (
    GroundTruth,
    Head,
    anchor_sizes,
    centred_overlaps,
    ground_truth,
    head,
    nan_for_unknown_labels,
    select_anchors,
    shape_overlaps,
    to_corners,
    to_map,
)

Measure = Callable[[jax.Array, jax.Array], jax.Array]  # of boxes (..., 4) and their targets (..., 4), which broadcast


def iou(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return intersection over union (...) of boxes a and b (..., 4)."""
    inside, union, _ = _overlap_areas(a, b)
    return inside / union


def giou(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return IoU minus the fraction of the enclosing box that is in neither box, (...)."""
    inside, union, around = _overlap_areas(a, b)
    hull = jnp.prod(around, axis=-1)
    return inside / union - (hull - union) / hull


def diou(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return IoU minus the relative distance of the centres to the power 0.6, as in the fork, (...)."""
    return iou(a, b) - jnp.power(_squared_distance(a, b), 0.6)


def ciou(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return IoU minus the relative distance of the centres and the weighted difference of the aspect ratios, (...)."""
    aspect_term = jnp.square(_aspect_difference(a, b)) * (4 / np.pi**2)
    weight = aspect_term / (1 - iou(a, b) + aspect_term + 1e-6)
    return iou(a, b) - _squared_distance(a, b) - weight * aspect_term


MEASURES: Mapping[str, Measure] = {"MSE": iou, "IOU": iou, "GIOU": giou, "DIOU": diou, "CIOU": ciou}


def measure_slopes(kind: str, pred: jax.Array, truth: jax.Array) -> jax.Array:
    """Return the fork's slopes of the measure `kind` by x, y, width and height of predicted boxes, (..., 4).

    They are not its derivatives: the slopes of the IoU by width and height are doubled, the area of the intersection of
    boxes that are apart is a product of negative sides, and terms of the distance and the aspect ratio have factors of
    their own.
    """
    (low, high), (truth_low, truth_high) = (jnp.split(to_corners(box), 2, axis=-1) for box in (pred, truth))
    shared = jnp.minimum(high, truth_high) - jnp.maximum(low, truth_low)
    hull = jnp.maximum(high, truth_high) - jnp.minimum(low, truth_low)
    inside, around = (jnp.prod(sides, axis=-1, keepdims=True) for sides in (shared, hull))
    areas = (jnp.prod(b - a, axis=-1, keepdims=True) for a, b in ((low, high), (truth_low, truth_high)))
    union = sum(areas) - inside
    meet = jnp.all(shared > 0, axis=-1, keepdims=True)

    def edge_gradient(sign: int, is_inner: jax.Array, is_outer: jax.Array) -> jax.Array:
        """Return the slopes by the low (sign -1) or high (sign 1) edges along both axes, (..., 2)."""
        d_inside = jnp.where(is_inner, sign * shared[..., ::-1], 0)
        d_union = sign * (high - low)[..., ::-1] - d_inside
        slope = jnp.where(union > 0, (union * d_inside - inside * d_union) / jnp.square(union), 0)
        if kind != "GIOU":
            return slope
        d_around = jnp.where(is_outer, sign * hull[..., ::-1], 0)
        of_hull = (around * d_union - union * d_around) / jnp.square(around)
        return jnp.where(meet, slope, 0) + of_hull

    beyond_low, beyond_high = low < truth_low, high > truth_high
    by_low, by_high = edge_gradient(-1, low > truth_low, beyond_low), edge_gradient(1, high < truth_high, beyond_high)
    slopes = jnp.concatenate([by_low + by_high, by_high - by_low], axis=-1)
    if kind not in ("DIOU", "CIOU"):
        return slopes
    diagonal = jnp.sum(jnp.square(hull), axis=-1, keepdims=True)
    offset = truth[..., :2] - pred[..., :2]
    far = jnp.sum(jnp.square(offset), axis=-1, keepdims=True) / diagonal
    by_middle = 2 * (offset - hull * (1.0 * beyond_high - beyond_low) * far) / diagonal
    by_size = hull * (1.0 * beyond_high + beyond_low) * far / diagonal
    if kind == "CIOU":
        turn = _aspect_difference(pred, truth)[..., None]
        unlike = jnp.square(turn) * (4 / np.pi**2)
        weight = unlike / (1 - inside / union + unlike + 1e-6)
        by_size += weight * turn * (8 / np.pi**2) * pred[..., :1:-1] * np.array([1, -1])
    return jnp.where(meet, slopes, 0) + jnp.concatenate([by_middle, by_size], axis=-1)


def box_pull(kind: str, pred: jax.Array, truth: jax.Array, logs: jax.Array) -> jax.Array:
    """Return minus the slopes of a measure by predicted boxes (..., 4); 0 where they are not finite.

    The slopes by width and height are multiplied by the exponentials of `logs`, (..., 2). The size of the anchor, which
    is also a factor of width and height, is left out.
    """
    slopes = measure_slopes(kind, pred, truth)
    scaled = jnp.concatenate([slopes[..., :2], slopes[..., 2:] * jnp.exp(logs)], axis=-1)
    return -jnp.where(jnp.isfinite(scaled), scaled, 0)


def _aspect_difference(a: jax.Array, b: jax.Array) -> jax.Array:
    angle_a, angle_b = (jnp.arctan2(box[..., 2], box[..., 3]) for box in (a, b))
    return angle_b - angle_a


def _squared_distance(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the squared distance of the centres over the squared diagonal of the enclosing box, (...)."""
    _, _, around = _overlap_areas(a, b)
    return jnp.sum(jnp.square(a[..., :2] - b[..., :2]), -1) / jnp.sum(jnp.square(around), -1)


def _overlap_areas(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the areas (...) of intersection and union, and width and height (..., 2) of the enclosing box."""
    (a_low, a_high), (b_low, b_high) = (jnp.split(to_corners(box), 2, axis=-1) for box in (a, b))
    inside = jnp.prod(jnp.maximum(jnp.minimum(a_high, b_high) - jnp.maximum(a_low, b_low), 0), axis=-1)
    union = a[..., 2] * a[..., 3] + b[..., 2] * b[..., 3] - inside
    return inside, union, jnp.maximum(a_high, b_high) - jnp.minimum(a_low, b_low)


def region_loss(ctx: Context, x: jax.Array, labels: jax.Array) -> jax.Array:
    """YOLOv2's loss of a prediction map: the sum of squared differences from targets, divided by N; a scalar.

    Bottoms: a map (N, num * (5 + num_class), H, W), and labels (N, 1, boxes, 5) with rows class, x, y, width, height,
    up to the first row of zeros. Each box is assigned to its cell and the most similar anchor; the last box of a cell
    wins. The objectness target of an assigned cell is 1, or with `rescore` the overlap of the prediction with the box.
    For other cells it is 0, and the loss is 0 if the prediction overlaps a box by more than `thresh`. Class scores go
    through a softmax. The gradient is the differences themselves, divided by N.
    """
    h, objects = _read_region(ctx, x, labels)
    loss = jnp.sum(jnp.square(_region_differences(ctx, h, objects))) / max(x.shape[0], 1)
    return nan_for_unknown_labels(loss, objects, ctx.param.num_class)


def region_loss_backward(
    ctx: Context, x: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    h, objects = _read_region(ctx, x, labels)
    return to_map(dy / max(x.shape[0], 1) * _region_differences(ctx, h, objects), x, ctx.param.num).astype(
        x.dtype
    ), None


define_layer(
    Signature("RegionLoss", bottoms=2, param="region_loss_param", loss=True),
    Traced(region_loss),
    Gradient(region_loss_backward, overrides_autodiff=True, indices=Indices((1,)), exempt_from_force_backward=(1,)),
    docs=LayerDocs(
        origin="MobileNet-YOLO",
        restrictions="`coords` must be 4. `side`, `softmax`, `softmax_tree`, `class_map`, `jitter`, `absolute` and "
        "`random` are ignored, as in the fork.",
    ),
)


def _read_region(ctx: Context, x: jax.Array, labels: jax.Array) -> tuple[Head, GroundTruth]:
    p = ctx.param
    anchors = anchor_sizes(p.biases, "region_loss_param")
    require(p.coords == 4, f"region_loss_param.coords must be 4, not {p.coords}")
    require(len(anchors) == p.num, f"region_loss_param.biases must be of num = {p.num} anchors, not {len(anchors)}")
    h = head(x, anchors, 1, p.num_class)
    return h, ground_truth(x.shape, labels, h.sides)


def _region_differences(ctx: Context, h: Head, objects: GroundTruth) -> jax.Array:
    """Return predictions minus targets, (N, cells, 5 + classes)."""
    differences_by_image = jax.vmap(
        lambda raw, boxes: _region_differences_of_image(ctx.param, h._replace(raw=raw), boxes)
    )
    differences: jax.Array = differences_by_image(h.raw, objects)
    return differences


def _region_differences_of_image(p: Any, h: Head, objects: GroundTruth) -> jax.Array:
    dtype = h.raw.dtype
    s = jax.nn.sigmoid(h.raw)
    boxes = h.boxes(s[:, :2])
    overlap = jnp.max(centred_overlaps(boxes[:, None], objects.boxes), axis=1, where=objects.valid, initial=0)
    slope = s[:, 4] * (1 - s[:, 4])

    last = _last_boxes(p, h, objects)
    taken = last >= 0
    truth, label = objects.boxes[last], objects.classes[last]  # an index of -1 reads the last box; it is masked below
    truth = jnp.where(taken[:, None], truth, 1)
    goal = centred_overlaps(boxes, truth) if p.rescore else 1
    objectness = jnp.where(
        taken,
        p.object_scale * (s[:, 4] - goal),
        jnp.where(overlap > p.thresh, 0, p.noobject_scale * s[:, 4]),
    )
    scale = p.coord_scale * (1 if p.rescore else 2 - truth[:, 2:3] * truth[:, 3:])
    corners, sides = h.corners.astype(dtype), h.sides.astype(dtype)
    to_truth = scale * _coordinate_differences(
        s, h, truth[:, :2] * sides - corners, jnp.log(truth[:, 2:] / h.anchors.astype(dtype))
    )
    one_hot = label[:, None] == np.arange(p.num_class)
    return jnp.concatenate(
        [
            jnp.where(taken[:, None], to_truth, 0),
            (objectness * slope)[:, None],
            jnp.where(taken[:, None], p.class_scale * (jax.nn.softmax(h.raw[:, 5:]) - one_hot), 0),
        ],
        axis=1,
    )


def _coordinate_differences(s: jax.Array, h: Head, middles: Any, logs: Any) -> jax.Array:
    """Return the differences of offsets times the sigmoid's slope, and of logarithms of sizes, (cells, 4)."""
    at = s[:, :2]
    return jnp.concatenate([(at - middles) * at * (1 - at), h.raw[:, 2:4] - logs], axis=1)


def _last_boxes(p: Any, h: Head, objects: GroundTruth) -> jax.Array:
    """Return for each cell the index of the last box assigned to it, or -1; (cells,)."""
    per_anchor = len(h.corners) // p.num
    cells = objects.cells[:, None] + np.arange(p.num) * per_anchor  # (boxes, num)
    if p.bias_match:
        sizes = jnp.asarray(h.anchors[::per_anchor], objects.boxes.dtype)
    else:
        held = jnp.clip(cells, 0, len(h.corners) - 1)
        sizes = (jnp.exp(h.raw[:, 2:4]) * h.anchors.astype(h.raw.dtype))[held]
    best = jnp.argmax(shape_overlaps(objects.boxes[:, None, 2:], sizes), axis=1)
    at = jnp.where(objects.assigned, objects.cells + best * per_anchor, len(h.corners))
    return jnp.full(len(h.corners), -1).at[at].max(jnp.arange(len(at)), mode="drop")


def yolov3(ctx: Context, x: jax.Array, labels: jax.Array) -> jax.Array:
    """YOLOv3's loss of a prediction map: the sum of squared differences from targets, divided by N; a scalar.

    Bottoms: a map (N, num * (5 + num_class), H, W), and labels (N, 1, boxes, 5) with rows class, x, y, width, height,
    up to the first row of zeros. Each box is assigned to its cell and the most similar anchor, if that anchor is in
    `mask`. It is also assigned to other anchors of `mask` that overlap it by more than `iou_thresh`; the fork compares
    their numbers with the place of the most similar one in `mask`, which may then be assigned twice. The objectness
    target of an assigned cell is 1. For other cells it is 0, and the loss is 0 if the prediction overlaps a box by more
    than `thresh`. The gradient is the differences themselves, divided by N; with `use_logic_gradient` they are
    multiplied by the slope of the sigmoid. If `iou_loss` is not MSE, overlaps are that measure, and the loss of
    coordinates is `iou_normalizer` times the mean of 1 minus the measure over all assignments (IOU: of DIOU); their
    gradient is the fork's, see `measure_slopes`.
    """
    h, objects = _read_yolov3(ctx, x, labels)
    p = ctx.param
    differences, lost, assignments = _yolov3_differences(ctx, h, objects)
    squares = jnp.sum(jnp.square(differences if p.iou_loss == p.MSE else differences[..., 4:]))
    count = jnp.maximum(cross_replica.psum(ctx, jnp.sum(assignments)), 1)
    loss = (squares + p.iou_normalizer * jnp.sum(lost) / count) / max(x.shape[0], 1)
    return nan_for_unknown_labels(loss, objects, p.num_class)


def yolov3_backward(
    ctx: Context, x: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    h, objects = _read_yolov3(ctx, x, labels)
    p = ctx.param
    differences, _, _ = _yolov3_differences(ctx, h, objects)
    if p.use_logic_gradient:
        s = jax.nn.sigmoid(h.raw)
        if p.iou_loss != p.MSE:  # as in the fork, which takes the raw coordinates for sigmoids then
            s = s.at[..., :2].set(h.raw[..., :2])
        differences *= (s * (1 - s)).at[..., 2:4].set(1)
    return to_map(dy / max(x.shape[0], 1) * differences, x, p.num).astype(x.dtype), None


define_layer(
    Signature("Yolov3", bottoms=2, param="yolov3_param", loss=True),
    Traced(yolov3),
    Gradient(yolov3_backward, overrides_autodiff=True, indices=Indices((1,)), exempt_from_force_backward=(1,)),
    docs=LayerDocs(
        origin="MobileNet-YOLO",
        restrictions="`side` and `noobject_scale` are ignored, as in the fork; `object_scale` counts with "
        "`use_logic_gradient` only.",
    ),
)


def _read_yolov3(ctx: Context, x: jax.Array, labels: jax.Array) -> tuple[Head, GroundTruth]:
    p = ctx.param
    anchors = anchor_sizes(p.biases, "yolov3_param")
    require(p.num > 0 and len(set(p.mask)) == len(p.mask) == p.num, f"yolov3_param.mask must be num = {p.num} anchors")
    require(p.anchors_scale > 0, "yolov3_param.anchors_scale must be above 0")
    h = head(x, select_anchors(anchors, p.mask, "yolov3_param"), p.anchors_scale, p.num_class)
    return h, ground_truth(x.shape, labels, h.sides)


def _count_assignments(p: Any, objects: GroundTruth, anchors: np.ndarray) -> jax.Array:
    """Return how often each box is assigned to each anchor of `mask`, (N, boxes, num)."""
    sizes = jnp.asarray(anchors, objects.boxes.dtype)
    at_corner = [jnp.concatenate([jnp.zeros_like(s), s], axis=-1) for s in (objects.boxes[..., None, 2:], sizes)]
    alike = _measure(p)(at_corner[1], at_corner[0])
    best = jnp.where(jnp.max(alike, axis=-1) > 0, jnp.argmax(alike, axis=-1), -1)[..., None] == np.array(p.mask)
    more = (alike[..., list(p.mask)] > p.iou_thresh) & (p.iou_thresh < 1)
    # the fork leaves out the anchor whose number is the place of the best anchor in `mask`
    more &= ~(jnp.any(best, axis=-1, keepdims=True) & (jnp.argmax(best, axis=-1)[..., None] == np.array(p.mask)))
    return (best.astype(jnp.int32) + more) * objects.assigned[..., None]


def _measure(p: Any) -> Measure:
    return MEASURES[p.IOU_LOSS.Name(p.iou_loss)]


def _yolov3_differences(ctx: Context, h: Head, objects: GroundTruth) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return predictions minus targets, and losses of boxes by the `iou_loss` and numbers of assignments of each image.

    Returns:
        differences (N, cells, 5 + classes), losses (N,) and numbers (N,).
    """
    p = ctx.param
    sides = h.sides * p.anchors_scale
    times = _count_assignments(p, objects, anchor_sizes(p.biases, "yolov3_param") / sides)
    differences, lost = jax.vmap(lambda *image: _yolov3_differences_of_image(p, h._replace(raw=image[0]), *image[1:]))(
        h.raw, objects, times
    )
    return differences, lost, jnp.sum(times, axis=(1, 2))


def _yolov3_differences_of_image(
    p: Any, h: Head, objects: GroundTruth, times: jax.Array
) -> tuple[jax.Array, jax.Array]:
    cells, (per_anchor, n_boxes) = len(h.corners), (len(h.corners) // p.num, len(objects.classes))
    s = jax.nn.sigmoid(h.raw)
    boxes = h.boxes(s[:, :2])
    overlap = jnp.max(_measure(p)(boxes[:, None], objects.boxes), axis=1, where=objects.valid, initial=0)

    # the cell of each box and anchor; one past the last cell, where nothing is written, for unassigned ones
    at = jnp.where(times > 0, objects.cells[:, None] + np.arange(p.num) * per_anchor, cells)
    order = jnp.broadcast_to(jnp.arange(n_boxes)[:, None], at.shape)
    first = jnp.full(cells, n_boxes).at[at].min(order, mode="drop")
    last = jnp.full(cells, -1).at[at].max(order, mode="drop")
    cell = jnp.minimum(at, cells - 1)
    classes = jnp.broadcast_to(objects.classes[:, None], at.shape)

    taken = first < n_boxes
    objectness = jnp.where(overlap > p.thresh, 0, s[:, 4])
    to_one = (s[:, 4] - 1) * (p.object_scale if p.use_logic_gradient else 1)
    pulls, lost = _box_differences(p, h, s, boxes, objects, cell)
    if p.accumulate and p.iou_loss != p.MSE:
        pulled, pulls = at, pulls * times[..., None]
    else:
        pulled = jnp.where(order == last[cell], at, cells)
    is_first = order == first[cell]
    return jnp.concatenate(
        [
            jnp.zeros_like(s[:, :4]).at[pulled].add(pulls, mode="drop"),
            jnp.where(taken, to_one, objectness)[:, None],
            jnp.where(taken[:, None], _class_differences(p, s[:, 5:], at, classes, is_first, times > is_first), 0),
        ],
        axis=1,
    ), jnp.sum(jnp.where(times > 0, lost * times, 0))


def _box_differences(
    p: Any, h: Head, s: jax.Array, boxes: jax.Array, objects: GroundTruth, cell: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return predicted minus target coordinates of boxes, (boxes, num, 4), and 1 minus the `iou_loss`, (boxes, num).

    Args:
        p: the settings.
        h: the prediction map of one image.
        s: (cells, 5 + classes), sigmoids of the raw predictions.
        boxes: (cells, 4), the predicted boxes.
        objects: the labelled boxes.
        cell: (boxes, num), the cell of each box and anchor.
    """
    truth = jnp.broadcast_to(objects.boxes[:, None], (*cell.shape, 4))
    kind = p.IOU_LOSS.Name(p.iou_loss)
    if kind == "MSE":
        dtype = truth.dtype
        middles = truth[..., :2] * h.sides.astype(dtype) - jnp.asarray(h.corners, dtype)[cell]
        # padding rows have size 0, which has no logarithm; they get no gradient
        sizes = jnp.log(jnp.where(truth[..., 2:] > 0, truth[..., 2:], 1) / jnp.asarray(h.anchors, dtype)[cell])
        predicted = jnp.concatenate([s[:, :2], h.raw[:, 2:4]], axis=1)[cell]
        scale = p.coord_scale * (2 - truth[..., 2:3] * truth[..., 3:])
        return scale * (predicted - jnp.concatenate([middles, sizes], axis=-1)), jnp.zeros(cell.shape, dtype)
    pred = boxes[cell]
    pull = p.iou_normalizer * box_pull(kind, pred, truth, h.raw[cell][..., 2:4])
    measure = diou if kind == "IOU" else MEASURES[kind]
    return jnp.clip(pull, -p.max_delta, p.max_delta), 1 - measure(pred, truth)


def _class_differences(
    p: Any, s: jax.Array, at: jax.Array, classes: jax.Array, is_first: jax.Array, is_later: jax.Array
) -> jax.Array:
    """Return the differences of class scores (cells, classes), for cells with an assigned box.

    The first assignment of a cell sets the targets of all classes; later ones only raise the target of their class.
    """
    one_hot = jnp.zeros_like(s).at[jnp.where(is_first, at, len(s)), classes].set(1, mode="drop")
    later = jnp.zeros(s.shape, bool).at[jnp.where(is_later, at, len(s)), classes].set(True, mode="drop")
    smooth = p.label_smooth_eps
    raised = s - (1 - 0.5 * smooth)
    if p.use_focal_loss:
        probability = jnp.sum(one_hot * s, axis=1, keepdims=True) + 1e-15
        all_of_them = (
            (s - one_hot) * 0.5 * -(1 - probability) * (2 * probability * jnp.log(probability) + probability - 1)
        )
    else:
        all_of_them = s - (one_hot * (1 - smooth) + 0.5 * smooth)
    return p.class_scale * jnp.where(later, raised, all_of_them)
