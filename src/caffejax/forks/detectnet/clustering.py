"""Built-in Python layers of DetectNet, which decode boxes from coverage grids and compute mean average precision."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...base.errors import LayerError, require
from ...core.layers import cross_replica
from ...core.layers.context import Context, Shape
from ...core.layers.declaration import declare
from ...core.schema.caffe_pb2 import PythonParameter
from ..detection.boxes import overlaps


def group_rectangles(rows: np.ndarray, threshold: int, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """Group similar rectangles; return the mean of each group of more than `threshold` rectangles, and its size.

    Groups are computed like in OpenCV's groupRectangles (versions 2 to 4). Two rectangles are similar if the positions
    of their four sides differ by at most `eps` times half the sum of the smaller width and the smaller height. A group
    contains all rectangles that chains of similar rectangles connect. A small group inside a larger group is dropped.

    Args:
        rows: (N, 4) integers, with rows x, y, width, height.
        threshold: groups of at most this many rectangles are dropped. If 0 or less, each rectangle is a group.
        eps: the relative tolerance.

    Returns:
        The rounded means, (groups, 4), and the numbers of rectangles, (groups,).
    """
    if threshold <= 0 or not len(rows):
        return rows, np.ones(len(rows), int)
    group_index = _find_groups(rows, eps)
    counts = np.bincount(group_index)
    sums = np.stack([np.bincount(group_index, weights=column) for column in rows.T], axis=1)
    weights = np.float32(1) / counts.astype(np.float32)
    means = np.rint(sums.astype(np.float32) * weights[:, None]).astype(int)
    means, counts = means[counts > threshold], counts[counts > threshold]
    low, high = means[:, :2], means[:, :2] + means[:, 2:]
    slack = np.rint(means[:, 2:] * eps).astype(int)
    is_within = np.all(low[:, None] >= low - slack, axis=2) & np.all(high[:, None] <= high + slack, axis=2)
    is_within &= (counts > np.maximum(3, counts[:, None])) | (counts[:, None] < 3)
    np.fill_diagonal(is_within, False)
    is_outside = ~is_within.any(axis=1)
    return means[is_outside], counts[is_outside]


def _find_groups(rows: np.ndarray, eps: float) -> np.ndarray:
    """Return the group index of each rectangle, (N,). Groups are numbered in the order of their first rectangles."""
    corners = np.concatenate([rows[:, :2], rows[:, :2] + rows[:, 2:]], axis=1)
    sides, group_index, num_groups = rows[:, 2:], np.full(len(rows), -1), 0
    for first in range(len(rows)):
        if group_index[first] >= 0:
            continue
        group_index[first], pending = num_groups, [first]
        while pending:
            i = pending.pop()
            max_difference = eps * np.minimum(sides, sides[i]).sum(axis=1) * 0.5
            is_similar = np.all(np.abs(corners - corners[i]) <= max_difference[:, None], axis=1) & (group_index < 0)
            group_index[is_similar] = num_groups
            pending.extend(np.flatnonzero(is_similar))
        num_groups += 1
    return group_index


_MAX_COORDINATE = 1e6  # pixels; coordinates are clipped to this, since an untrained net may predict huge boxes


class ClusterSettings(NamedTuple):
    """The values of a param_str, in the order in which they are written. `num_classes` and `max_boxes` are optional."""

    image_size_x: int
    image_size_y: int
    stride: int
    coverage_threshold: float
    rectangle_threshold: int
    eps: float
    min_height: int
    num_classes: int = 1
    max_boxes: int = 50


@declare(
    "Python",
    bottoms=2,
    tops=(1, None),
    param="python_param",
    in_place=False,
    on_host=True,
    computes_in_float32=True,
    stops_gradient=True,
    row_wise=True,
    origin="NVIDIA Caffe",
    restrictions="If there are more than max_boxes boxes, the first are used. The original fails.",
)
def cluster_detections(p: Any, coverage: np.ndarray, boxes: np.ndarray) -> tuple[np.ndarray, ...]:
    """Decode boxes from a coverage grid, and group similar boxes into detections.

    There is a top (N, max_boxes, 5) for each class, with rows x1, y1, x2, y2, confidence, padded with zeros. Bottoms:
    coverage (N, classes, H, W), and boxes (N, 4, H, W) as corners in pixels relative to their cell. Each cell whose
    coverage reaches the threshold proposes its box. Similar boxes are grouped as by OpenCV's groupRectangles. The
    confidence is the logarithm of the number of boxes in the group.

    param_str contains, separated by commas: image width and height, stride, coverage threshold, minimum group size
    minus 1, eps (the relative tolerance of the grouping), minimum height in pixels, and optionally the number of
    classes (1 by default) and max_boxes (50 by default).
    """
    s = _read_detection_settings(p)
    return tuple(_list_boxes(coverage[:, c], boxes, s, _cluster_boxes) for c in range(s.num_classes))


@cluster_detections.variant(
    on_host=True,
    computes_in_float32=True,
    origin="NVIDIA Caffe",
    restrictions=cluster_detections.type.docs.restrictions,
)
def cluster_groundtruth(p: Any, coverage: np.ndarray, boxes: np.ndarray) -> tuple[np.ndarray, ...]:
    """List the distinct ground-truth boxes of a label grid.

    There is a top (N, max_boxes, 5) for each class, with rows x1, y1, x2, y2, 0, padded with zeros. Bottoms: coverage
    (N, classes, H, W), positive in cells with an object, and boxes (N, 4, H, W) as corners in pixels relative to their
    cell. Coordinates are rounded to float16, as in the original. Boxes that are equal after rounding are listed once.

    param_str contains, separated by commas: image width and height, stride, and optionally the number of classes (1 by
    default) and max_boxes (50 by default).
    """
    s = _read_truth_settings(p)
    return tuple(_list_boxes(coverage[:, c], boxes, s, _find_distinct_boxes) for c in range(s.num_classes))


@cluster_detections.top_shapes
def detection_top_shapes(p: Any, coverage: Any, boxes: Any, *, ctx: Context) -> list[Shape]:
    return _make_top_shapes(ctx, _read_detection_settings(p), coverage, boxes)


@cluster_groundtruth.top_shapes
def truth_top_shapes(p: Any, coverage: Any, boxes: Any, *, ctx: Context) -> list[Shape]:
    return _make_top_shapes(ctx, _read_truth_settings(p), coverage, boxes)


def _parse_numbers(p: Any, min_count: int, max_count: int) -> list[float]:
    text = p.param_str
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not min_count <= len(numbers) <= max_count:
        raise LayerError(f"param_str must be {min_count} to {max_count} numbers separated by commas, not {text!r}")
    return numbers


def _read_detection_settings(p: Any) -> ClusterSettings:
    width, height, stride, coverage_threshold, rectangle_threshold, eps, min_height, *optional_values = _parse_numbers(
        p, 7, 9
    )
    return _check_settings(
        ClusterSettings(
            int(width),
            int(height),
            int(stride),
            coverage_threshold,
            int(rectangle_threshold),
            eps,
            int(min_height),
            *map(int, optional_values),
        )
    )


def _read_truth_settings(p: Any) -> ClusterSettings:
    width, height, stride, *optional_values = _parse_numbers(p, 3, 5)
    return _check_settings(
        ClusterSettings(int(width), int(height), int(stride), 0, 0, 0, 0, *map(int, optional_values))
    )


def _check_settings(s: ClusterSettings) -> ClusterSettings:
    message = f"param_str: image {s.image_size_x} x {s.image_size_y} and stride {s.stride} give a grid without cells"
    require(s.stride > 0 and min(s.image_size_x, s.image_size_y) >= s.stride, message)
    require(
        min(s.num_classes, s.max_boxes) > 0,
        f"param_str: the number of classes {s.num_classes} and max_boxes {s.max_boxes} must be above 0",
    )
    return s


def _make_top_shapes(ctx: Context, s: ClusterSettings, coverage: Any, boxes: Any) -> list[Shape]:
    shapes = tuple(coverage.shape), tuple(boxes.shape)
    require(
        len(shapes[0]) == len(shapes[1]) == 4 and shapes[0][:1] + shapes[0][2:] == shapes[1][:1] + shapes[1][2:],
        f"needs coverage N x classes x H x W and boxes N x 4 x H x W, not {shapes[0]} and {shapes[1]}",
    )
    require(shapes[1][1] == 4, f"bottom 1 must have 4 channels, x1, y1, x2, y2, not {shapes[1][1]}")
    require(
        shapes[0][1] == s.num_classes == ctx.num_tops,
        f"the numbers of classes and tops must be equal: coverage has {shapes[0][1]} classes, param_str has "
        f"{s.num_classes}, and there are {ctx.num_tops} tops",
    )
    return [(shapes[0][0], s.max_boxes, 5)] * ctx.num_tops


def _list_boxes(coverage: np.ndarray, boxes: np.ndarray, s: ClusterSettings, find_boxes: Any) -> np.ndarray:
    """Return the boxes of one class in each image as rows of 5, padded with zeros, (N, max_boxes, 5).

    Args:
        coverage: (N, H, W), the coverage of the class.
        boxes: (N, 4, H, W), corners in pixels relative to their cell.
        s: the settings.
        find_boxes: a function that returns the rows of one image, of 4 or 5 values: `_cluster_boxes` or
            `_find_distinct_boxes`.
    """
    rows, columns = s.image_size_y // s.stride, s.image_size_x // s.stride
    cell_size = np.asarray([s.image_size_x // columns, s.image_size_y // rows])
    lists = np.zeros((len(coverage), s.max_boxes, 5), coverage.dtype)
    for image_rows, image_coverage, image_corners in zip(
        lists, coverage[:, :rows, :columns], boxes[:, :, :rows, :columns], strict=True
    ):
        image_boxes = find_boxes(s, image_coverage, image_corners, cell_size).astype(np.float16)[: s.max_boxes]
        image_rows[: len(image_boxes), : image_boxes.shape[1]] = image_boxes
    return lists


def _decode_boxes(mask: np.ndarray, corners: np.ndarray, cell_size: np.ndarray) -> np.ndarray:
    """Return the corners of the boxes that the cells in a mask predict, in pixels of the image, (n, 4).

    Boxes with coordinates that are not finite are dropped.

    Args:
        mask: (H, W), True for the cells to decode.
        corners: (4, H, W), corners in pixels relative to their cell.
        cell_size: width and height of a cell in pixels.
    """
    y, x = np.nonzero(mask)
    shifted_corners = corners[:, y, x].T + np.tile(np.stack([x, y], axis=1) * cell_size, 2)
    return np.clip(shifted_corners[np.isfinite(shifted_corners).all(axis=1)], -_MAX_COORDINATE, _MAX_COORDINATE)


def _find_distinct_boxes(
    s: ClusterSettings, coverage: np.ndarray, corners: np.ndarray, cell_size: np.ndarray
) -> np.ndarray:
    boxes = _decode_boxes(coverage > 0, corners, cell_size).astype(np.float16)
    first_index = np.unique(boxes, axis=0, return_index=True)[1]
    return boxes[np.sort(first_index)]


def _cluster_boxes(s: ClusterSettings, coverage: np.ndarray, corners: np.ndarray, cell_size: np.ndarray) -> np.ndarray:
    rectangles = np.rint(_decode_boxes(coverage >= s.coverage_threshold, corners, cell_size)).astype(int)
    boxes, counts = group_rectangles(rectangles, s.rectangle_threshold, s.eps)
    is_tall = boxes[:, 3] - boxes[:, 1] >= s.min_height
    return np.concatenate([boxes, np.log(counts)[:, None]], axis=1)[is_tall]


_TRUE_POSITIVE, _FALSE_POSITIVE, _MISSED = 1, 2, 3


@declare(
    "Python",
    bottoms=2,
    param="python_param",
    in_place=False,
    stops_gradient=True,
    row_wise=True,
    origin="NVIDIA Caffe",
    restrictions="The top has a row for each row of both bottoms; the original has 50 rows, and fails if they do "
    "not suffice.",
)
def score_detections(p: PythonParameter, truth: jax.Array, detections: jax.Array) -> jax.Array:
    """Mark detections as true or false positives, and add the ground-truth boxes that were missed.

    Bottoms: lists of ground-truth boxes (N, T, 5) and detections (N, D, 5), padded with zeros. The top is one list (N,
    D + T, 5) with rows x1, y1, x2, y2, kind. The kind is 1 for a true positive, 2 for a false positive, and 3 for a
    missed ground-truth box. Rows are sorted by kind; padding rows of zeros come last. Each ground-truth box in turn is
    matched to the first unmatched detection whose overlap is at least the threshold in param_str (0.7 by default).
    """
    threshold = _read_threshold(p)
    for i, x in enumerate((truth, detections)):
        require(
            len(x.shape) == 3 and x.shape[2] == 5, f"bottom {i} must be a list of boxes, N x boxes x 5, not {x.shape}"
        )
    require(
        truth.shape[0] == detections.shape[0],
        f"bottoms must have equal numbers of images, not {truth.shape[0]} and {detections.shape[0]}",
    )
    dtype = jnp.result_type(truth, detections)
    return jax.vmap(
        lambda truth_rows, detection_rows: _score_image(truth_rows[:, :4], detection_rows[:, :4], threshold)
    )(truth.astype(dtype), detections.astype(dtype))


@declare(
    "Python",
    tops=3,
    param="python_param",
    in_place=False,
    stops_gradient=True,
    origin="NVIDIA Caffe",
)
def mean_ap(scored_boxes: jax.Array, *, ctx: Context) -> tuple[jax.Array, ...]:
    """Compute precision times recall (DetectNet's mAP), precision, and recall, in percent.

    The bottom is the top of ScoreDetections, (N, boxes, 5). There are three tops, (1,) each.
    """
    require(
        len(scored_boxes.shape) == 3 and scored_boxes.shape[2] == 5,
        f"needs a top of ScoreDetections, N x boxes x 5, not {scored_boxes.shape}",
    )
    num_true_positives, num_false_positives, num_missed = (
        cross_replica.psum(ctx, jnp.sum(scored_boxes[:, :, 4] == kind, dtype=scored_boxes.dtype))
        for kind in (_TRUE_POSITIVE, _FALSE_POSITIVE, _MISSED)
    )
    precision, recall = (
        100 * num_true_positives / jnp.maximum(num_true_positives + num_errors, 1)
        for num_errors in (num_false_positives, num_missed)
    )
    return tuple(x[None] for x in (precision * recall / 100, precision, recall))


def _read_threshold(p: PythonParameter) -> float:
    text = p.param_str.strip()
    try:
        threshold = float(text or 0.7)
    except ValueError:
        threshold = -1
    require(0 <= threshold <= 1, f"param_str must be the minimum overlap, such as 0.7, not {text!r}")
    return threshold


def _score_image(truth: jax.Array, detections: jax.Array, threshold: float) -> jax.Array:
    """Return the true positives, false positives and missed ground truth of one image as rows x1, y1, x2, y2, kind.

    The rows, (D + T, 5), are padded with zeros. See `score_detections`.

    Args:
        truth: (T, 4), x1, y1, x2, y2, padded with zeros.
        detections: (D, 4), x1, y1, x2, y2, padded with zeros.
        threshold: the smallest overlap of a match.
    """
    is_truth, is_detection = (jnp.any(x != 0, axis=1) for x in (truth, detections))
    is_overlapping = (overlaps(truth[:, None], detections) >= threshold) & is_truth[:, None]

    def match_truth(is_unmatched: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        candidates = row & is_unmatched
        is_match = candidates & (jnp.cumsum(candidates) == 1)
        return is_unmatched & ~is_match, jnp.any(candidates)

    is_unmatched, is_matched = lax.scan(match_truth, is_detection, is_overlapping)
    kinds = jnp.concatenate(
        [
            jnp.where(is_detection, jnp.where(is_unmatched, _FALSE_POSITIVE, _TRUE_POSITIVE), 0),
            jnp.where(is_truth & ~is_matched, _MISSED, 0),
        ]
    )
    rows = jnp.concatenate([jnp.concatenate([detections, truth]), kinds[:, None].astype(truth.dtype)], axis=1)
    order = jnp.argsort(jnp.where(kinds > 0, kinds, _MISSED + 1), stable=True)
    return jnp.where((kinds > 0)[order, None], rows[order], 0)
