"""Rows of padding: tops that have as many rows as there can be, of which the data says how many there are."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def count(top: Any) -> int:
    """Return how many rows of a padded top are none of padding: those that begin with no negative number.

    Rows lie along the axis before the last, in all that lies before it; last axes of size 1 do not count. Of a top with
    one axis they are its numbers.
    """
    first = np.asarray(top) if top.ndim == 1 else np.asarray(top)[(slice(None),) * rows_axis(top) + (slice(None), 0)]
    return int(np.count_nonzero(first >= 0, axis=rows_axis(top)).max(initial=0))


def trimmed(top: Any, rows: int | None = None) -> Any:
    """Return a padded top without the padding: the first `rows` of it, or as many as it says itself."""
    return first_rows(top, count(top) if rows is None else rows, rows_axis(top))


def first_rows(array: Any, rows: int, axis: int) -> Any:
    """Return the first rows of an array of NumPy's or JAX's along an axis.

    JAX's array is cut on the host: JAX would compile for each number of rows.
    """
    cut = (slice(None),) * axis + (slice(rows),)
    return jax.device_put(np.asarray(array)[cut]) if isinstance(array, jax.Array) else array[cut]


def rows_axis(top: Any) -> int:
    """Return the axis along which the rows lie: 2 of (1, 1, rows, columns), 0 of (rows, columns, 1, 1) and (rows,)."""
    axes: int = max(top.ndim, 2)
    while axes > 2 and top.shape[axes - 1] == 1:
        axes -= 1
    return axes - 2


def axis_of_rows_in(blob: Any, root: Any) -> int | None:
    """Return the axis along which a blob has the rows of the padded top that it follows row by row, if it has it."""
    axis = rows_axis(root)
    return axis if axis == 0 or (blob.ndim == root.ndim and rows_axis(blob) == axis) else None
