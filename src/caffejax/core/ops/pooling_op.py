"""Maximum and average pooling, by XLA's window reductions or by elementwise operations on strided slices.

GPUs use strided slices for maxima, because XLA fuses them; CPUs for all, in forms that are registered elsewhere.

Inputs and results are (batch, channels, height, width). The slices have their channels last in memory. On CPUs
`materialise` sets this layout, in a form that XLA cannot partition over several devices. On GPUs XLA chooses the same
layout by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .custom_gradient import make_differentiable
from .host_constant import host_constant
from .implementations import cpu_form
from .layout import leave_layout, materialise, to_channels_first, to_channels_last
from .platform_dispatch import Arrays, Function, PlatformOp, map_rows
from .window import Window

SetLayout = Callable[[Array], Array]


def index_dtype(window: Window) -> Any:
    """Return the dtype of the cell indices of a window: int8 for fewer than 128 cells, else int32."""
    return jnp.int8 if math.prod(window.kernel) < 128 else jnp.int32


def _compute_maxima_and_indices_by_slices(x: Array, window: Window, set_layout: SetLayout = materialise) -> Arrays:
    """Return the maxima and the indices of their cells, numbered in row-major order, or -1 for padding alone."""
    lowest = float(jnp.finfo(x.dtype).min)
    dtype = index_dtype(window)
    best, best_index = jnp.asarray(lowest, x.dtype), jnp.asarray(-1, dtype)
    for index, cells in enumerate(_all_cells(pad_window(set_layout(to_channels_last(x)), window, lowest), window)):
        best, best_index = jnp.where(cells > best, cells, best), jnp.where(cells > best, dtype(index), best_index)
    return to_channels_first(best), to_channels_first(best_index)


def _compute_maxima_diff_by_slices(
    x: Array, indices: Array, dy: Array, window: Window, set_layout: SetLayout = materialise
) -> Arrays:
    dx = gather_diffs(window, x.shape[2:], set_layout(to_channels_last(dy)), set_layout(to_channels_last(indices)))
    return (to_channels_first(set_layout(dx)),)  # otherwise each operation that reads it would recompute the sums


def gather_diffs(window: Window, size: tuple[int, ...], dy: Array, indices: Array | None = None) -> Array:
    """Return, for each input cell, the sum of `dy` over the windows that contain the cell.

    The input is split into blocks of the size of the stride. All cells of a block are in the same few windows: the
    window that starts at the block, and a fixed number of windows before it.

    Args:
        window: the window over height and width.
        size: the height and width of the input.
        dy: (batch, *out, channels).
        indices: the index of the cell to which the diff of each window goes, (batch, *out, channels), or None if it
            goes to all cells of the window.

    Returns:
        (batch, *size, channels).
    """
    kernel, out = window.kernel, dy.shape[1:3]
    # a single window is one block
    stride = [k if o == 1 else s for k, s, o in zip(kernel, window.stride, out, strict=True)]
    num_windows = [-(-k // s) for k, s in zip(kernel, stride, strict=True)]
    blocks = [-(-(n + low) // s) for n, s, low in zip(size, stride, window.low, strict=True)]
    padding = [(0, 0, 0), *((r - 1, b - o, 0) for r, b, o in zip(num_windows, blocks, out, strict=True)), (0, 0, 0)]
    dy = lax.pad(dy, jnp.zeros((), dy.dtype), padding)
    indices = None if indices is None else lax.pad(indices, jnp.asarray(-1, indices.dtype), padding)
    total = jnp.zeros((), dy.dtype)
    for block_offset in np.ndindex(*num_windows):
        rows, columns = (np.arange(s) + s * b for s, b in zip(stride, block_offset, strict=True))
        is_in_window = (rows[:, None] < kernel[0]) & (columns < kernel[1])
        # -2 is the index of no window: windows of padding alone have -1, and so have those that were padded above
        cell_index = np.where(is_in_window, rows[:, None] * kernel[1] + columns, -2)[:, None, :, None]
        block_slices = [
            slice(r - 1 - b, r - 1 - b + n) for r, b, n in zip(num_windows, block_offset, blocks, strict=True)
        ]
        windows = np.s_[:, block_slices[0], None, block_slices[1], None]
        mask = (
            is_in_window[:, None, :, None] if indices is None else indices[windows] == cell_index.astype(indices.dtype)
        )
        total = total + jnp.where(mask, dy[windows], 0)
    dx = total.reshape(dy.shape[0], blocks[0] * stride[0], blocks[1] * stride[1], -1)
    top, left = window.low
    return dx[:, top : top + size[0], left : left + size[1]]


def pad_window(x: Array, window: Window, value: float) -> Array:
    """Pad (batch, height, width, channels) with a value, as the window pads."""
    widths = [(0, 0, 0), *((low, high, 0) for low, high in window.padding), (0, 0, 0)]
    return lax.pad(x, jnp.asarray(value, x.dtype), widths)


def cells_along(x: Array, window: Window, axis: int, first_axis: int = 1) -> Iterator[Array]:
    """Yield, for each kernel position along `axis`, the cell of the padded `x` at this position in every window.

    The plane is `first_axis`, height, and the next axis, width.
    """
    kernel, stride = window.kernel[axis - first_axis], window.stride[axis - first_axis]
    num_windows = (x.shape[axis] - kernel) // stride + 1
    for i in range(kernel):
        yield lax.slice_in_dim(x, i, i + (num_windows - 1) * stride + 1, stride, axis)


def _all_cells(x: Array, window: Window) -> Iterator[Array]:
    for row in cells_along(x, window, 1):
        yield from cells_along(row, window, 2)


def max_pool(x: Array, window: Window) -> Array:
    """Return the maximum of each window, from (batch, channels, height, width) to (batch, channels, *out).

    The maximum of a window that covers only padding is the lowest finite number, -FLT_MAX for float32. NaN is never a
    maximum, because Caffe compares with `>`. The gradient goes to the first maximum in row-major order.
    """
    maxima_operation = PlatformOp(
        partial(_compute_maxima, window=window), cpu_form("window_maxima", _compute_maxima, window=window)
    )

    def make_operation(name: str, plain: Function, by_slices: Function) -> PlatformOp:
        return PlatformOp(
            partial(plain, window=window),
            cpu_form(name, by_slices, window=window),
            gpu=partial(by_slices, window=window, set_layout=leave_layout),
            differentiable=False,
            batch_rule=map_rows,
        )

    def forward(x: Array) -> tuple[Array, Arrays]:
        operation = make_operation("max_pool", _compute_maxima_and_indices, _compute_maxima_and_indices_by_slices)
        y, indices = operation(x)
        return y, (x, indices)

    def backward(residuals: Arrays, dy: Array, needed: Sequence[bool]) -> Arrays:
        operation = make_operation("max_pool_diff", _compute_maxima_diff, _compute_maxima_diff_by_slices)
        return operation(*residuals, dy)

    y: Array = make_differentiable(forward, backward, primal=lambda x: maxima_operation(x)[0])(x)
    return y


def _compute_maxima(x: Array, window: Window) -> Arrays:
    # from -inf, the identity of max: from any other number, JAX has no gradient of the reduction
    maxima = _reduce_windows(lax.max, -np.inf, _hide_nan(x), window)
    return (jnp.maximum(maxima, jnp.finfo(x.dtype).min),)


def _compute_maxima_and_indices(x: Array, window: Window) -> Arrays:
    """Return the maxima, and -1 as the index of those that no number exceeds, else 0: XLA's gradient finds the cell."""
    (maxima,) = _compute_maxima(x, window)
    has_cell = maxima > jnp.finfo(x.dtype).min
    return maxima, has_cell.astype(index_dtype(window)) - 1


