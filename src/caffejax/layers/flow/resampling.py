"""Maps brought to another size by a matrix for rows and one for columns, and the matrices of FlowNet 2."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...kernels.table import table
from ..dtypes import promote

Coefficients = Callable[[np.ndarray], np.ndarray]


class Matrix(NamedTuple):
    """How much of each of `old` cells goes into each of `new` ones: `make(new, old)` gives (new, old)."""

    new: int
    old: int
    make: Callable[[int, int], np.ndarray]


def resampled(x: jax.Array, rows: Matrix, columns: Matrix) -> jax.Array:
    """Return (N, C, height, width) with rows (new height, height) and columns (new width, width) mixed."""
    return _mixed(promote(x), _as(rows, x), _as(columns, x))


def resampled_diff(x: jax.Array, dy: jax.Array, rows: Matrix, columns: Matrix) -> jax.Array:
    """Return the diff of x."""
    return _mixed(promote(dy), _as(rows, x).T, _as(columns, x).T)


def aligned(new: int, old: int) -> np.ndarray:
    """Return linear interpolation with the corners of both sizes at the same places, (new, old)."""
    at = np.arange(new) * ((old - 1) / max(new - 1, 1))
    return triangle(at[:, None] - np.arange(old))


def averaged(new: int, old: int) -> np.ndarray:
    """Return weighted averages round the same places, of what is less than the steps between them away, (new, old)."""
    step = (old - 1) / (new - 1)
    return triangle((np.arange(new)[:, None] * step - np.arange(old)) / step)


def filtered(new: int, old: int, offset: float, filter_: tuple[Coefficients, int], antialias: bool) -> np.ndarray:
    """Return a filter at places `new` of which are spread over `old`, with weights of sum 1, or 0 without any.

    Args:
        new, old: the sizes.
        offset: where the first place lies.
        filter_: its coefficients, and how wide it is.
        antialias: whether it is stretched by the ratio of the sizes.
    """
    coefficients, width = filter_
    ratio = old / new
    at = np.arange(new) * ratio + offset
    stretch = ratio if antialias else 1.0
    reach = 2 if ratio < 1 else int(np.ceil(width * stretch))
    places = np.arange(old)
    weights = coefficients((at[:, None] - places) / stretch)
    weights = np.where(np.abs(rounded(at)[:, None] - places) <= reach, weights, 0)
    total = weights.sum(1, keepdims=True)
    return np.where(total == 0, 0, weights / np.where(total == 0, 1, total))


def nearest(new: int, old: int, offset: float) -> np.ndarray:
    """Return a 1 at the nearest place, (new, old)."""
    at = np.clip(rounded(np.arange(new) * (old / new) + offset), 0, old - 1)
    return (at[:, None] == np.arange(old)).astype(float)


def rounded(x: np.ndarray) -> np.ndarray:
    """Return whole numbers, halves away from 0."""
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def triangle(x: np.ndarray) -> np.ndarray:
    """Return coefficients of linear interpolation."""
    return np.maximum(1 - np.abs(x), 0)


def cubic(x: np.ndarray) -> np.ndarray:
    """Return coefficients of cubic interpolation, with -0.5 for its parameter."""
    x = np.abs(x)
    return np.where(x <= 1, (1.5 * x - 2.5) * x**2 + 1, np.where(x < 2, ((-0.5 * x + 2.5) * x - 4) * x + 2, 0))


def _mixed(x: jax.Array, rows: jax.Array, columns: jax.Array) -> jax.Array:
    # each product has the batch for its first axis, so that devices that hold parts of it keep them
    across = jnp.tensordot(x, columns, ([3], [1]))  # n, c, h, j
    return jnp.moveaxis(jnp.tensordot(across, rows, ([2], [1])), 3, 2)


def _as(matrix: Matrix, x: jax.Array) -> jax.Array:
    new, old, make = matrix
    return table(partial(make, new, old), (new, old), promote(x).dtype)
