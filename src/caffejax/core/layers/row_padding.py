"""Padded tops: arrays with the maximum number of rows, where the number of valid rows depends on the data."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def num_valid_rows(top: Any) -> int:
    """Return the number of valid rows of a padded top. Padding rows begin with a negative number.

    `rows_axis` returns the axis of the rows. If there are axes before it, each of their items has such rows; the result
    is then the largest number of valid rows.
    """
    first_column = (
        np.asarray(top) if top.ndim == 1 else np.asarray(top)[(slice(None),) * rows_axis(top) + (slice(None), 0)]
    )
    return int(np.count_nonzero(first_column >= 0, axis=rows_axis(top)).max(initial=0))


def strip_padding(top: Any, num_rows: int | None = None) -> Any:
    """Return the first `num_rows` rows of a padded top, by default all valid rows."""
    return first_rows(top, num_valid_rows(top) if num_rows is None else num_rows, rows_axis(top))


def first_rows(array: Any, num_rows: int, axis: int) -> Any:
    """Return the first rows of a NumPy or JAX array along an axis.

    A JAX array is sliced on the host, since JAX would compile a program for each number of rows.
    """
    index = (slice(None),) * axis + (slice(num_rows),)
    return jax.device_put(np.asarray(array)[index]) if isinstance(array, jax.Array) else array[index]


def rows_axis(top: Any) -> int:
    """Return the axis of the rows: 2 for (1, 1, rows, columns), 0 for (rows, columns, 1, 1) and (rows,).

    This is the second to last axis, after axes of size 1 at the end have been dropped.
    """
    num_axes: int = max(top.ndim, 2)
    while num_axes > 2 and top.shape[num_axes - 1] == 1:
        num_axes -= 1
    return num_axes - 2


def matching_rows_axis(blob: Any, root: Any) -> int | None:
    """Return the axis along which a blob has the same rows as the padded top `root`, or None if it has no such axis."""
    axis = rows_axis(root)
    return axis if axis == 0 or (blob.ndim == root.ndim and rows_axis(blob) == axis) else None
