"""Helpers for layers that pool features of regions of interest (ROIs): checks of bottoms, boxes, and bins."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...base.errors import require
from ...core.layers.context import Shape
from ...core.layers.dtype_policy import promote

_MAX_COORDINATE = 1e6  # pixels; coordinates are clipped to this, which is larger than any map and fits into integers


def require_maps_and_rois(data: Any, rois: Any) -> None:
    """Raise `LayerError` unless the maps have four axes and the ROIs are rows of five values."""
    require(len(data.shape) == 4, f"bottom 0 must be N x C x H x W, not {data.shape}")
    require(
        has_rows_of_five(rois),
        f"the ROIs, bottom 1, must have five values in each row (image, x1, y1, x2, y2), not shape {rois.shape}",
    )


def has_rows_of_five(rows: Any) -> bool:
    """Return whether an array has the shape (rows, 5), possibly followed by axes of size 1."""
    return len(rows.shape) >= 2 and rows.shape[1] == 5 and all(n == 1 for n in rows.shape[2:])


def read_pooled_size(p: Any) -> tuple[int, int]:
    """Return `pooled_h` and `pooled_w`, after checking that they are positive."""
    require(p.pooled_h > 0 and p.pooled_w > 0, f"pooled_h and pooled_w must be > 0, not {p.pooled_h} and {p.pooled_w}")
    return p.pooled_h, p.pooled_w


def split_rois(rois: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the image index of each ROI, int32 (R,), and its box x1, y1, x2, y2, (R, 4)."""
    rows = promote(rois).reshape(rois.shape[0], 5)
    return round_nearest(rows[:, 0]).astype(jnp.int32), jnp.clip(rows[:, 1:], -_MAX_COORDINATE, _MAX_COORDINATE)


def widen_boxes(boxes: jax.Array, ratio: float) -> jax.Array:
    """Return boxes (x1, y1, x2, y2), (R, 4), extended on every side by `ratio` times their sides (x2 - x1 + 1)."""
    if not ratio:
        return boxes
    pad = (boxes[:, 2:] - boxes[:, :2] + 1) * ratio
    return jnp.concatenate([boxes[:, :2] - pad, boxes[:, 2:] + pad], axis=1)


def round_nearest(x: jax.Array) -> jax.Array:
    """Round to the nearest integer; halves are rounded away from zero, as by C's `round`."""
    return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)


def floor_divide(x: jax.Array, n: Any) -> jax.Array:
    """Return floor(x / n), which is exact even on devices that do not round divisions correctly."""
    quotient = jnp.floor(x / n)
    return quotient + (x >= (quotient + 1) * n) - (x < quotient * n)


def ceil_divide(x: jax.Array, n: Any) -> jax.Array:
    """Return ceil(x / n), which is exact even on devices that do not round divisions correctly."""
    return -floor_divide(-x, n)


def divide_into_bins(start: jax.Array, size: jax.Array, n: int, axis_length: int) -> tuple[jax.Array, jax.Array]:
    """Divide regions into bins along an axis; return the first cell of each bin, and the cell after its last cell.

    Both arrays are int32, (R, n).

    Args:
        start, size: (R,), the start and the size of the regions in cells.
        n: the number of bins of a region.
        axis_length: the length of the axis, to which bins are clipped.
    """
    i = jnp.arange(n, dtype=start.dtype)
    low = floor_divide(start[:, None] * n + i * size[:, None], n)
    high = ceil_divide(start[:, None] * n + (i + 1) * size[:, None], n)
    clipped_borders = (jnp.clip(border, 0, axis_length).astype(jnp.int32) for border in (low, high))
    return next(clipped_borders), next(clipped_borders)


def replace_missing_images(image_index: jax.Array, map_shape: Shape) -> tuple[jax.Array, jax.Array]:
    """Replace the indices of images that do not exist, so that results of their regions are NaN.

    Args:
        image_index: (R,), the image index of each region.
        map_shape: the shape of the maps, (N, C, H, W).

    Returns:
        Two arrays (R,): the index of an existing image to read for each region, and the offset to add to the region's
        values. The offset is NaN if the region's image does not exist, otherwise 0. For a padding row, whose index is
        negative, both are 0.
    """
    exists = image_index < map_shape[0]
    return jnp.where(exists, jnp.maximum(image_index, 0), 0), jnp.where(exists, 0.0, jnp.nan)
