"""Pooling as elementwise operations on strided slices, which XLA fuses. CPUs use it, and GPUs for maxima.

Inputs and results are (batch, channels, height, width). In memory their channels are last: on CPUs `materialise` sets
this layout, in a form that XLA cannot partition over several devices; on GPUs XLA chooses this layout by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .channel_reductions import cell_sums
from .host_constant import table
from .layout import channels_first, channels_last, materialise
from .window import Window

Arrays = tuple[jax.Array, ...]
LayOut = Callable[[jax.Array], jax.Array]


def place_type(window: Window) -> Any:
    """Return the dtype of the cell numbers of a window: int8 for fewer than 128 cells, else int32."""
    return jnp.int8 if math.prod(window.kernel) < 128 else jnp.int32


def maxima(x: jax.Array, window: Window) -> Arrays:
    """Return the maximum of each window, (batch, channels, *out)."""
    least = float(jnp.finfo(x.dtype).min)
    x = _padded(materialise(channels_last(x)), window, least)
    for axis in (2, 1):  # first along each row, then over the rows: 2k comparisons for a k x k window
        first, *others = _cells(x, window, axis)
        x = jnp.where(first > least, first, least)
        for cells in others:
            x = jnp.where(cells > x, cells, x)
    return (channels_first(x),)


def maxima_and_places(x: jax.Array, window: Window, lay_out: LayOut = materialise) -> Arrays:
    """Return the maximum of each window, and the number of its cell in the window; both (batch, channels, *out).

    Cells are numbered in row-major order. A window that covers only padding has the number -1.

    Args:
        x: (batch, channels, height, width).
        window: the window over height and width.
        lay_out: sets the memory layout of an array with channels last.
    """
    least = float(jnp.finfo(x.dtype).min)
    dtype = place_type(window)
    best, at = jnp.asarray(least, x.dtype), jnp.asarray(-1, dtype)
    for number, cells in enumerate(_all_cells(_padded(lay_out(channels_last(x)), window, least), window)):
        best, at = jnp.where(cells > best, cells, best), jnp.where(cells > best, dtype(number), at)
    return channels_first(best), channels_first(at)


def maxima_diff(
    x: jax.Array, places: jax.Array, dy: jax.Array, window: Window, lay_out: LayOut = materialise
) -> Arrays:
    """Return the diff of the input of maximum pooling.

    Args:
        x: the input; only its shape is used.
        places: the cell numbers that `maxima_and_places` returned.
        dy: the diff of the output, (batch, channels, *out).
        window: the window over height and width.
        lay_out: sets the memory layout of an array with channels last.
    """
    dx = _gathered(window, x.shape[2:], lay_out(channels_last(dy)), lay_out(channels_last(places)))
    return (channels_first(lay_out(dx)),)  # otherwise each reader would recompute the sums


def means(x: jax.Array, window: Window, areas: Callable[[], np.ndarray]) -> Arrays:
    """Return the sum of each window divided by its entry in `areas`, (batch, channels, *out)."""
    x = channels_last(x)
    if _one_window(window, x.shape[1:3]):
        total = cell_sums(x.reshape(x.shape[0], math.prod(x.shape[1:-1]), x.shape[-1]))[:, :, None]
    else:
        total = _padded(x, window, 0)
        for axis in (2, 1):
            total = sum(_cells(total, window, axis), start=jnp.zeros((), x.dtype))
    return (channels_first(total / table(areas, total.shape[1:3], x.dtype)[..., None]),)


def means_diff(x: jax.Array, dy: jax.Array, window: Window, areas: Callable[[], np.ndarray]) -> Arrays:
    """Return the diff of the input of average pooling; only the shape of `x` is used."""
    size = x.shape[2:]
    share = channels_last(dy) / table(areas, dy.shape[2:], dy.dtype)[..., None]
    if _one_window(window, size):
        whole = jnp.broadcast_to(share, (dy.shape[0], *size, share.shape[-1]))
        return (channels_first(whole),)
    return (channels_first(_gathered(window, size, materialise(share))),)


def _one_window(window: Window, size: tuple[int, ...]) -> bool:
    return window.kernel == size and window.output(size) == (1, 1)


def _gathered(window: Window, size: tuple[int, ...], dy: jax.Array, at: jax.Array | None = None) -> jax.Array:
    """Return, for each input cell, the sum of `dy` over the windows that contain the cell.

    The input is split into blocks of the size of the stride. All cells of a block are in the same few windows: the
    window that starts at the block, and a fixed number of windows before it.

    Args:
        window: the window over height and width.
        size: the height and width of the input.
        dy: (batch, *out, channels).
        at: cell numbers, (batch, *out, channels), or None. With numbers, a window counts only for the cell of its
            number.

    Returns:
        (batch, *size, channels).
    """
    kernel, out = window.kernel, dy.shape[1:3]
    stride = [
        k if o == 1 else s for k, s, o in zip(kernel, window.stride, out, strict=True)
    ]  # a single window is one block
    reach = [-(-k // s) for k, s in zip(kernel, stride, strict=True)]
    blocks = [-(-(n + low) // s) for n, s, low in zip(size, stride, window.low, strict=True)]
    around = [(0, 0, 0), *((r - 1, b - o, 0) for r, b, o in zip(reach, blocks, out, strict=True)), (0, 0, 0)]
    dy = lax.pad(dy, jnp.zeros((), dy.dtype), around)
    at = None if at is None else lax.pad(at, jnp.asarray(-1, at.dtype), around)
    total = jnp.zeros((), dy.dtype)
    for back in np.ndindex(*reach):
        rows, columns = (np.arange(s) + s * b for s, b in zip(stride, back, strict=True))
        inside = (rows[:, None] < kernel[0]) & (columns < kernel[1])
        place = np.where(inside, rows[:, None] * kernel[1] + columns, -2)[:, None, :, None]
        shift = [slice(r - 1 - b, r - 1 - b + n) for r, b, n in zip(reach, back, blocks, strict=True)]
        windows = np.s_[:, shift[0], None, shift[1], None]
        here = inside[:, None, :, None] if at is None else at[windows] == place.astype(at.dtype)
        total = total + jnp.where(here, dy[windows], 0)
    whole = total.reshape(dy.shape[0], blocks[0] * stride[0], blocks[1] * stride[1], -1)
    top, left = window.low
    return whole[:, top : top + size[0], left : left + size[1]]


def _padded(x: jax.Array, window: Window, value: float) -> jax.Array:
    widths = [(0, 0, 0), *((low, high, 0) for low, high in window.padding), (0, 0, 0)]
    return lax.pad(x, jnp.asarray(value, x.dtype), widths)


def _cells(x: jax.Array, window: Window, axis: int) -> Iterator[jax.Array]:
    """Yield, for each position of the kernel along an axis, the cells of all windows there: a slice of padded `x`."""
    kernel, stride = window.kernel[axis - 1], window.stride[axis - 1]
    out = (x.shape[axis] - kernel) // stride + 1
    for i in range(kernel):
        yield lax.slice_in_dim(x, i, i + (out - 1) * stride + 1, stride, axis)


def _all_cells(x: jax.Array, window: Window) -> Iterator[jax.Array]:
    """Yield, for each position of the kernel in row-major order, the cells of all windows: (batch, *out, channels)."""
    for row in _cells(x, window, 1):
        yield from _cells(row, window, 2)
