"""DetectNet's ClusterDetections and ClusterGroundtruth, Python layers that are built in: grids as lists of boxes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...errors import LayerError, require
from ..context import Context, Shape
from ..no_gradient import no_gradient
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, OnHost, Signature
from .grouping import group_rectangles

_FARTHEST = 1e6  # pixels; boxes beyond, as of a net that has not learnt yet, end there


class Settings(NamedTuple):
    """What a param_str says: these numbers in this order; the last two may be missing."""

    image_size_x: int
    image_size_y: int
    stride: int
    coverage: float
    rectangles: int
    eps: float
    min_height: int
    classes: int = 1
    max_boxes: int = 50


def cluster_detections(ctx: Context, coverage: np.ndarray, boxes: np.ndarray) -> tuple[np.ndarray, ...]:
    """Of each class a list (N x max_boxes x 5) of x1, y1, x2, y2, confidence; rows of zeros where there are no more.

    Boxes (N x 4 x H x W, relative to their cells) where the class's coverage reaches the threshold are grouped as by
    OpenCV's groupRectangles; the confidence is the log of how many make one. param_str: image width and height, stride,
    threshold, how many boxes make none yet, eps, least height, number of classes (1), max_boxes (50).
    """
    s = _detection_settings(ctx)
    return tuple(_listed(coverage[:, c], boxes, s, _detected) for c in range(s.classes))


def cluster_groundtruth(ctx: Context, coverage: np.ndarray, boxes: np.ndarray) -> tuple[np.ndarray, ...]:
    """Of each class a list (N x max_boxes x 5) of x1, y1, x2, y2, 0: the boxes of a grid of labels, each once.

    param_str: image width and height, stride, number of classes (1), max_boxes (50). Coordinates are rounded to
    float16, as in the original; boxes that are equal only then are one here.
    """
    s = _truth_settings(ctx)
    return tuple(_listed(coverage[:, c], boxes, s, _labelled) for c in range(s.classes))


def detection_shapes(ctx: Context, coverage: Any, boxes: Any) -> list[Shape]:
    return _shapes(ctx, _detection_settings(ctx), coverage, boxes)


def truth_shapes(ctx: Context, coverage: Any, boxes: Any) -> list[Shape]:
    return _shapes(ctx, _truth_settings(ctx), coverage, boxes)


_SIGNATURE = Signature("Python", bottoms=2, tops=(1, None), param="python_param", in_place=False)
_TRAITS = LayerTraits(row_wise=True)
_DOCS = LayerDocs(
    origin="NVIDIA Caffe", restrictions="Of more than max_boxes, where the original fails, the first are kept."
)
_GRADIENT = Gradient(no_gradient, overrides_autodiff=True, stops_gradient=True)

CLUSTER_DETECTIONS = LayerType(
    _SIGNATURE, OnHost(cluster_detections, detection_shapes, in_float32=True), _GRADIENT, _TRAITS, _DOCS
)
CLUSTER_GROUNDTRUTH = LayerType(
    _SIGNATURE, OnHost(cluster_groundtruth, truth_shapes, in_float32=True), _GRADIENT, _TRAITS, _DOCS
)


def _numbers(ctx: Context, least: int, most: int) -> list[float]:
    text = ctx.param.param_str
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not least <= len(numbers) <= most:
        raise LayerError(f"param_str must be {least} to {most} numbers with commas between them, not {text!r}")
    return numbers


def _detection_settings(ctx: Context) -> Settings:
    x, y, stride, coverage, rectangles, eps, height, *more = _numbers(ctx, 7, 9)
    return _sound(Settings(int(x), int(y), int(stride), coverage, int(rectangles), eps, int(height), *map(int, more)))


def _truth_settings(ctx: Context) -> Settings:
    x, y, stride, *more = _numbers(ctx, 3, 5)
    return _sound(Settings(int(x), int(y), int(stride), 0, 0, 0, 0, *map(int, more)))


def _sound(s: Settings) -> Settings:
    grid = f"param_str: image {s.image_size_x} x {s.image_size_y} and stride {s.stride} make no grid"
    require(s.stride > 0 and min(s.image_size_x, s.image_size_y) >= s.stride, grid)
    require(
        min(s.classes, s.max_boxes) > 0, f"param_str: classes {s.classes} and max_boxes {s.max_boxes} must be above 0"
    )
    return s


def _shapes(ctx: Context, s: Settings, coverage: Any, boxes: Any) -> list[Shape]:
    shapes = tuple(coverage.shape), tuple(boxes.shape)
    require(
        len(shapes[0]) == len(shapes[1]) == 4 and shapes[0][:1] + shapes[0][2:] == shapes[1][:1] + shapes[1][2:],
        f"needs coverage N x classes x H x W and boxes N x 4 x H x W, not {shapes[0]} and {shapes[1]}",
    )
    require(shapes[1][1] == 4, f"bottom 1 must have 4 channels, x1, y1, x2, y2, not {shapes[1][1]}")
    require(
        shapes[0][1] == s.classes == ctx.n_tops,
        f"coverage of {shapes[0][1]} classes, {s.classes} in param_str and {ctx.n_tops} tops must be one number",
    )
    return [(shapes[0][0], s.max_boxes, 5)] * ctx.n_tops


def _listed(coverage: np.ndarray, boxes: np.ndarray, s: Settings, found_in: Any) -> np.ndarray:
    """Return the list of one class, (N, max_boxes, 5)."""
    rows, columns = s.image_size_y // s.stride, s.image_size_x // s.stride
    cell = np.asarray([s.image_size_x // columns, s.image_size_y // rows])
    lists = np.zeros((len(coverage), s.max_boxes, 5), coverage.dtype)
    for own, cover, box in zip(lists, coverage[:, :rows, :columns], boxes[:, :, :rows, :columns], strict=True):
        found = found_in(s, cover, box, cell).astype(np.float16)[: s.max_boxes]
        own[: len(found), : found.shape[1]] = found
    return lists


def _boxes(marked: np.ndarray, box: np.ndarray, cell: np.ndarray) -> np.ndarray:
    """Return the boxes of marked cells in the image's pixels, (n, 4)."""
    y, x = np.nonzero(marked)
    found = box[:, y, x].T + np.tile(np.stack([x, y], axis=1) * cell, 2)
    return np.clip(found[np.isfinite(found).all(axis=1)], -_FARTHEST, _FARTHEST)


def _labelled(s: Settings, cover: np.ndarray, box: np.ndarray, cell: np.ndarray) -> np.ndarray:
    found = _boxes(cover > 0, box, cell).astype(np.float16)
    first = np.unique(found, axis=0, return_index=True)[1]
    return found[np.sort(first)]


def _detected(s: Settings, cover: np.ndarray, box: np.ndarray, cell: np.ndarray) -> np.ndarray:
    found = np.rint(_boxes(cover >= s.coverage, box, cell)).astype(int)
    corners, counts = group_rectangles(found, s.rectangles, s.eps)
    tall = corners[:, 3] - corners[:, 1] >= s.min_height
    return np.concatenate([corners, np.log(counts)[:, None]], axis=1)[tall]
