"""Pooling over windows of the plane: maxima with their own gradient, and means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .layout import channels_first, channels_last, kept
from .sums import EXACT


class Windows(NamedTuple):
    """Kernel, stride and number of windows along each of two axes, and the padding (low, high) that holds them."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    out: tuple[int, ...]
    padding: Sequence[tuple[int, int]]


def max_pool(x: jax.Array, w: Windows) -> jax.Array:
    """(batch, channels, height, width) to (batch, channels, *out). A window without any input gives -FLT_MAX.

    The gradient goes to the first maximum in row-major order.
    """
    return channels_first(_max_pool(kept(channels_last(x)), w))


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _max_pool(x: jax.Array, w: Windows) -> jax.Array:
    least = float(jnp.finfo(x.dtype).min)
    x = _padded(x, w, least)
    for axis in (2, 1):  # row by row, then the rows: 2k comparisons for a k x k window
        taps = list(_taps(x, w, axis))
        x = jnp.where(taps[0] > least, taps[0], least)
        for tap in taps[1:]:
            x = jnp.where(tap > x, tap, x)
    return x


def _max_pool_forward(x: jax.Array, w: Windows) -> tuple[jax.Array, tuple[jax.Array, tuple[int, ...]]]:
    least = float(jnp.finfo(x.dtype).min)
    number = jnp.int8 if w.kernel[0] * w.kernel[1] < 128 else jnp.int32
    best, at = jnp.asarray(least, x.dtype), jnp.asarray(-1, number)
    for i, j, tap in _planes(_padded(x, w, least), w):
        best, at = jnp.where(tap > best, tap, best), jnp.where(tap > best, number(i * w.kernel[1] + j), at)
    return best, (at, x.shape[1:3])


def _max_pool_backward(w: Windows, saved: tuple[jax.Array, tuple[int, ...]], dy: jax.Array) -> tuple[jax.Array]:
    at, size = saved
    return (_gathered(w, size, dy, at),)


_max_pool.defvjp(_max_pool_forward, _max_pool_backward)


def average_pool(x: jax.Array, w: Windows, areas: np.ndarray) -> jax.Array:
    """(batch, channels, height, width) to (batch, channels, *out): sums over windows, divided by `areas` (*out)."""
    x = channels_last(x)
    if w.out == (1, 1) and w.kernel == x.shape[1:3]:
        cells = x.reshape(x.shape[0], -1, x.shape[-1])
        total = jnp.matmul(jnp.ones((1, cells.shape[1]), x.dtype), cells, precision=EXACT)[:, :, None]
    else:
        total = _window_sums(x, w)
    return channels_first(total / jnp.asarray(areas, x.dtype)[..., None])


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _window_sums(x: jax.Array, w: Windows) -> jax.Array:
    total = _padded(x, w, 0)
    for axis in (2, 1):
        total = sum(_taps(total, w, axis), start=jnp.zeros((), x.dtype))
    return total


def _window_sums_forward(x: jax.Array, w: Windows) -> tuple[jax.Array, tuple[int, ...]]:
    return _window_sums(x, w), x.shape[1:3]


def _window_sums_backward(w: Windows, size: tuple[int, ...], dy: jax.Array) -> tuple[jax.Array]:
    return (_gathered(w, size, dy),)


_window_sums.defvjp(_window_sums_forward, _window_sums_backward)


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
