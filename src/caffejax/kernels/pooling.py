"""Pooling over windows of the plane: maxima with their own gradient, and means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .layout import channels_first, channels_last


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
    return channels_first(_max_pool(channels_last(x), w))


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


def _max_pool_backward(w: Windows, kept: tuple[jax.Array, tuple[int, ...]], dy: jax.Array) -> tuple[jax.Array]:
    at, size = kept
    dx = jnp.zeros((), dy.dtype)
    for i in range(w.kernel[0]):
        for j in range(w.kernel[1]):
            part = jnp.where(at == i * w.kernel[1] + j, dy, 0)
            places = [_place(k, axis, size, w) for axis, k in enumerate((i, j))]
            dx = dx + lax.pad(part, jnp.zeros((), dy.dtype), [(0, 0, 0), *places, (0, 0, 0)])
    return (dx,)


_max_pool.defvjp(_max_pool_forward, _max_pool_backward)


def _place(start: int, axis: int, size: tuple[int, ...], w: Windows) -> tuple[int, int, int]:
    """How `lax.pad` puts one number per window at the cell of the plane that is the window's `start`-th."""
    low = start - w.padding[axis][0]
    return low, size[axis] - low - (w.out[axis] - 1) * w.stride[axis] - 1, w.stride[axis] - 1


def average_pool(x: jax.Array, w: Windows, areas: np.ndarray) -> jax.Array:
    """(batch, channels, height, width) to (batch, channels, *out): sums over windows, divided by `areas` (*out)."""
    x = channels_last(x)
    if w.out == (1, 1) and w.kernel == x.shape[1:3]:
        cells = x.reshape(x.shape[0], -1, x.shape[-1])
        total = (jnp.ones((1, cells.shape[1]), x.dtype) @ cells)[:, :, None]
    else:
        total = _padded(x, w, 0)
        for axis in (2, 1):
            total = sum(_taps(total, w, axis), start=jnp.zeros((), x.dtype))
    return channels_first(total / jnp.asarray(areas, x.dtype)[..., None])


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
