"""Pooling and SPP: the maximum, the average or a random cell of windows (pooling_layer.cpp, spp_layer.cpp)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ...base.errors import require
from ..ops.host_constant import host_constant
from ..ops.layout import to_channels_first, to_channels_last
from ..ops.pooling_op import average_pool, cells_along, gather_diffs, max_pool
from ..ops.window import Window
from ..schema.caffe_pb2 import PoolingParameter, SPPParameter
from .context import Context, Shape
from .convolution import resolve_sizes
from .declaration import register
from .dtype_policy import promote
from .helpers import first_top
from .im2col import gather_windows, scatter_windows

_MAX_STEPS = 8192  # more steps take minutes to compile
_MAX_KERNEL = 1024  # each cell of a kernel is a step of the computation; kernels larger than the plane are useless


@register(
    "Pooling",
    tops=(1, 2),
    param="pooling_param",
    row_wise=True,
    dtype_policy="bottoms",
    spatial_map="windows",
    restrictions="A kernel larger than both the plane and 1024 is an error.",
)
def pooling(p: PoolingParameter, x: Array, *, ctx: Context) -> object:
    """Pool windows by MAX, AVE or STOCHASTIC: (N, C, H, W) to (N, C, *output size). Caffe's rule: pooling_layer.cpp.

    Output sizes are (size + 2 * pad - kernel) / stride + 1, rounded up, or down with `round_mode: FLOOR`. A last
    window that would start in the padding is dropped.

    MAX takes the first maximum in row-major order; the optional second top holds its index in the plane. A window
    without input gives -FLT_MAX and index -1. AVE divides by the number of cells of the window inside the padded plane.
    STOCHASTIC samples a cell of each window with a probability proportional to its value in TRAIN, and computes the
    expectation in TEST.
    """
    (window, output_size), method = window_and_output_size(p, x), pool_method(p)
    if ctx.num_tops == 1:
        return pool(method, x, window, output_size, _stochastic_key(ctx), fast=ctx.fast)
    require(method == "MAX", f"only MAX pooling has a second top, but pool is {method}")
    top, index = max_windows(x, window, output_size)
    return top, lax.stop_gradient(index.astype(promote(x).dtype))  # bfloat16 cannot represent 257


@pooling.backward
def pooling_backward(p: PoolingParameter, x: Array, *, y: Any, dy: Any, ctx: Context) -> Array:
    d_top = first_top(dy)
    return pool_diff(pool_method(p), x, d_top, *window_and_output_size(p, x), _stochastic_key(ctx))


@pooling.top_shapes
def pooling_top_shapes(p: PoolingParameter, x: Any, *, num_tops: int) -> list[Shape] | None:
    if num_tops != 1 or p.pool == p.STOCHASTIC or 0 in x.shape:
        return None
    return [(*x.shape[:2], *window_and_output_size(p, x)[1])]


@pooling.window
def pooling_window(p: PoolingParameter, x: Any) -> Window:
    """Return the pooling window of a bottom (N, C, H, W)."""
    return window_and_output_size(p, x)[0]


@pooling.check
def check_pooling(p: PoolingParameter) -> None:
    pool_method(p)
    _read_kernel_stride_pad(p)


def _read_kernel_stride_pad(p: PoolingParameter) -> tuple[Shape | None, Shape, Shape]:
    """Return height and width of the kernel, or None for the whole plane, of the stride and of the padding."""
    kernel = None
    if p.global_pooling:
        require(
            not any(p.HasField(f) for f in ("kernel_size", "kernel_h", "kernel_w")),
            "with global_pooling: true, the kernel is the whole plane; remove kernel_size",
        )
    else:
        kernel = read_height_width(p, "kernel_size", "kernel_h", "kernel_w")
        require(all(k > 0 for k in kernel), f"kernel must be positive, not {kernel}")
    pad, stride = read_height_width(p, "pad", "pad_h", "pad_w"), read_height_width(p, "stride", "stride_h", "stride_w")
    require(all(s > 0 for s in stride), f"stride must be positive, not {stride}")
    require(
        not p.global_pooling or (pad == (0, 0) and stride == (1, 1)),
        f"with global_pooling: true, pad must be 0 and stride 1, not {pad} and {stride}",
    )
    return kernel, stride, pad


def pool(
    method: str, x: Array, window: Window, output_size: Shape, key: Array | None = None, *, fast: bool = False
) -> Array:
    """Pool windows of the last two of four axes by MAX, AVE or STOCHASTIC: (N, C, H, W) to (N, C, *output size).

    STOCHASTIC samples cells if `key` is not None, and otherwise computes the expectation.
    """
    if method == "STOCHASTIC":
        return stochastic_windows(x, window, output_size, key)
    if method == "AVE":
        return average_windows(x, window, output_size, fast=fast)
    return max_pool(x, pad_to_cover(x, window, output_size)) if fast else max_windows(x, window, output_size)[0]


def pool_diff(
    method: str, x: Array, d_top: Array, window: Window, output_size: Shape, key: Array | None = None
) -> Array:
    """Return the gradient of `pool` with respect to `x`, given the gradient `d_top` of the result."""
    if method == "STOCHASTIC":
        return stochastic_diff(x, d_top, window, output_size, key)
    size, covering_window = x.shape[2:], pad_to_cover(x, window, output_size)
    if method == "AVE":
        diffs = to_channels_last(d_top / constant_window_areas(size, window, output_size, x.dtype))
        return to_channels_first(gather_diffs(covering_window, size, diffs))
    index = max_windows(x, window, output_size)[1]
    top, left = (np.arange(o) * s - low for o, s, low in zip(output_size, window.stride, window.low, strict=True))
    cell = (index // size[1] - top[:, None]) * window.kernel[1] + index % size[1] - left
    arrays = map(to_channels_last, (d_top, jnp.where(index < 0, -1, cell)))
    return to_channels_first(gather_diffs(covering_window, size, *arrays))


def pool_method(p: Any) -> str:
    """Return the method of a PoolingParameter or SPPParameter: MAX, AVE or STOCHASTIC.

    Raises:
        LayerError: for methods that only forks have.
    """
    method = str(p.PoolMethod.Name(p.pool))
    require(method in ("MAX", "AVE", "STOCHASTIC"), f"pool: {method} is not supported; use MAX, AVE or STOCHASTIC")
    return method


def _stochastic_key(ctx: Context) -> Array | None:
    return ctx.key if ctx.training and pool_method(ctx.param) == "STOCHASTIC" else None


def window_and_output_size(p: PoolingParameter, x: Any) -> tuple[Window, Shape]:
    """Return the window over the plane and the size of the output.

    Raises:
        LayerError: if settings are missing, contradict each other, or do not fit the bottom.
    """
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not shape {x.shape}")
    size = tuple(x.shape[2:])
    kernel, stride, pad = _read_kernel_stride_pad(p)
    kernel = size if kernel is None else kernel
    require(all(k > 0 for k in kernel), f"kernel must be positive, not {kernel}")
    require(
        max(kernel) <= max(_MAX_KERNEL, *size),
        f"the kernel {kernel} is larger than both the plane {size} and {_MAX_KERNEL}; use global_pooling or a smaller "
        "kernel",
    )
    window, rounding = Window.symmetric(kernel, stride, pad), math.floor if p.round_mode == p.FLOOR else math.ceil
    return window, _pooled_size(pool_method(p), size, window, rounding)


def _pooled_size(method: str, size: Shape, window: Window, rounding: Callable[[float], int]) -> Shape:
    """Return the output size along each axis of the plane.

    The computation has a step for each cell along an axis of the kernel, except for the average over a single window.
    """
    kernel, stride, pad = window.kernel, window.stride, window.low
    require(method != "STOCHASTIC" or not any(pad), f"STOCHASTIC pooling does not support padding, but pad is {pad}")
    require(all(a < k for a, k in zip(pad, kernel, strict=True)), f"pad {pad} must be less than kernel {kernel}")
    output_size = [rounding((n + 2 * a - k) / s) + 1 for n, k, s, a in zip(size, kernel, stride, pad, strict=True)]
    if any(pad):  # a last window that would start in the padding at the end is dropped
        output_size = [o - ((o - 1) * s >= n + a) for o, n, s, a in zip(output_size, size, stride, pad, strict=True)]
    require(all(o > 0 for o in output_size), f"the kernel {kernel} does not fit the plane {size} with pad {pad}")
    require(
        max(kernel) <= _MAX_STEPS or (method == "AVE" and math.prod(output_size) == 1),
        f"the kernel {kernel} is larger than {_MAX_STEPS}, the maximum that can be computed cell by cell; "
        "pool a smaller plane, or use two layers",
    )
    return tuple(output_size)


def read_height_width(p: Any, square_field: str, height_field: str, width_field: str) -> Shape:
    """Return the height and width that a message sets: both in `square_field`, or each in a separate field.

    As in Caffe, if `square_field` is set, and only one of the separate fields, that field is ignored. For stride and
    pad this is an error.

    Raises:
        LayerError: if the size is set twice, for one axis only, or not at all and it has no default.
    """
    values, default = (getattr(p, square_field),) * p.HasField(square_field), None
    pair = tuple(getattr(p, field) if p.HasField(field) else None for field in (height_field, width_field))
    if square_field in ("stride", "pad"):
        default = getattr(p, square_field)
        require(values or pair.count(None) != 1, f"{height_field} and {width_field} must both be set")
    elif values and pair.count(None) == 1:
        pair = (None, None)
    return resolve_sizes(2, square_field, (height_field, width_field), default, values, pair)


def max_windows(x: Array, window: Window, output_size: Shape) -> tuple[Array, Array]:
    """Return the maxima over windows, and the index of each maximum in the plane, both (N, C, *output size).

    The index is -1 for a window without input. Maxima are taken along the rows, then along the columns: 2k comparisons
    for a k x k window. Strict comparison selects the first maximum in row-major order, so that autodiff passes the
    gradient to this maximum only.
    """
    window, lowest = pad_to_cover(x, window, output_size), jnp.finfo(x.dtype).min
    index = jnp.arange(math.prod(x.shape[2:]), dtype=jnp.int32).reshape(x.shape[2:])
    x, index = _pad_plane(x, window, lowest), _pad_plane(jnp.broadcast_to(index, x.shape), window, -1)
    for axis in (3, 2):
        best, best_index = jnp.asarray(lowest, x.dtype), jnp.asarray(-1, index.dtype)
        for cell, cell_index in zip(*(cells_along(a, window, axis, 2) for a in (x, index)), strict=True):
            is_higher = cell > best
            best, best_index = jnp.where(is_higher, cell, best), jnp.where(is_higher, cell_index, best_index)
        x, index = best, best_index
    return x, index


def average_windows(x: Array, window: Window, output_size: Shape, *, fast: bool = False) -> Array:
    """Average windows of the last two of four axes. Padding counts as zeros; cells beyond the padding do not count."""
    covering_window, total = pad_to_cover(x, window, output_size), promote(x)
    if fast:
        return average_pool(total, covering_window, partial(window_areas, x.shape[2:], window, output_size)).astype(
            x.dtype
        )
    total = _pad_plane(total, covering_window, 0)
    for axis in (3, 2):
        if output_size[axis - 2] == 1:
            total = lax.slice_in_dim(total, 0, window.kernel[axis - 2], axis=axis).sum(axis, keepdims=True)
        else:
            total = sum(cells_along(total, covering_window, axis, 2))  # type: ignore[assignment]
    return (total / constant_window_areas(x.shape[2:], window, output_size, total.dtype)).astype(x.dtype)


def constant_window_areas(size: Shape, window: Window, output_size: Shape, dtype: Any) -> Array:
    """Return `window_areas` as a constant array of the traced computation, (*output size)."""
    return host_constant(partial(window_areas, size, window, output_size), output_size, dtype)


def window_areas(size: Shape, window: Window, output_size: Shape) -> np.ndarray:
    """Return the number of cells of the padded plane that each window covers, (*output size)."""
    lengths = []
    for n, kernel, stride, (low, high), o in zip(
        size, window.kernel, window.stride, window.padding, output_size, strict=True
    ):
        start = np.arange(o) * stride - low
        lengths.append(np.minimum(start + kernel, n + high) - start)
    return np.outer(*lengths).astype(np.float32)


def pad_to_cover(x: Any, window: Window, output_size: Shape) -> Window:
    """Return the window with its padding adjusted so that exactly `output_size` windows fit the padded plane."""
    size = x.shape[2:]
    return window.fit_padding(size, output_size).drop_negative_padding(size)


def _pad_plane(x: Array, window: Window, value: Any) -> Array:
    widths = [(0, 0, 0), (0, 0, 0), *((low, high, 0) for low, high in window.padding)]
    return lax.pad(x, jnp.asarray(value, x.dtype), widths)


def stochastic_windows(x: Array, window: Window, output_size: Shape, key: Array | None) -> Array:
    """Return a sampled cell of each window or, without a key, the expectation, which is sum(v**2) / sum(v).

    A window of zeros gives 0. The gradient goes to the sampled cell.
    """
    cells = _stochastic_cells(x, window, output_size)
    if key is not None:
        return jnp.take_along_axis(cells, _sample_cells(cells, key), axis=2)[:, :, 0]
    values = promote(cells)
    total = values.sum(2)
    mean = jnp.square(values).sum(2) / jnp.where(total > 0, total, 1)
    return jnp.where(total > 0, mean, 0).astype(x.dtype)


def stochastic_diff(x: Array, dy: Array, window: Window, output_size: Shape, key: Array | None) -> Array:
    """Return the gradient of `stochastic_windows` with respect to `x`, given the gradient `dy` of the result."""
    cells = _stochastic_cells(x, window, output_size)
    if key is not None:
        slope = (jnp.arange(cells.shape[2])[:, None, None] == _sample_cells(cells, key)).astype(jnp.float32)
    else:  # the derivative of sum(v^2) / sum(v) with respect to v is (2 v - mean) / sum(v)
        values = promote(cells)
        total = values.sum(2, keepdims=True)
        divisor = jnp.where(total > 0, total, 1)
        slope = jnp.where(total > 0, (2 * values - jnp.square(values).sum(2, keepdims=True) / divisor) / divisor, 0)
    diffs = slope * promote(dy)[:, :, None]
    return scatter_windows(diffs.reshape(*x.shape[:2], *window.kernel, *output_size), x.shape[2:], window).astype(
        x.dtype
    )


def _stochastic_cells(x: Array, window: Window, output_size: Shape) -> Array:
    # cells outside the plane are 0 and are never sampled
    return gather_windows(x, window, output_size).reshape(*x.shape[:2], math.prod(window.kernel), *output_size)


def _sample_cells(cells: Array, key: Array) -> Array:
    """Sample a cell of each window: the first cell at which the running sum reaches a random fraction of the total."""
    running_sum = jnp.cumsum(lax.stop_gradient(promote(cells)), axis=2)
    total = running_sum[:, :, -1:]
    fraction = 1 - jax.random.uniform(key, total.shape, total.dtype)  # above 0, since zeros must not be sampled
    return jnp.argmax(running_sum >= fraction * total, axis=2, keepdims=True)


@register(
    "SPP",
    param="spp_param",
    dtype_policy="bottoms",
    restrictions="STOCHASTIC needs a plane that is divisible into the bins, as in Caffe.",
)
def spp(p: SPPParameter, x: Array, *, ctx: Context) -> Array:
    """Pool into `pyramid_height` levels of 1 x 1, 2 x 2, 4 x 4, ... bins; concatenate the levels: (N, C * bins).

    Planes that cannot be divided into the bins are padded on both sides. With one level the top is (N, C, 1, 1).
    Caffe's rule: spp_layer.cpp.
    """
    tops = [
        pool(pool_method(p), x, window, output_size, _spp_key(ctx, level))
        for level, (window, output_size) in enumerate(_spp_levels(p, x))
    ]
    return tops[0] if len(tops) == 1 else jnp.concatenate([t.reshape(x.shape[0], -1) for t in tops], axis=1)


@spp.backward
def spp_backward(p: SPPParameter, x: Array, *, y: Array, dy: Array, ctx: Context) -> Array:
    dx, start = jnp.zeros_like(x), 0
    d_rows = dy.reshape(x.shape[0], -1)
    for level, (window, output_size) in enumerate(_spp_levels(p, x)):
        end = start + x.shape[1] * math.prod(output_size)
        d_top = d_rows[:, start:end].reshape(*x.shape[:2], *output_size)
        dx += pool_diff(pool_method(p), x, d_top, window, output_size, _spp_key(ctx, level))
        start = end
    return dx


@spp.check
def check_spp(p: SPPParameter) -> None:
    require(p.pyramid_height > 0, f"pyramid_height must be set and positive, not {p.pyramid_height}")
    pool_method(p)


def _spp_key(ctx: Context, level: int) -> Array | None:
    key = _stochastic_key(ctx)
    return None if key is None else jax.random.fold_in(key, level)


def _spp_levels(p: SPPParameter, x: Any) -> list[tuple[Window, Shape]]:
    height = p.pyramid_height
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not shape {x.shape}")
    size = tuple(x.shape[2:])
    max_levels = max(size).bit_length()
    require(
        height <= max_levels, f"a plane of size {size} has at most {max_levels} levels, but pyramid_height is {height}"
    )
    levels = []
    for num_bins in (2**level for level in range(height)):
        kernel = tuple(math.ceil(n / num_bins) for n in size)
        pad = tuple((k * num_bins - n + 1) // 2 for k, n in zip(kernel, size, strict=True))
        window = Window.symmetric(kernel, kernel, pad)
        levels.append((window, _pooled_size(pool_method(p), size, window, math.ceil)))
    return levels
