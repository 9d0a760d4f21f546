"""Linear interpolation along the axes of the plane."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...kernels.gradient import with_gradient
from ...kernels.table import table
from ..dtypes import promote


class Places(NamedTuple):
    """Where along an axis the numbers of the top lie.

    Attributes:
        low: the cell before each, or at it.
        part: how far each lies from there to the next cell, 0 to less than 1.
    """

    low: np.ndarray
    part: np.ndarray


def interpolated(x: jax.Array, places: Sequence[Places], *, fast: bool) -> jax.Array:
    """Interpolate (num, channels, height, width) along height and width.

    Integers are made float32. If `fast`, the gradient is a product with a matrix of weights rather than numbers
    scattered back one by one.
    """
    kind = x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else jnp.float32
    size = (x.shape[2], x.shape[3])

    def forward(x: jax.Array) -> tuple[jax.Array, tuple[()]]:
        y = promote(x)
        for axis in _order(size, places):
            y = _along(y, axis, places[axis - 2])
        return y.astype(kind), ()

    def backward(_: Any, dy: jax.Array, wanted: Any) -> tuple[jax.Array]:
        return (interpolated_diff(dy, places, size).astype(kind),)

    if not fast or not jnp.issubdtype(x.dtype, jnp.floating):
        return forward(x)[0]
    y: jax.Array = with_gradient(forward, backward)(x)
    return y


def interpolated_diff(dy: jax.Array, places: Sequence[Places], size: Sequence[int]) -> jax.Array:
    """Return the bottom's diff, of that height and width."""
    d = promote(dy)
    for axis in reversed(_order(size, places)):
        along, n = places[axis - 2], size[axis - 2]
        weights = table(partial(_weights, along, n), (len(along.low), n), d.dtype)
        d = jnp.moveaxis(jnp.tensordot(d, weights, (axis, 0)), -1, axis)
    return d


def _order(size: Sequence[int], places: Sequence[Places]) -> list[int]:
    """Return the axes that change anything, that first which leaves least to do for the other."""
    growth = {axis: len(p.low) / n for axis, n, p in zip((2, 3), size, places, strict=True)}
    changed = {2: _is_changed(places[0], size[0]), 3: _is_changed(places[1], size[1])}
    return [axis for axis in sorted(growth, key=growth.__getitem__) if changed[axis]]


def _is_changed(places: Places, n: int) -> bool:
    return len(places.low) != n or bool(np.any(places.part)) or bool(np.any(places.low != np.arange(n)))


def _along(x: jax.Array, axis: int, places: Places) -> jax.Array:
    low, part = places
    steps = np.diff(low)
    if not np.any(part) and np.all(steps > 0) and np.all(steps == steps[:1]):  # every so many cells, as they are
        return lax.slice_in_dim(x, int(low[0]), int(low[-1]) + 1, int(steps[0]) if len(steps) else 1, axis)
    along = (-1, *(1,) * (x.ndim - axis - 1))
    share = jnp.asarray(part, x.dtype).reshape(along)
    before = jnp.take(x, low, axis=axis)
    return before * (1 - share) + jnp.take(x, _next(low, x.shape[axis]), axis=axis) * share


def _next(low: np.ndarray, n: int) -> np.ndarray:
    return np.minimum(low + 1, n - 1)


def _weights(places: Places, n: int) -> np.ndarray:
    """Return how much of each cell goes into each number of the top: (top, bottom)."""
    rows, found = np.arange(len(places.low)), np.zeros((len(places.low), n))
    np.add.at(found, (rows, places.low), 1 - places.part)
    np.add.at(found, (rows, _next(places.low, n)), places.part)
    return found
