"""The prediction maps, anchors and labelled boxes of YOLO.

A map (N, anchors * (5 + classes), H, W) contains x, y, width, height, objectness and class scores for each anchor of a
cell. Boxes are (x, y, width, height) as fractions of the image, where (x, y) is the center.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...base.errors import require
from ...core.layers.context import Shape
from ...core.layers.dtype_policy import promote
from ..detection.boxes import overlaps


class PredictionMap(NamedTuple):
    """A prediction map in which the cells of all anchors form one axis: anchor by anchor, then row by row.

    Attributes:
        raw: (N, cells, 5 + classes), the values of the map.
        cell_corners: (cells, 2), column and row of each cell.
        anchors: (cells, 2), width and height of each cell's anchor as fractions of the image.
        grid_size: (2,), the number of columns and the number of rows of the map.
    """

    raw: jax.Array
    cell_corners: jax.Array
    anchors: jax.Array
    grid_size: np.ndarray

    def decode_boxes(self, offsets: jax.Array) -> jax.Array:
        """Return the predicted boxes (x, y, width, height), (..., cells, 4), as fractions of the image.

        `offsets`, (..., cells, 2), are the distances of the centers from the corners of their cells, in cells.
        """
        sizes = jnp.exp(self.raw[..., 2:4]) * self.anchors.astype(self.raw.dtype)
        centers = (offsets + self.cell_corners.astype(self.raw.dtype)) / self.grid_size.astype(self.raw.dtype)
        return jnp.concatenate([centers, sizes], axis=-1)


def read_prediction_map(
    x: jax.Array, anchors: Any, scale: int, num_classes: int, name: str = "bottom 0"
) -> PredictionMap:
    """Convert a bottom to a `PredictionMap`.

    Args:
        x: the bottom (N, anchors * (5 + classes), H, W).
        anchors: (anchors, 2), width and height.
        scale: the side of a cell in the units of `anchors`.
        num_classes: the number of classes.
        name: the name of the bottom in messages.

    Raises:
        LayerError: if the shape of the bottom is wrong.
    """
    require(len(x.shape) == 4, f"{name} must have 4 axes (images, channels, height, width), not shape {x.shape}")
    n, channels, height, width = x.shape
    expected_channels = len(anchors) * (5 + num_classes)
    require(
        channels == expected_channels,
        f"{name} must have {expected_channels} channels (4 coordinates, objectness and {num_classes} classes for each "
        f"of {len(anchors)} anchors), not shape {x.shape}",
    )
    raw = promote(x).reshape(n, len(anchors), 5 + num_classes, height * width)
    rows, columns = jnp.divmod(jnp.arange(height * width), width)
    grid_size = np.array([width, height])
    return PredictionMap(
        raw.transpose(0, 1, 3, 2).reshape(n, len(anchors) * height * width, 5 + num_classes),
        jnp.tile(jnp.stack([columns, rows], axis=1), (len(anchors), 1)),
        jnp.repeat(jnp.asarray(np.asarray(anchors) / (grid_size * scale), raw.dtype), height * width, axis=0),
        grid_size,
    )


def to_map(cells: jax.Array, reference: jax.Array, num_anchors: int) -> jax.Array:
    """Reshape (N, cells, 5 + classes), in the order of `PredictionMap`, to a map (N, anchors * (5 + classes), H, W).

    `reference` is an array with the shape of the map.
    """
    n, _, height, width = reference.shape
    cells_by_anchor = cells.reshape(n, num_anchors, height * width, cells.shape[-1])
    return cells_by_anchor.transpose(0, 1, 3, 2).reshape(reference.shape)


def read_anchor_sizes(biases: Sequence[float], field: str) -> np.ndarray:
    """Return the widths and heights of anchors, (anchors, 2), from the values of the setting `biases`.

    `field` is the name of the layer's parameter in messages.

    Raises:
        LayerError: if the values are not pairs of positive numbers.
    """
    require(
        len(biases) > 0 and len(biases) % 2 == 0,
        f"{field}.biases must be pairs of width and height, not {len(biases)} values",
    )
    require(all(b > 0 for b in biases), f"{field}.biases must be above 0, not {list(biases)}")
    return np.array(biases, np.float64).reshape(-1, 2)


def select_anchors(anchors: np.ndarray, mask: Sequence[int], field: str) -> np.ndarray:
    """Return the rows of `anchors` at the indices in the setting `mask`.

    `field` is the name of the layer's parameter in messages.

    Raises:
        LayerError: if an index is out of range.
    """
    require(
        all(0 <= m < len(anchors) for m in mask),
        f"{field}.mask must have indices from 0 to {len(anchors) - 1} of anchors in biases, not {list(mask)}",
    )
    return anchors[list(mask)]


def to_corners(boxes: jax.Array) -> jax.Array:
    """Convert boxes (x, y, width, height), (..., 4), to (x1, y1, x2, y2)."""
    centers, sizes = boxes[..., :2], boxes[..., 2:4]
    return jnp.concatenate([centers - sizes / 2, centers + sizes / 2], axis=-1)


def center_size_overlaps(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the intersection over union (...) of boxes (x, y, width, height), (..., 4).

    The leading axes of both arrays broadcast.
    """
    return overlaps(to_corners(a), to_corners(b))


