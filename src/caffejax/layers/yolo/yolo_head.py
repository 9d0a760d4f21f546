"""YOLO's prediction maps, anchors, and labelled boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...errors import require
from ..boxes import overlaps
from ..context import Shape
from ..dtypes import promote


class Head(NamedTuple):
    """A map, its cells and anchors along one axis: anchor by anchor, row by row.

    Attributes:
        raw: (N, cells, 5 + classes), as they come.
        corners: (cells, 2), column and row of each cell.
        anchors: (cells, 2), width and height of each cell's anchor as fractions of the image.
        sides: columns and rows of the map.
    """

    raw: jax.Array
    corners: jax.Array
    anchors: jax.Array
    sides: np.ndarray

    def boxes(self, offsets: jax.Array) -> jax.Array:
        """Return the boxes (..., cells, 4) of cells, whose middles lie `offsets` cells into them."""
        sizes = jnp.exp(self.raw[..., 2:4]) * self.anchors.astype(self.raw.dtype)
        middles = (offsets + self.corners.astype(self.raw.dtype)) / self.sides.astype(self.raw.dtype)
        return jnp.concatenate([middles, sizes], axis=-1)


def head(x: jax.Array, anchors: Any, scale: int, classes: int, name: str = "bottom 0") -> Head:
    """Return a bottom as a `Head`.

    Args:
        x: the bottom.
        anchors: (anchors, 2), width and height.
        scale: how many of the anchors' units a cell is wide and high.
        classes: how many.
        name: of the bottom, for errors.
    """
    require(len(x.shape) == 4, f"{name} must have 4 axes (images, channels, height, width), not shape {x.shape}")
    n, channels, height, width = x.shape
    wanted = len(anchors) * (5 + classes)
    require(
        channels == wanted,
        f"{name} must have {wanted} channels, for each of {len(anchors)} anchors 4 coordinates, objectness and "
        f"{classes} classes, not shape {x.shape}",
    )
    raw = promote(x).reshape(n, len(anchors), 5 + classes, height * width)
    rows, columns = jnp.divmod(jnp.arange(height * width), width)
    sides = np.array([width, height])
    return Head(
        raw.transpose(0, 1, 3, 2).reshape(n, len(anchors) * height * width, 5 + classes),
        jnp.tile(jnp.stack([columns, rows], axis=1), (len(anchors), 1)),
        jnp.repeat(jnp.asarray(np.asarray(anchors) / (sides * scale), raw.dtype), height * width, axis=0),
        sides,
    )


def as_map(cells: jax.Array, like: jax.Array, anchors: int) -> jax.Array:
    """Return (N, cells, 5 + classes) in the bottom's order and shape."""
    n, _, height, width = like.shape
    apart = cells.reshape(n, anchors, height * width, cells.shape[-1])
    return apart.transpose(0, 1, 3, 2).reshape(like.shape)


def anchor_sizes(biases: Sequence[float], field: str) -> np.ndarray:
    """Return the anchors (anchors, 2) that a field `biases` lists.

    Raises:
        LayerError: if they are not pairs of positive numbers.
    """
    require(len(biases) > 0 and len(biases) % 2 == 0, f"{field}.biases must be widths and heights, not {len(biases)}")
    require(all(b > 0 for b in biases), f"{field}.biases must be above 0, not {list(biases)}")
    return np.array(biases, np.float64).reshape(-1, 2)


def masked(anchors: np.ndarray, mask: Sequence[int], field: str) -> np.ndarray:
    """Return those anchors that a field `mask` numbers."""
    require(
        all(0 <= m < len(anchors) for m in mask),
        f"{field}.mask must number the {len(anchors)} anchors of biases from 0 on, not {list(mask)}",
    )
    return anchors[list(mask)]


def as_corners(boxes: jax.Array) -> jax.Array:
    """Return boxes around their middle as (x1, y1, x2, y2)."""
    middles, sizes = boxes[..., :2], boxes[..., 2:4]
    return jnp.concatenate([middles - sizes / 2, middles + sizes / 2], axis=-1)


def centred_overlaps(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return intersection over union of boxes around their middle."""
    return overlaps(as_corners(a), as_corners(b))


def shape_overlaps(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return intersection over union of widths and heights (..., 2), as if their middles were one."""
    inside = jnp.prod(jnp.minimum(a, b), axis=-1)
    return inside / (jnp.prod(a, axis=-1) + jnp.prod(b, axis=-1) - inside)


class GroundTruth(NamedTuple):
    """Labelled boxes of each image.

    Attributes:
        classes: (N, boxes).
        boxes: (N, boxes, 4), around their middle, as fractions of the image.
        seen: (N, boxes), those before the first with x = 0.
        placed: (N, boxes), those before the first of width 0 whose middle lies in the image.
        places: (N, boxes), the cells that those fall into, as numbers in the map.
    """

    classes: jax.Array
    boxes: jax.Array
    seen: jax.Array
    placed: jax.Array
    places: jax.Array


def ground_truth(data: Shape, labels: jax.Array, sides: np.ndarray) -> GroundTruth:
    """Sort a bottom of labels: rows (class, x, y, width, height) for each image.

    Args:
        data: the shape of the map.
        labels: the bottom; rows of five along its last axis.
        sides: columns and rows of the map.
    """
    shape = labels.shape
    require(
        len(shape) >= 2 and shape[0] == data[0] and shape[-1] == 5,
        f"bottom 1 must hold rows of class, x, y, width and height for each of the {data[0]} images, such as "
        f"{data[0]} x 1 x 300 x 5, not shape {shape}",
    )
    rows = lax.stop_gradient(promote(labels)).reshape(shape[0], math.prod(shape[1:-1]), 5)
    boxes = rows[..., 1:]
    cells = jnp.floor(boxes[..., :2] * sides.astype(boxes.dtype)).astype(jnp.int32)
    inside = jnp.all((cells >= 0) & (cells < sides.astype(np.int32)), axis=-1)
    return GroundTruth(
        rows[..., 0].astype(jnp.int32),
        boxes,
        _before_zero(boxes[..., 0]),
        _before_zero(boxes[..., 2]) & inside,
        cells[..., 1] * int(sides[0]) + cells[..., 0],
    )


def _before_zero(x: jax.Array) -> jax.Array:
    return jnp.cumsum(x == 0, axis=-1) == 0


def nan_for_strangers(loss: jax.Array, found: GroundTruth, classes: int) -> jax.Array:
    """Return the loss; NaN where a box that counts is labelled with what is no class."""
    stranger = found.placed & ((found.classes < 0) | (found.classes >= classes))
    return jnp.where(jnp.any(stranger), jnp.nan, loss)