def _compute_maxima_diff(x: Array, indices: Array, dy: Array, window: Window) -> Arrays:
    # masked here, where the array is small, and not by the gradient of `_hide_nan`, which would need a mask of `x`
    _, pullback = jax.vjp(partial(_reduce_windows, lax.max, -np.inf, window=window), _hide_nan(x))
    diffs: Arrays = pullback(jnp.where(indices < 0, 0, dy))
    return diffs


def _hide_nan(x: Array) -> Array:
    """Return `x` with -inf for NaN, which Caffe never takes as a maximum, because it compares with `>`."""
    return jnp.where(jnp.isnan(x), -jnp.inf, x)


def average_pool(x: Array, window: Window, areas: Callable[[], np.ndarray]) -> Array:
    """Return the mean of each window, from (batch, channels, height, width) to (batch, channels, *out).

    Args:
        x: (batch, channels, height, width).
        window: the window over height and width.
        areas: a function that returns the number by which the sum of each window is divided, (*out).
    """
    options: Any = {"window": window, "areas": areas}
    run = PlatformOp(partial(_compute_means, **options), cpu_form("window_means", _compute_means, **options))
    diff = PlatformOp(
        partial(_compute_means_diff, **options), cpu_form("window_means_diff", _compute_means_diff, **options)
    )

    def forward(x: Array) -> tuple[Array, Array]:
        return run(x)[0], x

    def backward(x: Array, dy: Array, needed: Sequence[bool]) -> Arrays:
        return diff(x, dy)

    y: Array = make_differentiable(forward, backward)(x)
    return y


def _compute_means(x: Array, window: Window, areas: Callable[[], np.ndarray]) -> Arrays:
    total = _reduce_windows(lax.add, 0, x, window)
    return (total / host_constant(areas, total.shape[2:], x.dtype),)


def _compute_means_diff(x: Array, dy: Array, window: Window, areas: Callable[[], np.ndarray]) -> Arrays:
    _, pullback = jax.vjp(partial(_compute_means, window=window, areas=areas), x)
    diffs: Arrays = pullback((dy,))
    return diffs


def _reduce_windows(reduce: Callable[..., Any], start: float, x: Array, window: Window) -> Array:
    kernel, stride = (1, 1, *window.kernel), (1, 1, *window.stride)
    y: Array = lax.reduce_window(x, np.array(start, x.dtype), reduce, kernel, stride, ((0, 0), (0, 0), *window.padding))
    return y
