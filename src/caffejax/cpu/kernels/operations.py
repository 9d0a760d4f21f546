"""Operations of core by oneDNN and by the loops of onednn.cc. Each returns None for arguments that it does not support.

Arguments and results are as of the plain forms in `core.ops`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ...core.ops.custom_gradient import NeededDiffs
from ...core.ops.layout import materialise, to_channels_first, to_channels_last
from ...core.ops.matmul import diffs_by_linear_transpose, multiply
from ...core.ops.window import Window
from . import onednn

Arrays = tuple[jax.Array, ...]


def matmul(x: jax.Array, weight: jax.Array, *, transpose: bool) -> Arrays:
    """Return the product of rows, (*rows, inputs), and a weight; see `core.ops.matmul`."""
    rows = _merge_rows(x)
    if len(rows) == 1:  # a matrix-vector product reads the weight in place; a matrix-matrix product would pack it first
        y = (rows[0] @ weight if transpose else weight @ rows[0])[None]
    elif onednn.supports(rows, weight):
        y = onednn.matmul(rows, weight, transpose_b=not transpose)
    else:
        (y,) = multiply(rows, weight, transpose=transpose)
    return (y.reshape(*x.shape[:-1], y.shape[-1]),)


def _merge_rows(x: jax.Array) -> jax.Array:
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])  # -1 fails for 0 rows


def matmul_diffs(x: jax.Array, dy: jax.Array, weight: jax.Array, *, transpose: bool, needed: NeededDiffs) -> Arrays:
    """Return the needed diffs of rows and weight."""
    rows, dy_rows = _merge_rows(x), _merge_rows(dy)
    if len(rows) > 1 and onednn.supports(rows, dy_rows, weight):
        dx, d_weight = onednn.matmul_diffs(rows, dy_rows, weight, needed, transpose=transpose)
        return tuple(d for d in (None if dx is None else dx.reshape(x.shape), d_weight) if d is not None)
    return diffs_by_linear_transpose(matmul, x, dy, weight, transpose, needed)


def normalize_response(x: jax.Array, **options: Any) -> Arrays | None:
    """Return the local response normalization of (batch, channels, height, width)."""
    if not onednn.supports(x):
        return None
    return (to_channels_first(onednn.normalize_response(materialise(to_channels_last(x)), **options)),)


def normalize_response_diff(x: jax.Array, dy: jax.Array, **options: Any) -> Arrays | None:
    """Return the diff of a local response normalization's input."""
    if not onednn.supports(x, dy):
        return None
    arrays = (materialise(to_channels_last(a)) for a in (x, dy))
    return (to_channels_first(onednn.normalize_response_diff(*arrays, **options)),)


def max_pool(x: jax.Array, window: Window) -> Arrays | None:
    """Return the maximum of each window and the index of its cell in the window."""
    if not onednn.supports_max_pooling(x, window):
        return None
    y, indices = onednn.max_pool(materialise(to_channels_last(x)), window)
    return to_channels_first(materialise(y)), to_channels_first(materialise(indices))


def max_pool_diff(x: jax.Array, indices: jax.Array, dy: jax.Array, window: Window) -> Arrays | None:
    """Return the diff of the input of `max_pool`."""
    if not onednn.supports_max_pooling(x, window):
        return None
    indices, dy = materialise(to_channels_last(indices)), materialise(to_channels_last(dy))
    return (to_channels_first(materialise(onednn.max_pool_diff(indices, dy, (x.shape[2], x.shape[3]), window))),)


def rectangle_maxima(x: jax.Array, *ranges: jax.Array) -> Arrays | None:
    """Return the maxima of x (N, C, H, W) over rectangles, (R, C, ph, pw); see `forks.rcnn.rectangle_op`."""
    return _run_on_rectangles(onednn.rectangle_maxima, x, *ranges)


def rectangle_places(x: jax.Array, *ranges: jax.Array) -> Arrays | None:
    """Return the positions of the maxima of x over rectangles, (R, C, ph, pw)."""
    return _run_on_rectangles(onednn.rectangle_places, x, *ranges)


def _run_on_rectangles(
    run: Callable[[jax.Array, jax.Array], jax.Array], x: jax.Array, image_index: jax.Array, *ranges: jax.Array
) -> Arrays | None:
    if not onednn.supports(x):
        return None
    rows, columns = ranges[:2], ranges[2:]
    numbers = [image_index[:, None, None], *(r[:, :, None] for r in rows), *(c[:, None, :] for c in columns)]
    rectangles = jnp.stack(jnp.broadcast_arrays(*numbers), -1).astype(jnp.int32)
    results = run(materialise(to_channels_last(x)), rectangles.reshape(-1, 5))
    return (to_channels_first(results.reshape(*rectangles.shape[:3], x.shape[1])),)


def momentum_update(g: jax.Array, blob: jax.Array, h: jax.Array, rate: jax.Array, **settings: float) -> Arrays | None:
    """Return a parameter and its history after a step of SGD with momentum; see `core.solver.caffe_optimizer`."""
    return onednn.momentum_update(g, blob, h, rate, **settings) if onednn.supports(g, blob, h) else None
