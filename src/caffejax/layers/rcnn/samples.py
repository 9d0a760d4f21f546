"""Bilinear samples of maps at grids of points: of each region all pairs of a row's and a column's position."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ...kernels.varying import vary_as
from ..dtypes import promote


class Along(NamedTuple):
    """Where the points lie along one axis of the maps: the two cells beside each, and what they count.

    Attributes:
        cells: two arrays (R, n) of int32.
        weights: likewise.
    """

    cells: tuple[jax.Array, jax.Array]
    weights: tuple[jax.Array, jax.Array]


def beside(position: jax.Array, length: int) -> Along:
    """Return the cells beside positions (R, n) along an axis, and their weights; 0 for cells that are not there."""
    low = jnp.floor(position)
    cells = low, low + 1
    weights = low + 1 - position, position - low
    held = (jnp.where((c >= 0) & (c < length), w, 0) for c, w in zip(cells, weights, strict=True))
    inside = (jnp.clip(c, 0, length - 1).astype(jnp.int32) for c in cells)
    return Along((next(inside), next(inside)), (next(held), next(held)))


def sampled(x: jax.Array, image: jax.Array, rows: Along, columns: Along) -> jax.Array:
    """Return weighted sums of the cells beside the points, (R, C, rows, columns), of maps (N, C, H, W)."""
    last = jnp.moveaxis(x, 1, -1)
    total: jax.Array | None = None
    for i, j in itertools.product((0, 1), (0, 1)):
        at = image[:, None, None], rows.cells[i][:, :, None], columns.cells[j][:, None, :]
        weight = rows.weights[i][:, :, None, None] * columns.weights[j][:, None, :, None]
        part = weight * promote(last.at[at].get(mode="promise_in_bounds"))
        total = part if total is None else total + part
    assert total is not None
    return jnp.moveaxis(total, -1, 1)


def spread(dy: jax.Array, x: jax.Array, image: jax.Array, rows: Along, columns: Along) -> jax.Array:
    """Return what becomes of `sampled`'s diff: each number added to the four cells, by their weights."""
    wide = vary_as(jnp.zeros(x.shape, jnp.promote_types(x.dtype, jnp.float32)), dy, image, rows.weights[0])
    (dx,) = jax.linear_transpose(lambda x: sampled(x, image, rows, columns), wide)(dy.astype(wide.dtype))
    return dx.astype(x.dtype)
