"""Stochastic pooling: in TRAIN one cell of each window, drawn in proportion to its value; in TEST the expectation.

Meant for bottoms that are not negative, such as a ReLU's tops.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

from ..kernels.window import Window
from .context import Shape
from .dtypes import promote
from .im2col import overlay, windows


def stochastic_windows(x: jax.Array, window: Window, out: Shape, key: jax.Array | None) -> jax.Array:
    """Return the drawn cells, or without a key the means of each window's values weighted by themselves.

    A window of zeros gives 0. The gradient goes to the cell that was drawn.
    """
    cells = _cells(x, window, out)
    if key is not None:
        return jnp.take_along_axis(cells, _drawn(cells, key), axis=2)[:, :, 0]
    values = promote(cells)
    total = values.sum(2)
    mean = jnp.square(values).sum(2) / jnp.where(total > 0, total, 1)
    return jnp.where(total > 0, mean, 0).astype(x.dtype)


def stochastic_diff(x: jax.Array, dy: jax.Array, window: Window, out: Shape, key: jax.Array | None) -> jax.Array:
    """Return the bottom's diff, cell by cell of each window and then added up."""
    cells = _cells(x, window, out)
    if key is not None:
        slope = (jnp.arange(cells.shape[2])[:, None, None] == _drawn(cells, key)).astype(jnp.float32)
    else:  # of sum(v^2) / sum(v) by v: (2 v - mean) / sum(v)
        values = promote(cells)
        total = values.sum(2, keepdims=True)
        safe = jnp.where(total > 0, total, 1)
        slope = jnp.where(total > 0, (2 * values - jnp.square(values).sum(2, keepdims=True) / safe) / safe, 0)
    diffs = slope * promote(dy)[:, :, None]
    return overlay(diffs.reshape(*x.shape[:2], *window.kernel, *out), x.shape[2:], window).astype(x.dtype)


def _cells(x: jax.Array, window: Window, out: Shape) -> jax.Array:
    """Return (N, C, kernel cells in row-major order, *out); cells beyond the plane are 0 and never drawn."""
    return windows(x, window, out).reshape(*x.shape[:2], math.prod(window.kernel), *out)


def _drawn(cells: jax.Array, key: jax.Array) -> jax.Array:
    """Draw a cell of each window: the first where the running sum reaches a random part of the whole."""
    running = jnp.cumsum(lax.stop_gradient(promote(cells)), axis=2)
    whole = running[:, :, -1:]
    part = 1 - jax.random.uniform(key, whole.shape, whole.dtype)  # above 0: zeros are not drawn
    return jnp.argmax(running >= part * whole, axis=2, keepdims=True)
