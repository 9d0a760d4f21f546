"""Maxima over rectangles of maps, each of four overlapping rectangles whose sides are powers of two.

The maxima over all rectangles of 2**a x 2**b cells come from those of half the size. Four of them cover a rectangle of
any size, which thus costs four look-ups however large it is. Channels are gone through in chunks, so that the tables
stay small.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ...kernels.gradient import with_gradient
from ...kernels.sums import promote
from ...kernels.varying import vary_as

_TABLE = 1 << 24  # numbers in the tables of one chunk

Cells = tuple[jax.Array, ...]  # the values, and what goes with them
Better = Callable[[Cells, Cells], Cells]


class Rectangles(NamedTuple):
    """Rectangles of maps: of each region all pairs of a range of rows and one of columns.

    Attributes:
        image: (R,), whose map.
        top, bottom: (R, ph), from row `top` to before row `bottom`.
        left, right: (R, pw), likewise.
    """

    image: jax.Array
    top: jax.Array
    bottom: jax.Array
    left: jax.Array
    right: jax.Array

    @property
    def empty(self) -> jax.Array:
        """(R, 1, ph, pw), True where there is nothing inside."""
        return ((self.top >= self.bottom)[:, :, None] | (self.left >= self.right)[:, None, :])[:, None]


def maxima(x: jax.Array, where: Rectangles) -> jax.Array:
    """Return the maxima of x, (N, C, H, W), over rectangles: (R, C, ph, pw); 0 of empty ones.

    The gradient goes to the first of equal maxima. It finds their places anew, so that no table is kept for it.
    """

    def forward(x: jax.Array, where: Rectangles) -> tuple[jax.Array, tuple[jax.Array, Rectangles]]:
        found = _by_chunks(lambda maps: _over((maps,), where, _larger)[0], x)
        return jnp.where(where.empty, 0, found), (x, where)

    def backward(residuals: tuple[jax.Array, Rectangles], dy: jax.Array, _: Any) -> tuple[jax.Array, None]:
        return spread(dy, *residuals), None

    return with_gradient(forward, backward)(x, where)


def spread(dy: jax.Array, x: jax.Array, where: Rectangles) -> jax.Array:
    """Return what `maxima` makes of its result's diff for `x`."""
    passed = jnp.where(where.empty, 0, promote(dy))
    return put(passed, places(x, where), where.image, x.shape).astype(x.dtype)


def places(x: jax.Array, where: Rectangles) -> jax.Array:
    """Return where the maxima are, (R, C, ph, pw), as row * W + column; of equal ones the first in row order."""
    height, width = x.shape[2:]
    number = jnp.arange(height * width, dtype=jnp.int32).reshape(1, height, width, 1)

    def chunk(maps: jax.Array) -> jax.Array:
        return _over((maps, jnp.broadcast_to(number, maps.shape)), where, _first_larger)[1]

    return _by_chunks(chunk, lax.stop_gradient(x))


def put(dy: jax.Array, place: jax.Array, image: jax.Array, shape: tuple[Any, ...]) -> jax.Array:
    """Return maps of that shape, (N, C, H, W), with dy, (R, C, ph, pw), added up at its places."""
    n, channels, height, width = shape

    def channel(dy: jax.Array, at: jax.Array) -> jax.Array:
        zeros = vary_as(jnp.zeros(n * height * width, dy.dtype), dy, at)
        return zeros.at[at].add(dy, mode="promise_in_bounds")

    at = image[:, None, None, None] * (height * width) + place
    return jnp.moveaxis(jax.vmap(channel, 1)(dy, at).reshape(channels, n, height, width), 0, 1)


def _larger(a: Cells, b: Cells) -> Cells:
    return (jnp.maximum(a[0], b[0]),)


def _first_larger(a: Cells, b: Cells) -> Cells:
    second = (b[0] > a[0]) | ((b[0] == a[0]) & (b[1] < a[1]))
    return jnp.where(second, b[0], a[0]), jnp.where(second, b[1], a[1])


def _over(cells: Cells, where: Rectangles, better: Better) -> Cells:
    """Return the best of cells (N, H, W, c) over rectangles, (R, ph, pw, c)."""
    height, width = cells[0].shape[1:3]
    of_rows = _doubled(cells, height, 1, better)
    tables = [_doubled(level, width, 2, better) for level in of_rows]
    parts = range(len(cells))
    table = [jnp.stack([jnp.stack([level[i] for level in row]) for row in tables]) for i in parts]
    tall, rows = _pairs(where.top, where.bottom, height)
    wide, columns = _pairs(where.left, where.right, width)
    image = where.image[:, None, None]
    best: Cells | None = None
    for row, column in itertools.product(rows, columns):
        at = tall[:, :, None], wide[:, None, :], image, row[:, :, None], column[:, None, :]
        found = tuple(part.at[at].get(mode="promise_in_bounds") for part in table)
        best = found if best is None else better(best, found)
    assert best is not None
    return best


def _doubled(cells: Cells, length: int, axis: int, better: Better) -> list[Cells]:
    """Return the best over 1, 2, 4, ... cells from each on; the last few are of cells beyond the end."""
    levels = [cells]
    for k in range(length.bit_length() - 1):
        levels.append(better(levels[-1], tuple(jnp.roll(part, -(1 << k), axis) for part in levels[-1])))
    return levels


def _pairs(low: jax.Array, high: jax.Array, length: int) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Return the level of the two ranges that cover low .. high - 1, and where they begin."""
    size = jnp.maximum(high - low, 1)
    level = sum(((size >> k) > 0).astype(jnp.int32) for k in range(1, length.bit_length()))
    level = jnp.asarray(level, jnp.int32) + jnp.zeros_like(size)
    first = jnp.clip(low, 0, length - 1)
    return level, (first, jnp.maximum(first + size - (1 << level), 0))


def _by_chunks(function: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    """Call a function of (N, H, W, c), which gives (R, ph, pw, c), for all of (N, C, H, W)."""
    n, channels, height, width = x.shape
    levels = height.bit_length() * width.bit_length()
    per_channel = levels * height * width * (n if isinstance(n, int) else 1)
    size = max(8, _TABLE // per_channel)
    last = jnp.moveaxis(x, 1, -1)
    if size >= channels:
        return jnp.moveaxis(function(last), -1, 1)
    count = math.ceil(channels / size)
    size = math.ceil(channels / count)
    filled = jnp.pad(last, ((0, 0), (0, 0), (0, 0), (0, count * size - channels)))
    chunks = jnp.moveaxis(filled.reshape(n, height, width, count, size), 3, 0)
    found = jnp.moveaxis(lax.map(function, chunks), (0, 4), (1, 2))
    return found.reshape(found.shape[0], count * size, *found.shape[3:])[:, :channels]
