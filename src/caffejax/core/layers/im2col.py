"""Im2col, which copies the cells under each position of a window to the channels (im2col_layer.cpp)."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import Array, lax

from ...base.errors import require
from ..ops.window import Window
from ..schema.caffe_pb2 import ConvolutionParameter
from .context import Shape
from .convolution import convolution_output_size, read_window
from .declaration import register
from .helpers import canonical_axis, is_after_first_axis


@register(
    "Im2col",
    param="convolution_param",
    row_wise=is_after_first_axis,
    dtype_policy="bottoms",
    accepts_integers=True,
    spatial_map="windows",
)
def im2col(p: ConvolutionParameter, x: Array) -> Array:
    """Return the cells under the windows of a convolution: (N, C, *size) to (N, C * kernel cells, *output size).

    The kernel cells of a channel are in row-major order. Padding cells are 0. Sizes are computed as in Convolution.
    `num_output`, `group`, `bias_term` and the fillers have no effect, as in Caffe.
    """
    window, axis, output_size = _resolve_window(p, x)
    cells = gather_windows(x, window, output_size)
    return cells.reshape(*x.shape[:axis], x.shape[axis] * math.prod(window.kernel), *output_size)


@im2col.backward
def im2col_backward(p: ConvolutionParameter, x: Array, *, y: Array, dy: Array) -> Array:
    window, axis, output_size = _resolve_window(p, x)
    return scatter_windows(dy.reshape(*x.shape[: axis + 1], *window.kernel, *output_size), x.shape[axis + 1 :], window)


@im2col.window
def im2col_window(p: ConvolutionParameter, x: Array) -> Window:
    """Return the window of the convolution over the spatial axes of a bottom."""
    return _resolve_window(p, x)[0]


def _resolve_window(p: ConvolutionParameter, x: Array) -> tuple[Window, int, Shape]:
    axis = canonical_axis(p.axis, x.shape)
    n = x.ndim - axis - 1
    require(n > 0, f"needs spatial axes after the channel axis {axis}, but the bottom has shape {x.shape}")
    window = read_window(p, n)
    return window, axis, convolution_output_size(x.shape[axis + 1 :], window)


def gather_windows(x: Array, window: Window, output_size: Shape) -> Array:
    """Gather the cells under each position of a window over the last axes.

    The shape (..., *size) becomes (..., *kernel, *output size).
    """
    n = len(output_size)
    n_leading = x.ndim - n
    padding = window.fit_padding(x.shape[n_leading:], output_size).padding
    cells = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0)] * n_leading + [(low, high, 0) for low, high in padding])
    for k in range(n):  # one axis at a time: `size` is replaced with `kernel, output size`
        positions = (
            jnp.arange(window.kernel[k])[:, None] * window.dilation[k] + jnp.arange(output_size[k]) * window.stride[k]
        )
        cells = jnp.take(cells, positions, axis=n_leading + 2 * k, mode="clip")
    axis_pairs = range(n_leading, n_leading + 2 * n)
    return cells.transpose(*range(n_leading), *axis_pairs[::2], *axis_pairs[1::2])


def scatter_windows(cells: Array, size: Shape, window: Window) -> Array:
    """Apply the transpose of `gather_windows`: add cells at their positions.

    The shape (..., *kernel, *output size) becomes (..., *size).
    """
    n = len(size)
    n_leading, output_size = cells.ndim - 2 * n, cells.shape[cells.ndim - n :]
    padding = window.fit_padding(size, output_size).padding
    for k in reversed(range(n)):
        # the shape is now (..., kernels up to k, outs up to k, finished axes)
        kernel_axis, out_axis = n_leading + k, n_leading + 2 * k + 1
        kernel_cells = jnp.moveaxis(cells, kernel_axis, 0)
        covered_size = (output_size[k] - 1) * window.stride[k] + window.extent[k]
        shape = [covered_size if axis == out_axis - 1 else length for axis, length in enumerate(kernel_cells.shape[1:])]
        total = jnp.zeros(shape, cells.dtype)
        for i, cell in enumerate(kernel_cells):
            start = i * window.dilation[k]
            positions = slice(start, start + (output_size[k] - 1) * window.stride[k] + 1, window.stride[k])
            total = total.at[(slice(None),) * (out_axis - 1) + (positions,)].add(cell)
        cells = total
    return lax.pad(
        cells, jnp.zeros((), cells.dtype), [(0, 0, 0)] * n_leading + [(-low, -high, 0) for low, high in padding]
    )
