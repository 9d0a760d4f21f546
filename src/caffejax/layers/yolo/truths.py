"""The labelled boxes of YOLO's losses, and the cells that they fall into."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...errors import require
from ..context import Shape
from ..dtypes import promote


class Truths(NamedTuple):
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


def truths(data: Shape, labels: jax.Array, sides: np.ndarray) -> Truths:
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
    return Truths(
        rows[..., 0].astype(jnp.int32),
        boxes,
        _before_zero(boxes[..., 0]),
        _before_zero(boxes[..., 2]) & inside,
        cells[..., 1] * int(sides[0]) + cells[..., 0],
    )


def _before_zero(x: jax.Array) -> jax.Array:
    return jnp.cumsum(x == 0, axis=-1) == 0


def nan_for_strangers(loss: jax.Array, found: Truths, classes: int) -> jax.Array:
    """Return the loss; NaN where a box that counts is labelled with what is no class."""
    stranger = found.placed & ((found.classes < 0) | (found.classes >= classes))
    return jnp.where(jnp.any(stranger), jnp.nan, loss)
