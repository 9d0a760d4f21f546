"""Maxima over rectangles of feature maps, and their gradient: the operation of ROIPooling.

CPUs loop over the cells of each rectangle. XLA has no loops of different lengths, so elsewhere maxima are read from
tables.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ...core.ops.channels import promote
from ...core.ops.custom_gradient import make_differentiable
from ...core.ops.implementations import cpu_form
from ...core.ops.platform_dispatch import PlatformOp
from ...core.ops.vma import vary_as

_MAX_TABLE_VALUES = 1 << 24  # the maximum number of values in the tables of one chunk

Cells = tuple[jax.Array, ...]  # the values, and optionally their positions
Select = Callable[[Cells, Cells], Cells]


class Rectangles(NamedTuple):
    """The bins of R regions of feature maps. Each region is a grid of ph x pw bins: ranges of rows and of columns.

    Attributes:
        image_index: (R,), the index of the region's map.
        first_row, end_row: (R, ph), the first row of each range, and the row after its last row.
        first_column, end_column: (R, pw), the first column of each range, and the column after its last column.
    """

    image_index: jax.Array
    first_row: jax.Array
    end_row: jax.Array
    first_column: jax.Array
    end_column: jax.Array

    @property
    def is_empty(self) -> jax.Array:
        """The mask (R, 1, ph, pw), True for empty rectangles."""
        return ((self.first_row >= self.end_row)[:, :, None] | (self.first_column >= self.end_column)[:, None, :])[
            :, None
        ]


def rectangle_maxima(x: jax.Array, rectangles: Rectangles) -> jax.Array:
    """Return the maxima of x (N, C, H, W) over rectangles, (R, C, ph, pw). Maxima of empty rectangles are 0.

    Without a kernel for the platform, the maxima are read from tables of the maxima over all rectangles of 2**a x 2**b
    cells, because four of these cover a rectangle of any size. Each table is computed from a table for half the width
    or height. Channels are processed in chunks to limit the size of the tables. If several cells have the maximum, the
    gradient goes to the first. The backward pass computes the positions of the maxima again.
    """

    def forward(x: jax.Array, rectangles: Rectangles) -> tuple[jax.Array, tuple[jax.Array, Rectangles]]:
        (values,) = _maxima(x, *rectangles)
        return jnp.where(rectangles.is_empty, 0, values), (x, rectangles)

    def backward(residuals: tuple[jax.Array, Rectangles], dy: jax.Array, _: Any) -> tuple[jax.Array, None]:
        return scatter_maxima_diff(dy, *residuals), None

    return make_differentiable(forward, backward)(x, rectangles)


def scatter_maxima_diff(dy: jax.Array, x: jax.Array, rectangles: Rectangles) -> jax.Array:
    """Return the gradient of `rectangle_maxima` with respect to `x`; dy is the gradient of the maxima."""
    nonempty_dy = jnp.where(rectangles.is_empty, 0, promote(dy))
    return scatter_add(nonempty_dy, argmax_cells(x, rectangles), rectangles.image_index, x.shape).astype(x.dtype)


def argmax_cells(x: jax.Array, rectangles: Rectangles) -> jax.Array:
    """Return the position of the maximum of each rectangle, int32 (R, C, ph, pw), as row * W + column.

    If several cells have the maximum, it is the position of the first.
    """
    return _places(lax.stop_gradient(x), *rectangles)[0]


def _compute_maxima(x: jax.Array, *ranges: jax.Array) -> Cells:
    rectangles = Rectangles(*ranges)
    return (_map_channel_chunks(lambda maps: _select_in_rectangles((maps,), rectangles, _select_maximum)[0], x),)


def _compute_places(x: jax.Array, *ranges: jax.Array) -> Cells:
    height, width = x.shape[2:]
    positions = jnp.arange(height * width, dtype=jnp.int32).reshape(1, height, width, 1)

    def argmax_chunk(maps: jax.Array) -> jax.Array:
        return _select_in_rectangles(
            (maps, jnp.broadcast_to(positions, maps.shape)), Rectangles(*ranges), _select_first_maximum
        )[1]

    return (_map_channel_chunks(argmax_chunk, x),)


_maxima = PlatformOp(_compute_maxima, cpu_form("rectangle_maxima", _compute_maxima), differentiable=False)
_places = PlatformOp(_compute_places, cpu_form("rectangle_places", _compute_places), differentiable=False)


def scatter_add(dy: jax.Array, index: jax.Array, image_index: jax.Array, shape: tuple[Any, ...]) -> jax.Array:
    """Return maps of zeros with dy added at the positions `index`, (N, C, H, W).

    Args:
        dy: (R, C, ph, pw).
        index: (R, C, ph, pw), positions as row * W + column.
        image_index: (R,), the index of each region's map.
        shape: (N, C, H, W).
    """
    n, channels, height, width = shape

    def scatter_channel(dy: jax.Array, flat_index: jax.Array) -> jax.Array:
        zeros = vary_as(jnp.zeros(n * height * width, dy.dtype), dy, flat_index)
        return zeros.at[flat_index].add(dy, mode="promise_in_bounds")

    flat_index = image_index[:, None, None, None] * (height * width) + index
    return jnp.moveaxis(jax.vmap(scatter_channel, 1)(dy, flat_index).reshape(channels, n, height, width), 0, 1)


def _select_maximum(a: Cells, b: Cells) -> Cells:
    return (jnp.maximum(a[0], b[0]),)


def _select_first_maximum(a: Cells, b: Cells) -> Cells:
    is_second_better = (b[0] > a[0]) | ((b[0] == a[0]) & (b[1] < a[1]))
    return jnp.where(is_second_better, b[0], a[0]), jnp.where(is_second_better, b[1], a[1])


def _select_in_rectangles(cells: Cells, rectangles: Rectangles, select: Select) -> Cells:
    """Return the best cell of each rectangle, such as its maximum and the position of the maximum, (R, ph, pw, c) each.

    `cells` is a tuple of arrays (N, H, W, c), such as values and their positions. `select(a, b)` compares two such
    tuples and returns the better cell at each position.
    """
    height, width = cells[0].shape[1:3]
    row_levels = _build_levels(cells, height, 1, select)
    tables = [_build_levels(level, width, 2, select) for level in row_levels]
    part_indices = range(len(cells))
    stacked_tables = [jnp.stack([jnp.stack([level[i] for level in row]) for row in tables]) for i in part_indices]
    row_level, rows = _covering_ranges(rectangles.first_row, rectangles.end_row, height)
    column_level, columns = _covering_ranges(rectangles.first_column, rectangles.end_column, width)
    image_index = rectangles.image_index[:, None, None]
    best_cells: Cells | None = None
    for row, column in itertools.product(rows, columns):
        index = row_level[:, :, None], column_level[:, None, :], image_index, row[:, :, None], column[:, None, :]
        corner_cells = tuple(part.at[index].get(mode="promise_in_bounds") for part in stacked_tables)
        best_cells = corner_cells if best_cells is None else select(best_cells, corner_cells)
    assert best_cells is not None
    return best_cells


def _build_levels(cells: Cells, length: int, axis: int, select: Select) -> list[Cells]:
    """Return a list with the best cells of all ranges of 1, 2, 4, ... cells along an axis, one entry for each length.

    Cell i of an entry is the best cell of the range that starts at cell i. Ranges that extend beyond the end of the
    axis wrap around.
    """
    levels = [cells]
    for k in range(length.bit_length() - 1):
        levels.append(select(levels[-1], tuple(jnp.roll(part, -(1 << k), axis) for part in levels[-1])))
    return levels


def _covering_ranges(low: jax.Array, high: jax.Array, length: int) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Return two ranges of 2**level cells that together cover the cells from `low` to `high` - 1.

    Returns:
        The level, and the first cell of each of the two ranges.
    """
    size = jnp.maximum(high - low, 1)
    level = sum(((size >> k) > 0).astype(jnp.int32) for k in range(1, length.bit_length()))
    level = jnp.asarray(level, jnp.int32) + jnp.zeros_like(size)
    first_cell = jnp.clip(low, 0, length - 1)
    return level, (first_cell, jnp.maximum(first_cell + size - (1 << level), 0))


def _map_channel_chunks(function: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    """Apply a function to x (N, C, H, W) in chunks of c channels; return (R, C, ph, pw).

    The function maps arrays (N, H, W, c) to (R, ph, pw, c).
    """
    n, channels, height, width = x.shape
    num_levels = height.bit_length() * width.bit_length()
    values_per_channel = num_levels * height * width * (n if isinstance(n, int) else 1)
    chunk_size = max(8, _MAX_TABLE_VALUES // values_per_channel)
    channels_last = jnp.moveaxis(x, 1, -1)
    if chunk_size >= channels:
        return jnp.moveaxis(function(channels_last), -1, 1)
    num_chunks = math.ceil(channels / chunk_size)
    chunk_size = math.ceil(channels / num_chunks)
    padded_channels = jnp.pad(channels_last, ((0, 0), (0, 0), (0, 0), (0, num_chunks * chunk_size - channels)))
    chunks = jnp.moveaxis(padded_channels.reshape(n, height, width, num_chunks, chunk_size), 3, 0)
    results = jnp.moveaxis(lax.map(function, chunks), (0, 4), (1, 2))
    return results.reshape(results.shape[0], num_chunks * chunk_size, *results.shape[3:])[:, :channels]
