"""Pooling on CPUs: by slices, which XLA fuses.

Data come and go in Caffe's order and have their channels last in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .layout import channels_first, channels_last, kept
from .sums import cell_sums

Arrays = tuple[jax.Array, ...]


class Windows(NamedTuple):
    """Kernel, stride and number of windows along each of two axes, and the padding (low, high) that holds them."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    out: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]


def place_type(w: Windows) -> Any:
    """Integers that can number the cells of a window."""
    return jnp.int8 if w.kernel[0] * w.kernel[1] < 128 else jnp.int32


def maxima(x: jax.Array, w: Windows) -> Arrays:
    """The maximum of each window."""
    least = float(jnp.finfo(x.dtype).min)
    x = _padded(kept(channels_last(x)), w, least)
    for axis in (2, 1):  # row by row, then the rows: 2k comparisons for a k x k window
        taps = list(_taps(x, w, axis))
        x = jnp.where(taps[0] > least, taps[0], least)
        for tap in taps[1:]:
            x = jnp.where(tap > x, tap, x)
    return (channels_first(x),)


def maxima_and_places(x: jax.Array, w: Windows) -> Arrays:
    """The maximum of each window and the number of its cell, -1 for none."""
    least = float(jnp.finfo(x.dtype).min)
    number = place_type(w)
    best, at = jnp.asarray(least, x.dtype), jnp.asarray(-1, number)
    for i, j, tap in _planes(_padded(kept(channels_last(x)), w, least), w):
        best, at = jnp.where(tap > best, tap, best), jnp.where(tap > best, number(i * w.kernel[1] + j), at)
    return channels_first(best), channels_first(at)


def maxima_diff(x: jax.Array, places: jax.Array, dy: jax.Array, w: Windows) -> Arrays:
    """The gradient of `x`; of it only the shape matters."""
    dx = _gathered(w, x.shape[2:], channels_last(dy), channels_last(places))
    return (channels_first(kept(dx)),)  # else it is gathered again by each layer that adds to it


def means(x: jax.Array, w: Windows, areas: np.ndarray) -> Arrays:
    """The sum of each window, divided by `areas`."""
    x = channels_last(x)
    if _one_window(w, x.shape[1:3]):
        total = cell_sums(x.reshape(x.shape[0], -1, x.shape[-1]))[:, :, None]
    else:
        total = _padded(x, w, 0)
        for axis in (2, 1):
            total = sum(_taps(total, w, axis), start=jnp.zeros((), x.dtype))
    return (channels_first(total / jnp.asarray(areas, x.dtype)[..., None]),)


def means_diff(x: jax.Array, dy: jax.Array, w: Windows, areas: np.ndarray) -> Arrays:
    """The gradient of `x`; of it only the shape matters."""
    size = x.shape[2:]
    share = channels_last(dy) / jnp.asarray(areas, dy.dtype)[..., None]
    if _one_window(w, size):
        whole = jnp.broadcast_to(share, (dy.shape[0], *size, share.shape[-1]))
        return (channels_first(whole),)
    return (channels_first(_gathered(w, size, share)),)


def _one_window(w: Windows, size: tuple[int, ...]) -> bool:
    return w.out == (1, 1) and w.kernel == size


def _gathered(w: Windows, size: tuple[int, ...], dy: jax.Array, at: jax.Array | None = None) -> jax.Array:
    """For each cell of the plane, the sum of `dy` over the windows that hold it; with `at`, in that place of theirs.

    The plane is cut into blocks as large as the stride. All cells of a block meet the same few windows: the block's
    own, and those before it that reach so far.
    """
    stride = [k if o == 1 else s for k, s, o in zip(*w[:3], strict=True)]  # a lone window is one block
    reach = [-(-k // s) for k, s in zip(w.kernel, stride, strict=True)]
    blocks = [-(-(n + low) // s) for n, s, (low, _) in zip(size, stride, w.padding, strict=True)]
    around = [(0, 0, 0), *((r - 1, b - o, 0) for r, b, o in zip(reach, blocks, w.out, strict=True)), (0, 0, 0)]
    dy = lax.pad(kept(dy), jnp.zeros((), dy.dtype), around)
    at = None if at is None else lax.pad(kept(at), jnp.asarray(-1, at.dtype), around)
    total = jnp.zeros((), dy.dtype)
    for back in np.ndindex(*reach):
        rows, columns = (np.arange(s) + s * b for s, b in zip(stride, back, strict=True))
        inside = (rows[:, None] < w.kernel[0]) & (columns < w.kernel[1])
        place = np.where(inside, rows[:, None] * w.kernel[1] + columns, -2)[:, None, :, None]
        shift = [slice(r - 1 - b, r - 1 - b + n) for r, b, n in zip(reach, back, blocks, strict=True)]
        windows = np.s_[:, shift[0], None, shift[1], None]
        here = inside[:, None, :, None] if at is None else at[windows] == place.astype(at.dtype)
        total = total + jnp.where(here, dy[windows], 0)
    whole = total.reshape(dy.shape[0], blocks[0] * stride[0], blocks[1] * stride[1], -1)
    (top, _), (left, _) = w.padding
    return whole[:, top : top + size[0], left : left + size[1]]


def _padded(x: jax.Array, w: Windows, value: float) -> jax.Array:
    widths = [(0, 0, 0), *((low, high, 0) for low, high in w.padding), (0, 0, 0)]
    return lax.pad(x, jnp.asarray(value, x.dtype), widths)


def _taps(x: jax.Array, w: Windows, axis: int) -> Iterator[jax.Array]:
    """For each of the kernel's places along an axis, the cells that the windows have there."""
    kernel, stride, out = (part[axis - 1] for part in w[:3])
    for i in range(kernel):
        yield lax.slice_in_dim(x, i, i + (out - 1) * stride + 1, stride, axis)


def _planes(x: jax.Array, w: Windows) -> Iterator[tuple[int, int, jax.Array]]:
    for i, row in enumerate(_taps(x, w, 1)):
        for j, tap in enumerate(_taps(row, w, 2)):
            yield i, j, tap
