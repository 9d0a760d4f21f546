"""Maximum and average pooling: in XLA's operations, and for CPUs in `pooling_slices`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import pooling_slices
from .custom_gradient import with_gradient
from .host_constant import table
from .layout import as_xla_likes
from .platform_dispatch import Operation
from .pooling_slices import place_type
from .window import Window

Arrays = tuple[jax.Array, ...]


def max_pool(x: jax.Array, window: Window) -> jax.Array:
    """Return the maximum of each window: (batch, channels, height, width) to (batch, channels, *out).

    The maximum of a window that covers only padding is the lowest finite number, -FLT_MAX for float32. The gradient
    goes to the first maximum in row-major order.
    """
    alone = Operation(partial(_maxima, window=window), partial(pooling_slices.maxima, window=window))
    placed = Operation(
        partial(_maxima_and_places, window=window),
        partial(pooling_slices.maxima_and_places, window=window),
        gpu=partial(pooling_slices.maxima_and_places, window=window, lay_out=as_xla_likes),
    )
    diff = Operation(
        partial(_maxima_diff, window=window),
        partial(pooling_slices.maxima_diff, window=window),
        gpu=partial(pooling_slices.maxima_diff, window=window, lay_out=as_xla_likes),
    )

    def forward(x: jax.Array) -> tuple[jax.Array, Arrays]:
        y, places = placed(x)
        return y, (x, places)

    def backward(residuals: Arrays, dy: jax.Array, needed: Sequence[bool]) -> Arrays:
        return diff(*residuals, dy)

    y: jax.Array = with_gradient(forward, backward, alone=lambda x: alone(x)[0])(x)
    return y


def _maxima(x: jax.Array, window: Window) -> Arrays:
    best = _over_windows(lax.max, -np.inf, x, window)
    return (jnp.maximum(best, jnp.finfo(x.dtype).min),)


def _maxima_and_places(x: jax.Array, window: Window) -> Arrays:
    """Return the maxima, and zeros for their places: XLA's gradient does not read the places."""
    (best,) = _maxima(x, window)
    return best, jnp.zeros(best.shape, place_type(window))


def _maxima_diff(x: jax.Array, places: jax.Array, dy: jax.Array, window: Window) -> Arrays:
    _, pullback = jax.vjp(partial(_over_windows, lax.max, -np.inf, window=window), x)
    diffs: Arrays = pullback(dy)
    return diffs


def average_pool(x: jax.Array, window: Window, areas: Callable[[], np.ndarray]) -> jax.Array:
    """Return the mean of each window: (batch, channels, height, width) to (batch, channels, *out).

    Args:
        x: (batch, channels, height, width).
        window: the window over height and width.
        areas: a function that returns the number by which the sum of each window is divided, (*out).
    """
    how: Any = {"window": window, "areas": areas}
    run = Operation(partial(_means, **how), partial(pooling_slices.means, **how))
    diff = Operation(partial(_means_diff, **how), partial(pooling_slices.means_diff, **how))

    def forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return run(x)[0], x

    def backward(x: jax.Array, dy: jax.Array, needed: Sequence[bool]) -> Arrays:
        return diff(x, dy)

    y: jax.Array = with_gradient(forward, backward)(x)
    return y


def _means(x: jax.Array, window: Window, areas: Callable[[], np.ndarray]) -> Arrays:
    total = _over_windows(lax.add, 0, x, window)
    return (total / table(areas, total.shape[2:], x.dtype),)


def _means_diff(x: jax.Array, dy: jax.Array, window: Window, areas: Callable[[], np.ndarray]) -> Arrays:
    _, pullback = jax.vjp(partial(_means, window=window, areas=areas), x)
    diffs: Arrays = pullback((dy,))
    return diffs


def _over_windows(reduce: Callable[..., Any], start: float, x: jax.Array, window: Window) -> jax.Array:
    kernel, stride = (1, 1, *window.kernel), (1, 1, *window.stride)
    y: jax.Array = lax.reduce_window(
        x, np.array(start, x.dtype), reduce, kernel, stride, ((0, 0), (0, 0), *window.padding)
    )
    return y