def size_overlaps(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the intersection over union (...) of boxes with a common center, from their sizes (..., 2)."""
    intersection = jnp.prod(jnp.minimum(a, b), axis=-1)
    return intersection / (jnp.prod(a, axis=-1) + jnp.prod(b, axis=-1) - intersection)


class CellMap(NamedTuple):
    """YOLOv1's predictions for the cells of a grid, row by row.

    Attributes:
        scores: (N, classes, cells).
        objectness: (N, cells, boxes).
        boxes: (N, cells, boxes, 4), (x, y, width, height) in the form that the settings `constriant` and `sqrt` select.
    """

    scores: jax.Array
    objectness: jax.Array
    boxes: jax.Array

    def decode_boxes(self, p: Any) -> jax.Array:
        """Return the boxes, (N, cells, boxes, 4), as fractions of the image."""
        centers, sizes = self.boxes[..., :2], self.boxes[..., 2:]
        centers = (_find_cell_corners(p.side) + centers) / p.side if p.constriant else centers
        return jnp.concatenate([centers, jnp.square(sizes) if p.sqrt else sizes], axis=-1)

    def encode_boxes(self, p: Any, boxes: jax.Array) -> jax.Array:
        """Return boxes (N, cells, n, 4), fractions of the image, in the form of `boxes`, as `decode_boxes` undoes."""
        centers, sizes = boxes[..., :2], boxes[..., 2:]
        centers = centers * p.side - _find_cell_corners(p.side) if p.constriant else centers
        return jnp.concatenate([centers, jnp.sqrt(sizes) if p.sqrt else sizes], axis=-1)


def _find_cell_corners(side: int) -> jax.Array:
    """Return the column and row of each cell, (cells, 1, 2)."""
    return jnp.stack(jnp.divmod(jnp.arange(side * side), side)[::-1], axis=1)[:, None]


class CellLabels(NamedTuple):
    """The objects in the cells of a grid, as BoxData labels them.

    Attributes:
        difficult: (N, cells), 1 for difficult objects.
        is_object: bool (N, cells).
        classes: int32 (N, cells).
        boxes: (N, cells, 4), (x, y, width, height) as fractions of the image.
    """

    difficult: jax.Array
    is_object: jax.Array
    classes: jax.Array
    boxes: jax.Array


def check_cell_counts(p: Any) -> None:
    """Raise `LayerError` unless the settings side, num_class and num_object are positive."""
    for name in ("side", "num_class", "num_object"):
        require(getattr(p, name) > 0, f"{name} must be positive, not {getattr(p, name)}")


def read_cell_map(p: Any, x: jax.Array, labels: jax.Array) -> tuple[CellMap, CellLabels]:
    """Split YOLOv1's map and its labels.

    Args:
        p: the settings side, num_class and num_object.
        x: (N, ...), the scores of all cells, then their objectness, then their boxes.
        labels: (N, ...), the parts of `CellLabels`.

    Raises:
        LayerError: if a setting is 0, or a bottom has another number of values.
    """
    check_cell_counts(p)
    n, num_cells = x.shape[0] if x.shape else 0, p.side**2
    part_sizes = [p.num_class, p.num_object, 4 * p.num_object]
    for i, (bottom, num_values) in enumerate(((x, sum(part_sizes)), (labels, 7))):
        size = math.prod(bottom.shape[1:])
        require(
            len(bottom.shape) > 1 and bottom.shape[0] == n and size == num_values * num_cells,
            f"bottom {i} must have {num_values} values for each of {p.side} x {p.side} cells, not shape {bottom.shape}",
        )
    scores, objectness, boxes = jnp.split(
        promote(x).reshape(n, sum(part_sizes), num_cells), np.cumsum(part_sizes)[:-1], axis=1
    )
    boxes = boxes.reshape(n, p.num_object, 4, num_cells).transpose(0, 3, 1, 2)
    difficult, is_object, classes, label_boxes = jnp.split(
        lax.stop_gradient(promote(labels)).reshape(n, 7 * num_cells), [num_cells, 2 * num_cells, 3 * num_cells], axis=1
    )
    return CellMap(scores, objectness.transpose(0, 2, 1), boxes), CellLabels(
        difficult, is_object != 0, classes.astype(jnp.int32), label_boxes.reshape(n, num_cells, 4)
    )


class GroundTruth(NamedTuple):
    """Labelled boxes of each image.

    Attributes:
        classes: (N, boxes), int32.
        boxes: (N, boxes, 4), (x, y, width, height) as fractions of the image, where (x, y) is the center.
        valid: (N, boxes), True for boxes before the first box with x = 0.
        is_assigned: (N, boxes), True for boxes before the first box with width 0, if their center is inside the image.
        cell_indices: (N, boxes), the flat index row * columns + column of the cell that contains the center of each
            assigned box.
    """

    classes: jax.Array
    boxes: jax.Array
    valid: jax.Array
    is_assigned: jax.Array
    cell_indices: jax.Array


def read_ground_truth(map_shape: Shape, labels: jax.Array, grid_size: np.ndarray) -> GroundTruth:
    """Return the labelled boxes of each image.

    Args:
        map_shape: the shape of the prediction map.
        labels: the bottom: rows (class, x, y, width, height) for each image, (N, ..., 5), or SSD's labels (1, 1, boxes,
            8), as in Intel's nets.
        grid_size: the number of columns and the number of rows of the map.
    """
    if len(labels.shape) == 4 and labels.shape[:2] == (1, 1) and labels.shape[3] == 8:
        labels = _group_rows_by_image(labels, map_shape[0])
    shape = labels.shape
    require(
        len(shape) >= 2 and shape[0] == map_shape[0] and shape[-1] == 5,
        f"bottom 1 must have rows of class, x, y, width and height for each of the {map_shape[0]} images, such as "
        f"{map_shape[0]} x 1 x 300 x 5, not shape {shape}",
    )
    rows = lax.stop_gradient(promote(labels)).reshape(shape[0], math.prod(shape[1:-1]), 5)
    boxes = rows[..., 1:]
    cells = jnp.floor(boxes[..., :2] * grid_size.astype(boxes.dtype)).astype(jnp.int32)
    is_inside = jnp.all((cells >= 0) & (cells < grid_size.astype(np.int32)), axis=-1)
    return GroundTruth(
        rows[..., 0].astype(jnp.int32),
        boxes,
        _mask_before_zero(boxes[..., 0]),
        _mask_before_zero(boxes[..., 2]) & is_inside,
        cells[..., 1] * int(grid_size[0]) + cells[..., 0],
    )


def _group_rows_by_image(labels: jax.Array, num_images: int) -> jax.Array:
    """Convert SSD's labels to rows (class, x, y, width, height) for each image, (images, boxes, 5).

    The rows of an image are followed by padding rows of 0.

    Args:
        labels: (1, 1, boxes, 8), rows (image, class + 1, instance, x1, y1, x2, y2, difficult); padding rows begin with
            -1.
        num_images: the number of images.
    """
    rows = lax.stop_gradient(promote(labels)).reshape(-1, 8)
    low, high = rows[:, 3:5], rows[:, 5:7]
    boxes = jnp.concatenate([rows[:, 1:2] - 1, (low + high) / 2, high - low], axis=1)

    def match_image(image: jax.Array) -> jax.Array:
        is_match = rows[:, 0] == image
        return jnp.where(is_match[:, None], boxes, 0)[jnp.argsort(~is_match, stable=True)]

    return jax.vmap(match_image)(jnp.arange(num_images, dtype=rows.dtype))


def _mask_before_zero(x: jax.Array) -> jax.Array:
    return jnp.cumsum(x == 0, axis=-1) == 0


def nan_for_unknown_labels(loss: jax.Array, objects: GroundTruth, num_classes: int) -> jax.Array:
    """Return the loss, or NaN if the label of any assigned box is not one of the `num_classes` classes."""
    is_unknown = objects.is_assigned & ((objects.classes < 0) | (objects.classes >= num_classes))
    return jnp.where(jnp.any(is_unknown), jnp.nan, loss)
