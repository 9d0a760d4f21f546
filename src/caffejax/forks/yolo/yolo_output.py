"""YoloDetectionOutput and Yolov3DetectionOutput, which select detections, and EvalDetection, which evaluates them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import require
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.layers.types import (
    IMAGE_INDICES_PER_DEVICE,
    Indices,
    Transform,
)
from ...core.schema.caffe_pb2 import (
    EvalDetectionParameter,
    YoloDetectionOutputParameter,
    Yolov3DetectionOutputParameter,
)
from ..detection.boxes import non_max_suppression, select_best
from .prediction_map import (
    PredictionMap,
    center_size_overlaps,
    check_cell_counts,
    read_anchor_sizes,
    read_cell_map,
    read_ground_truth,
    read_prediction_map,
    select_anchors,
    to_corners,
)

UNSUPPORTED_TRANSFORMS: dict[Transform, str] = {
    "shard": "the boxes of all images form one list, in which they suppress each other",
    "joint_batch": IMAGE_INDICES_PER_DEVICE,
}


def make_detection_rows(
    boxes: jax.Array, scores: jax.Array, classes: jax.Array, valid: jax.Array, threshold: float, num_images: int
) -> jax.Array:
    """Return the boxes that are not suppressed as rows (image, class + 1, score, x1, y1, x2, y2), best first.

    As in the fork, boxes of all classes and all images of a batch suppress each other, and every row has image 0. If
    all boxes are suppressed or invalid, the first rows are (image, -1, ...), one for each image.

    Args:
        boxes: (boxes, 4), (x, y, width, height) as fractions of the image, where (x, y) is the center.
        scores: (boxes,).
        classes: (boxes,).
        valid: (boxes,), True for scores above the threshold.
        threshold: a box is suppressed if its overlap with a better box is at least this.
        num_images: the number of images.

    Returns:
        The rows, (1, 1, boxes, 7), with padding rows of -1 at the end.
    """
    corners = to_corners(boxes)
    indices, selected = select_best(corners, scores, valid, threshold, suppress_equal=True)
    columns = jnp.concatenate([(classes + 1.0)[:, None], scores[:, None], corners], axis=1)
    row_index = jnp.arange(scores.shape[0])
    image_index = jnp.where(
        jnp.any(selected), jnp.where(selected, 0, -1), jnp.where(row_index < num_images, row_index, -1)
    )
    rows = jnp.where(selected[:, None], columns[indices], -1)
    return jnp.concatenate([image_index[:, None].astype(rows.dtype), rows], axis=1)[None, None]


@register(
    "YoloDetectionOutput",
    bottoms=(1, 2),
    param="yolo_detection_output_param",
    differentiable=False,
    pads_rows=True,
    unsupported=UNSUPPORTED_TRANSFORMS,
    origin="MobileNet-YOLO",
    restrictions="`label_map_file` and `side` are ignored.",
)
def yolo_detection_output(p: YoloDetectionOutputParameter, *bottoms: jax.Array) -> jax.Array:
    """Select YOLOv2's detections, as rows (image, class + 1, score, x1, y1, x2, y2), best first.

    Bottoms: one or two maps (N, num_box * (5 + num_classes), H, W). The top has shape (1, 1, rows, 7). Each cell and
    anchor has one candidate with its best class. The score is objectness (by sigmoid) times class probability (by
    softmax). Candidates with a score of at least `confidence_threshold` go through suppression. A box is suppressed if
    a better box of any class overlaps it by at least `nms_threshold`. As in the fork, boxes of all images suppress each
    other, and every row has image 0. Padding rows of -1 come last.
    """
    require(p.num_classes > 0, f"yolo_detection_output_param.num_classes must be above 0, not {p.num_classes}")
    require(p.coords == 4, f"yolo_detection_output_param.coords must be 4, not {p.coords}")
    anchors = read_anchor_sizes(p.biases, "yolo_detection_output_param")[: p.num_box]
    require(
        len(anchors) == p.num_box,
        f"yolo_detection_output_param.biases must have num_box = {p.num_box} anchors, not {len(anchors)}",
    )
    boxes, scores, classes = [], [], []
    for i, x in enumerate(bottoms):
        predictions = read_prediction_map(x, anchors, 1, p.num_classes, f"bottom {i}")
        probabilities = jax.nn.softmax(predictions.raw[..., 5:])
        boxes.append(predictions.decode_boxes(jax.nn.sigmoid(predictions.raw[..., :2])).reshape(-1, 4))
        scores.append((jax.nn.sigmoid(predictions.raw[..., 4]) * jnp.max(probabilities, axis=-1)).ravel())
        classes.append(jnp.argmax(probabilities, axis=-1).ravel())
    score = jnp.concatenate(scores)
    return make_detection_rows(
        jnp.concatenate(boxes),
        score,
        jnp.concatenate(classes),
        score >= p.confidence_threshold,
        p.nms_threshold,
        bottoms[0].shape[0],
    ).astype(bottoms[0].dtype)


Candidates = tuple[jax.Array, jax.Array, jax.Array]


@register(
    "Yolov3DetectionOutput",
    bottoms=(1, None),
    param="yolov3_detection_output_param",
    differentiable=False,
    pads_rows=True,
    unsupported=UNSUPPORTED_TRANSFORMS,
    origin="MobileNet-YOLO",
    restrictions="`gaussian_box` follows the paper on Gaussian YOLOv3. The fork counts the deviation of x twice on "
    "GPUs, and on CPUs takes the objectness for the score of the first class. No recorded case of it.",
)
def yolov3_detection_output(p: Yolov3DetectionOutputParameter, *bottoms: jax.Array) -> jax.Array:
    """Select YOLOv3's detections, as rows (image, class + 1, score, x1, y1, x2, y2), best first.

    Bottoms: maps (N, num_box * (5 + num_classes), H, W). The top has shape (1, 1, rows, 7). The score of a class is
    objectness times class probability, both by sigmoid. Scores above `confidence_threshold` go through suppression. A
    box is suppressed if a better box of any class overlaps it by at least `nms_threshold`, so only the best class of a
    cell and anchor remains. As in the fork, boxes of all images suppress each other, and every row has image 0. Padding
    rows of -1 come last.

    With `gaussian_box`, bottoms are the maps (N, num_box * (9 + num_classes), H, W) of Gaussian YOLOv3. Each coordinate
    is followed by its deviation. Scores are multiplied by 1 minus the mean of the four deviations (by sigmoid).
    """
    keeps_all_classes = p.nms_threshold >= 1  # boxes of several classes may then remain in one cell
    candidates = [
        _read_candidates(*map_and_factor, keeps_all_classes) for map_and_factor in _read_prediction_maps(p, bottoms)
    ]
    boxes, scores, classes = (jnp.concatenate(parts) for parts in zip(*candidates, strict=True))
    top = make_detection_rows(
        boxes, scores, classes, scores > p.confidence_threshold, p.nms_threshold, bottoms[0].shape[0]
    )
    return top.astype(bottoms[0].dtype)


def _read_prediction_maps(
    p: Yolov3DetectionOutputParameter, bottoms: tuple[jax.Array, ...]
) -> list[tuple[PredictionMap, jax.Array | float]]:
    """Return each map, and the factors of its scores, (N, cells, 1), which are 1.0 without `gaussian_box`.

    Raises:
        LayerError: if a setting or the shape of a bottom is wrong.
    """
    field, num_bottoms = "yolov3_detection_output_param", len(bottoms)
    require(p.num_classes > 0, f"{field}.num_classes must be above 0, not {p.num_classes}")
    require(
        p.mask_group_num == num_bottoms,
        f"{field}.mask_group_num is {p.mask_group_num}, but there are {num_bottoms} bottoms",
    )
    require(
        len(p.anchors_scale) >= num_bottoms,
        f"{field}.anchors_scale must have {num_bottoms} values, one for each bottom, not {len(p.anchors_scale)}",
    )
    require(all(s > 0 for s in p.anchors_scale), f"{field}.anchors_scale must be above 0, not {list(p.anchors_scale)}")
    anchors, anchors_per_map = read_anchor_sizes(p.biases, field), len(p.mask) // num_bottoms
    require(
        0 < p.num_box <= anchors_per_map and len(p.mask) == num_bottoms * anchors_per_map,
        f"{field}.mask must have num_box = {p.num_box} anchors for each of the {num_bottoms} bottoms, "
        f"not {len(p.mask)} in total",
    )
    prediction_maps: list[tuple[PredictionMap, jax.Array | float]] = []
    for i, x in enumerate(bottoms):
        selected_anchors = select_anchors(anchors, p.mask[i * anchors_per_map :][: p.num_box], field)
        values, factor = _split_deviations(x, p, f"bottom {i}") if p.gaussian_box else (x, 1.0)
        prediction_maps.append(
            (read_prediction_map(values, selected_anchors, p.anchors_scale[i], p.num_classes, f"bottom {i}"), factor)
        )
    return prediction_maps


def _split_deviations(x: jax.Array, p: Any, name: str) -> tuple[jax.Array, jax.Array]:
    """Split a map of Gaussian YOLOv3, (N, num_box * (9 + num_classes), H, W), into predictions and deviations.

    Returns:
        The map without deviations, (N, num_box * (5 + num_classes), H, W), and the factors of the scores, (N, cells,
        1).

    Raises:
        LayerError: if the shape of the map is wrong.
    """
    values_per_anchor = 9 + p.num_classes
    require(
        len(x.shape) == 4 and x.shape[1] == p.num_box * values_per_anchor,
        f"{name} must be a map with {p.num_box * values_per_anchor} channels (4 coordinates, each with its deviation, "
        f"objectness and {p.num_classes} classes for each of {p.num_box} anchors), not shape {x.shape}",
    )
    n, _, height, width = x.shape
    anchor_values = promote(x).reshape(n, p.num_box, values_per_anchor, height, width)
    maps = anchor_values[:, :, np.r_[0:8:2, 8:values_per_anchor]].reshape(n, -1, height, width)
    deviation = jnp.mean(jax.nn.sigmoid(anchor_values[:, :, 1:8:2]), axis=2)
    return maps, 1 - deviation.reshape(n, -1, 1)


def _read_candidates(predictions: PredictionMap, factor: jax.Array | float, keeps_all_classes: bool) -> Candidates:
    """Return the candidates for detections in a map: their boxes (n, 4), scores (n,) and classes (n,).

    Args:
        predictions: the map.
        factor: the factors of the scores, (N, cells, 1) or 1.
        keeps_all_classes: whether each cell has a candidate for each class, instead of only for its best class.
    """
    s = jax.nn.sigmoid(predictions.raw)
    boxes, scores = predictions.decode_boxes(s[..., :2]), factor * s[..., 4:5] * s[..., 5:]
    if not keeps_all_classes:
        return boxes.reshape(-1, 4), jnp.max(scores, axis=-1).ravel(), jnp.argmax(scores, axis=-1).ravel()
    classes = jnp.broadcast_to(jnp.arange(scores.shape[-1]), scores.shape)
    return jnp.repeat(boxes.reshape(-1, 4), scores.shape[-1], axis=0), scores.ravel(), classes.ravel()


_MIN_SCORE = 0.005  # with anchors, predictions with a smaller score are ignored


class EvaluatedBoxes(NamedTuple):
    """Predicted or labelled boxes of each image.

    Attributes:
        classes: (N, boxes).
        boxes: (N, boxes, 4), (x, y, width, height) as fractions of the image, where (x, y) is the center.
        scores: (N, boxes), the scores of predicted boxes. For labelled boxes, False if the box is difficult and does
            not count, otherwise True.
        valid: (N, boxes), False for padding.
    """

    classes: jax.Array
    boxes: jax.Array
    scores: jax.Array
    valid: jax.Array


@register(
    "EvalDetection",
    bottoms=(2, 3),
    param="eval_detection_param",
    in_place=False,
    differentiable=False,
    indices=Indices((1,)),
    row_wise=True,
    origin="Intel Caffe, caffe-yolo",
    restrictions="A prediction that overlaps no label enough is a false positive, and a negative nms keeps all "
    "predictions. With `biases`, Intel Caffe omits both. No recorded case.",
)
def eval_detection(p: EvalDetectionParameter, x: jax.Array, labels: jax.Array, *_images: jax.Array) -> jax.Array:
    """Count the labels of each class, and mark each prediction as a true or false positive.

    The top has shape (N, num_class + boxes * 4). The first num_class values of a row are the counts of labels. The
    others are (class, score, true positive, false positive) for each prediction, class by class, best first, followed
    by zeros.

    With `biases`, bottoms are YOLOv2's: a map (N, num_object * (5 + num_class), side, side), and labels with rows
    (class, x, y, width, height) up to the first row with x = 0. Without `biases`, bottoms are YOLOv1's. Bottom 0 then
    contains the class scores of all cells, then their objectness, then their boxes (x, y, width, height). The labels
    consist of four parts, each with the values of all cells: whether the object of the cell is difficult, whether there
    is an object, the class of the object, and the box of the object.

    A prediction is dropped if a better prediction overlaps it by at least `nms`; with a negative `nms`, none is
    dropped. Each prediction is compared with the label of its class that it overlaps most. It is a true positive if the
    overlap is at least `threshold` and no better prediction is matched to this label. If the label is difficult, it is
    neither a true nor a false positive. A third bottom, Intel's images, is ignored.
    """
    check_cell_counts(p)
    predictions, truth = (_read_anchor_map if len(p.biases) else _read_cell_map)(p, x, labels)
    return jax.vmap(lambda a, b: _evaluate_image(p, a, b))(predictions, truth).astype(x.dtype)


def _read_anchor_map(p: Any, x: jax.Array, labels: jax.Array) -> tuple[EvaluatedBoxes, EvaluatedBoxes]:
    anchors = read_anchor_sizes(p.biases, "eval_detection_param")
    require(
        len(anchors) == p.num_object,
        f"needs two biases for each of num_object = {p.num_object} anchors, not {len(p.biases)}",
    )
    predictions = read_prediction_map(x, anchors, 1, p.num_class)
    require(
        tuple(x.shape[2:]) == (p.side, p.side), f"bottom 0 must have height and width {p.side}, not shape {x.shape}"
    )
    objects = read_ground_truth(x.shape, labels, predictions.grid_size)
    probabilities = jax.nn.softmax(predictions.raw[..., 5:], axis=-1)
    scores = _compute_scores(p, jax.nn.sigmoid(predictions.raw[..., 4]), jnp.max(probabilities, axis=-1))
    boxes = predictions.decode_boxes(jax.nn.sigmoid(predictions.raw[..., :2]))
    best_class = jnp.argmax(probabilities, axis=-1)
    truth = EvaluatedBoxes(objects.classes, objects.boxes, jnp.ones_like(objects.classes, bool), objects.valid)
    return EvaluatedBoxes(best_class, boxes, scores, scores >= (_MIN_SCORE if p.nms >= 0 else 0)), truth


def _read_cell_map(p: Any, x: jax.Array, labels: jax.Array) -> tuple[EvaluatedBoxes, EvaluatedBoxes]:
    cells, objects = read_cell_map(p, x, labels)
    boxes, best_class = cells.decode_boxes(p), jnp.argmax(cells.scores, axis=1)
    scores = _compute_scores(p, cells.objectness, jnp.max(cells.scores, axis=1)[..., None]).reshape(len(x), -1)
    truth = EvaluatedBoxes(objects.classes, objects.boxes, objects.difficult != 1, objects.is_object)
    classes = jnp.repeat(best_class, p.num_object, axis=1)
    return EvaluatedBoxes(classes, boxes.reshape(len(x), -1, 4), scores, jnp.ones_like(scores, bool)), truth


def _compute_scores(p: Any, objectness: jax.Array, probability: jax.Array) -> jax.Array:
    score_type = p.ScoreType.Name(p.score_type)
    factors = {
        "OBJ": objectness + 0 * probability,
        "PROB": probability + 0 * objectness,
        "MULTIPLY": objectness * probability,
    }
    return factors[score_type]


def _evaluate_image(p: Any, predictions: EvaluatedBoxes, truth: EvaluatedBoxes) -> jax.Array:
    """Return one image's row of the top of EvalDetection, (num_class + boxes * 4,)."""
    order = jnp.argsort(-predictions.scores, stable=True)
    classes, boxes, scores, valid = (part[order] for part in predictions)
    if p.nms >= 0:
        valid &= non_max_suppression(to_corners(boxes), jnp.ones_like(valid), p.nms, suppress_equal=True)
    order = jnp.argsort(jnp.where(valid, classes, p.num_class), stable=True)
    classes, boxes, scores, valid = (part[order] for part in (classes, boxes, scores, valid))
    is_same_class = truth.valid & (truth.classes == classes[:, None])
    overlap = jnp.where(is_same_class, center_size_overlaps(boxes[:, None], truth.boxes), -1)
    is_best = jnp.argmax(overlap, axis=1)[:, None] == jnp.arange(overlap.shape[1])
    is_match = is_best & (overlap >= p.threshold) & is_same_class & valid[:, None]
    is_first_match = is_match & (jnp.cumsum(is_match, axis=0) == 1)
    is_true_positive = jnp.any(is_first_match & truth.scores, axis=1)
    is_false_positive = valid & ~is_true_positive & ~jnp.any(is_match & ~truth.scores, axis=1)
    columns = jnp.stack(
        [
            classes.astype(scores.dtype),
            scores,
            is_true_positive.astype(scores.dtype),
            is_false_positive.astype(scores.dtype),
        ]
    )
    is_counted = (truth.valid & truth.scores)[:, None] & (truth.classes[:, None] == jnp.arange(p.num_class))
    rows = jnp.where(valid[:, None], columns.T, 0)
    return jnp.concatenate([jnp.sum(is_counted, axis=0).astype(scores.dtype), rows.ravel()])
