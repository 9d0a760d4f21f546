"""Anchors, the boxes that proposals start from, and how boxes are told as differences from others.

Sides count pixels: x2 - x1 + 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...kernels.table import table

Rounding = Callable[[float], float]


def half_up(x: float) -> float:
    """Round a number above 0 as C does."""
    return math.floor(x + 0.5)


def anchors(base: int, ratios: Sequence[float], scales: Sequence[float], rounding: Rounding = round) -> np.ndarray:
    """Return boxes (ratios * scales, 4) round the middle of a square of `base` pixels, all scales of a ratio together.

    Args:
        base: the side of the square.
        ratios: height over width; sides of the square's area are rounded.
        scales: factors of the rounded sides.
        rounding: how; Python rounds halves to even numbers, as NumPy does.
    """
    middle, boxes = (base - 1) / 2, []
    for ratio in ratios:
        width = rounding(math.sqrt(base * base / ratio))
        height = rounding(width * ratio)
        for scale in scales:
            half_w, half_h = (width * scale - 1) / 2, (height * scale - 1) / 2
            boxes.append((middle - half_w, middle - half_h, middle + half_w, middle + half_h))
    return np.asarray(boxes, np.float32)


def grid(boxes: np.ndarray, size: tuple[int, ...], stride: int) -> jax.Array:
    """Return the boxes (A, 4) at every cell of a map of that size, `stride` pixels apart: (height, width, A, 4)."""

    def moved() -> np.ndarray:
        y, x = np.meshgrid(*(np.arange(n) * stride for n in size), indexing="ij")
        moved: np.ndarray = boxes + np.stack([x, y, x, y], axis=-1)[:, :, None]
        return moved

    return table(moved, (*size, len(boxes), 4), np.float32)


def by_cell(channels: jax.Array, n: int) -> jax.Array:
    """Bring channels (1, A * n, H, W) to (H, W, A, n)."""
    _, total, height, width = channels.shape
    return jnp.transpose(channels.reshape(total // n, n, height, width), (2, 3, 0, 1))


def decoded(boxes: Any, deltas: jax.Array) -> jax.Array:
    """Return boxes (..., 4) moved by deltas (..., 4): of the centre in sides, of the sides by their logarithm."""
    size = boxes[..., 2:] - boxes[..., :2] + 1
    middle = boxes[..., :2] + 0.5 * size + deltas[..., :2] * size
    half = 0.5 * size * jnp.exp(deltas[..., 2:])
    return jnp.concatenate([middle - half, middle + half], axis=-1)


def encoded(boxes: Any, truth: Any, numpy: Any = jnp) -> Any:
    """Return the deltas that make `truth` of boxes; `numpy` is whose arrays they are, NumPy's or JAX's."""
    size, true = (b[..., 2:] - b[..., :2] + 1 for b in (boxes, truth))
    shift = (truth[..., :2] + 0.5 * true - boxes[..., :2] - 0.5 * size) / size
    return numpy.concatenate([shift, numpy.log(true / size)], axis=-1)


def clipped(boxes: jax.Array, height: jax.Array, width: jax.Array) -> jax.Array:
    """Return boxes (..., 4) cut to an image."""
    return jnp.clip(boxes, 0, jnp.stack([width, height, width, height]) - 1)
