"""Padded blobs: arrays with the maximum number of rows, where the number of valid rows depends on the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class RowsOrigin(NamedTuple):
    """Where rows come from. Blobs whose rows come from one place have the same number of valid rows.

    Attributes:
        name: the key of the layer that selects them, or a name for inputs that have them.
        axis: the axis of the rows.
        is_marked: whether padding rows begin with a negative number where they are made.
    """

    name: str
    axis: int = 0
    is_marked: bool = False


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class PaddedRows:
    """A blob in code that JAX traces, with the largest possible number of rows and the number of those that are valid.

    Valid rows come first. `numpy.asarray` returns them alone.

    Attributes:
        array: all rows.
        num_rows: the number of valid rows, an int32 scalar, or an array with the number of each item of a batch.
        origin: where the rows come from. Inputs of one origin, such as data and their labels, have the same rows.
    """

    array: Any
    num_rows: Any
    origin: RowsOrigin = field(default=RowsOrigin("inputs"), metadata={"static": True})

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of `array`."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> Any:
        """The dtype of `array`."""
        return self.array.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(first_rows(np.asarray(self.array), int(self.num_rows), self.origin.axis), dtype)

    def __getitem__(self, index: Any) -> PaddedRows:
        return PaddedRows(self.array[index], self.num_rows[index], self.origin)

    def replace_array(self, array: Any) -> PaddedRows:
        """Return another array with the same rows."""
        return PaddedRows(array, self.num_rows, self.origin)

    def zero_padding(self) -> Array:
        """Return the array with zeros in the rows of padding."""
        is_valid = valid_rows(self).reshape(-1, *(1,) * (len(self.shape) - self.origin.axis - 1))
        return jnp.where(is_valid, self.array, 0)


def without_count(blob: Any) -> Any:
    """Return the array of a blob, which may be `PaddedRows`."""
    return blob.array if isinstance(blob, PaddedRows) else blob


def valid_rows(blob: Any) -> Array:
    """Return which rows of a blob, which may be `PaddedRows`, are valid: bool, (rows,)."""
    if not isinstance(blob, PaddedRows):
        return jnp.ones(blob.shape[0], bool)
    return jnp.arange(blob.shape[blob.origin.axis]) < blob.num_rows


def stack_padded(blobs: Sequence[Any]) -> PaddedRows:
    """Stack NumPy blobs along a new axis 0, padded to one number of rows.

    Some are `PaddedRows`, or batches of them; in the others all rows are valid.
    """
    first = next(blob for blob in blobs if isinstance(blob, PaddedRows))
    num_batch_axes = np.ndim(first.num_rows)
    axis = num_batch_axes + first.origin.axis
    num_rows = max(blob.shape[axis] for blob in blobs)
    counts = [
        blob.num_rows if isinstance(blob, PaddedRows) else np.full(blob.shape[:num_batch_axes], blob.shape[axis])
        for blob in blobs
    ]
    arrays = [zero_pad_rows(without_count(blob), num_rows, axis) for blob in blobs]
    return PaddedRows(np.stack(arrays), np.stack(counts).astype(np.int32), first.origin)


def pad_alike(batches: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return batches of NumPy blobs in which blobs that are `PaddedRows` in some have one number of rows in all."""
    padded = {
        name: stack_padded([batch[name] for batch in batches])
        for name in batches[0]
        if any(isinstance(batch[name], PaddedRows) for batch in batches)
    }
    return [{**batch, **{name: blob[i] for name, blob in padded.items()}} for i, batch in enumerate(batches)]


def count_marked_rows(top: Any) -> Any:
    """Return the number of valid rows of a padded top, int32. Padding rows begin with a negative number.

    `rows_axis` returns the axis of the rows. If there are axes before it, each of their items has such rows; the result
    is then the largest number of valid rows.
    """
    xp = jnp if isinstance(top, Array) else np
    return xp.max(xp.sum(first_column(top) >= 0, axis=rows_axis(top), dtype=xp.int32), initial=0)


def first_column(top: Any) -> Any:
    """Return the first number of each row of a padded top, without the axes after `rows_axis`."""
    return top if top.ndim == 1 else top[(slice(None),) * rows_axis(top) + (slice(None), 0)]


def zero_pad_rows(array: np.ndarray, num_rows: int, axis: int) -> np.ndarray:
    """Return an array with rows of zeros added along an axis, so that it has `num_rows` rows."""
    widths = [(0, num_rows - n if i == axis else 0) for i, n in enumerate(array.shape)]
    return np.pad(array, widths)


def num_valid_rows(top: Any) -> int:
    """Return the number of valid rows of a padded top, an array with values; see `count_marked_rows`."""
    return int(count_marked_rows(np.asarray(top)))


def strip_padding(top: Any, num_rows: int | None = None) -> Any:
    """Return the first `num_rows` rows of a padded top, by default all valid rows."""
    return first_rows(top, num_valid_rows(top) if num_rows is None else num_rows, rows_axis(top))


def first_rows(array: Any, num_rows: int, axis: int) -> Any:
    """Return the first rows of a NumPy or JAX array along an axis.

    A JAX array is sliced on the host, since JAX would compile a program for each number of rows.
    """
    index = (slice(None),) * axis + (slice(num_rows),)
    return jax.device_put(np.asarray(array)[index]) if isinstance(array, Array) else array[index]


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
