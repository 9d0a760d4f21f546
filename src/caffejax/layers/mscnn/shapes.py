"""The forms that bottoms of boxes come in, and the one that tops leave in."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from ...errors import require
from ..axes import four_axes


def require_rows(shape: Any, name: str, *columns: int) -> int:
    """Return how many numbers a row (index along axis 0) of this shape has.

    Raises:
        LayerError: if it has no rows, or they have not one of these numbers of columns.
    """
    found = math.prod(shape[1:])
    require(
        len(shape) >= 2 and (not columns or found in columns),
        f"{name} must have rows of {' or '.join(map(str, columns)) or 'some'} numbers, not shape {tuple(shape)}",
    )
    return found


def rows_of(x: Any, name: str, *columns: int) -> Any:
    """Return a bottom of rows as (rows, columns), whatever axes of size 1 it ends with; see `require_rows`."""
    return x.reshape(x.shape[0], require_rows(x.shape, name, *columns))


def require_one_number_of_rows(**bottoms: Any) -> None:
    """Raise `LayerError` unless all bottoms, given by what they are, have as many rows."""
    scalars = [name for name, x in bottoms.items() if not x.shape]
    require(not scalars, f"bottoms must have rows, but {' and '.join(scalars)} have no axes")
    rows = {name: x.shape[0] for name, x in bottoms.items()}
    require(len(set(rows.values())) == 1, f"bottoms must have one number of rows: {rows}")


def with_four_axes(x: Any) -> Any:
    """Return an array with axes of size 1 after its own, so that there are four, as the forks' blobs have."""
    return x.reshape(four_long(x.shape))


def four_long(shape: Any) -> Any:
    """Return the shape of `with_four_axes`."""
    return (*shape, 1, 1, 1)[: max(4, len(shape))]


def images_of(batch: Any, fields: int, name: str = "bottom 0") -> Any:
    """Return how many images a batch has in which each image has an item for every field."""
    known = isinstance(batch, int)
    require(
        not known or batch % fields == 0,
        f"{name} has {batch} items, which do not divide into images of {fields} box shapes (field_w, field_h)",
    )
    return batch // fields


def per_image(x: Any, images: Any, fields: int) -> Any:
    """Return (images * fields, ...) as (images, fields, ...)."""
    if isinstance(images, int):
        return x.reshape(images, fields, *x.shape[1:])
    return x[  # the number of images is a symbol, which no reshape divides
        jnp.arange(images)[:, None] * fields + jnp.arange(fields)
    ]


def per_item(x: Any, batch: Any, fields: int) -> Any:
    """Return (images, fields, ...) as (images * fields, ...), a batch of so many items."""
    if isinstance(batch, int):
        return x.reshape(batch, *x.shape[2:])
    return x[jnp.arange(batch) // fields, jnp.arange(batch) % fields]


def require_pair(scores: Any, deltas: Any) -> None:
    """Raise `LayerError` unless these are shapes of class scores and of deltas, map for map."""
    require(
        len(scores) == len(deltas) == 4 and deltas[1] == 4 and scores[:1] + scores[2:] == deltas[:1] + deltas[2:],
        f"needs scores N x classes x H x W and deltas N x 4 x H x W, not {scores} and {deltas}",
    )


def require_scores_and_deltas(p: Any, shape: Any) -> None:
    """Raise `LayerError` unless this is the shape of a map of scores and deltas as the parameters have them."""
    require(p.coord_num == 4, f"coord_num must be 4, x, y, width and height, not {p.coord_num}")
    require(p.cls_num > 1, f"cls_num, background included, must be 2 or more, not {p.cls_num}")
    _, channels, _, _ = four_axes(shape, "bottom 0")
    require(
        channels == p.cls_num + 4,
        f"bottom 0 must have cls_num + coord_num channels, {p.cls_num} + 4, not {channels}: shape {tuple(shape)}",
    )
