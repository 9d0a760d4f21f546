"""Pooling and SPP: the maximum, the average or a random cell of windows (pooling_layer.cpp, spp_layer.cpp)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...base.errors import require
from ..ops.host_constant import host_constant
from ..ops.pooling_op import average_pool, max_pool
from ..ops.window import Window
from ..schema.caffe_pb2 import PoolingParameter, SPPParameter
from .context import Context, Shape
from .declaration import register
from .dtype_policy import promote
from .helpers import first_top
from .im2col import gather_windows, scatter_windows

_MAX_STEPS = 8192  # more steps take minutes to compile
_MAX_KERNEL = 1024  # each cell of a kernel is a step of the computation; kernels larger than the plane are useless


@dataclass(frozen=True)
class PoolingSettings:
    """The settings of a PoolingParameter.

    Attributes:
        method: "MAX", "AVE" or "STOCHASTIC".
        kernel: height and width of the window in cells, or None for the whole plane (global_pooling).
        stride, pad: the values along height and width, in cells.
        rounding: the function that rounds output sizes: `math.ceil` or `math.floor`.
    """

    method: str
    kernel: Shape | None
    stride: Shape
    pad: Shape
    rounding: Callable[[float], int]


def read_pooling(p: PoolingParameter) -> PoolingSettings:
    """Return the settings of the layer's PoolingParameter.

    Raises:
        LayerError: if settings are missing, out of range or contradictory.
    """
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
    rounding = math.floor if p.round_mode == p.FLOOR else math.ceil
    return PoolingSettings(pool_method(p), kernel, stride, pad, rounding)


@register(
    "Pooling",
    tops=(1, 2),
    param="pooling_param",
    row_wise=True,
    dtype_policy="bottoms",
    spatial_map="windows",
    restrictions="A kernel larger than both the plane and 1024 is an error.",
    settings=read_pooling,
)
def pooling(p: PoolingSettings, x: jax.Array, *, ctx: Context) -> object:
    """Pool windows by MAX, AVE or STOCHASTIC: (N, C, H, W) to (N, C, *output size). Caffe's rule: pooling_layer.cpp.

    Output sizes are (size + 2 * pad - kernel) / stride + 1, rounded up, or down with `round_mode: FLOOR`. A last
    window that would start in the padding is dropped.

    MAX takes the first maximum in row-major order; the optional second top holds its index in the plane. A window
    without input gives -FLT_MAX and index -1. AVE divides by the number of cells of the window inside the padded plane.
    STOCHASTIC samples a cell of each window with a probability proportional to its value in TRAIN, and computes the
    expectation in TEST.
    """
    window, output_size = window_and_output_size(p, x)
    if ctx.num_tops == 1:
        return pool(p.method, x, window, output_size, _stochastic_key(ctx), fast=ctx.fast)
    require(p.method == "MAX", f"only MAX pooling has a second top, but pool is {p.method}")
    top, row, column = max_windows(x, window, output_size)
    index = jnp.where(column < 0, -1, row * x.shape[3] + column)
    return top, lax.stop_gradient(index.astype(promote(x).dtype))  # bfloat16 cannot represent 257


@pooling.backward
def pooling_backward(p: PoolingSettings, x: jax.Array, *, y: Any, dy: Any, ctx: Context) -> jax.Array:
    d_top = first_top(dy)
    return pool_diff(p.method, x, d_top, *window_and_output_size(p, x), _stochastic_key(ctx))


@pooling.top_shapes
def pooling_top_shapes(p: PoolingSettings, x: Any, *, num_tops: int) -> list[Shape] | None:
    if num_tops != 1 or p.method == "STOCHASTIC" or 0 in x.shape:
        return None
    return [(*x.shape[:2], *window_and_output_size(p, x)[1])]


@pooling.window
def pooling_window(p: PoolingSettings, x: Any) -> Window:
    """Return the pooling window of a bottom (N, C, H, W)."""
    return window_and_output_size(p, x)[0]


def pool(
    method: str, x: jax.Array, window: Window, output_size: Shape, key: jax.Array | None = None, *, fast: bool = False
) -> jax.Array:
    """Pool windows of the last two of four axes by MAX, AVE or STOCHASTIC: (N, C, H, W) to (N, C, *output size).

    STOCHASTIC samples cells if `key` is not None, and otherwise computes the expectation.
    """
    if method == "STOCHASTIC":
        return stochastic_windows(x, window, output_size, key)
    if method == "AVE":
        return average_windows(x, window, output_size, fast=fast)
    return max_pool(x, pad_to_cover(x, window, output_size)) if fast else max_windows(x, window, output_size)[0]


def pool_diff(
    method: str, x: jax.Array, d_top: jax.Array, window: Window, output_size: Shape, key: jax.Array | None = None
) -> jax.Array:
    """Return the gradient of `pool` with respect to `x`, given the gradient `d_top` of the result."""
    if method == "STOCHASTIC":
        return stochastic_diff(x, d_top, window, output_size, key)
    (low_h, high_h), (low_w, high_w) = pad_to_cover(x, window, output_size).padding
    dx = jnp.zeros((*x.shape[:2], x.shape[2] + low_h + high_h, x.shape[3] + low_w + high_w), x.dtype)
    if method == "AVE":
        cell_diff = d_top / constant_window_areas(x.shape[2:], window, output_size, x.dtype)
    else:
        _, row, column = max_windows(x, window, output_size)
    for i in range(window.kernel[0]):
        for j in range(window.kernel[1]):
            rows, columns = _kernel_slice(i, 0, window, output_size), _kernel_slice(j, 1, window, output_size)
            if method == "AVE":
                diff = cell_diff
            else:
                is_row = row == np.arange(output_size[0])[:, None] * window.stride[0] - low_h + i
                is_column = column == np.arange(output_size[1]) * window.stride[1] - low_w + j
                diff = jnp.where(is_row & is_column, d_top, 0)
            dx = dx.at[:, :, rows, columns].add(diff)
    return lax.slice(dx, (0, 0, low_h, low_w), (*x.shape[:2], low_h + x.shape[2], low_w + x.shape[3]))


def pool_method(p: Any) -> str:
    """Return the method of a PoolingParameter or SPPParameter: MAX, AVE or STOCHASTIC.

    Raises:
        LayerError: for methods that only forks have.
    """
    method = str(p.PoolMethod.Name(p.pool))
    require(method in ("MAX", "AVE", "STOCHASTIC"), f"pool: {method} is not supported; use MAX, AVE or STOCHASTIC")
    return method


def _stochastic_key(ctx: Context) -> jax.Array | None:
    return ctx.key if ctx.training and ctx.settings.method == "STOCHASTIC" else None


def window_and_output_size(p: PoolingSettings, x: Any) -> tuple[Window, Shape]:
    """Return the window over the plane and the size of the output.

    Raises:
        LayerError: if settings are missing, contradict each other, or do not fit the bottom.
    """
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not shape {x.shape}")
    size = tuple(x.shape[2:])
    kernel = size if p.kernel is None else p.kernel
    require(all(k > 0 for k in kernel), f"kernel must be positive, not {kernel}")
    window = Window.symmetric(kernel, p.stride, p.pad)
    check_window(p.method, window)
    require(
        max(kernel) <= max(_MAX_KERNEL, *size),
        f"the kernel {kernel} is larger than both the plane {size} and {_MAX_KERNEL}; use global_pooling or a smaller "
        "kernel",
    )
    output_size = pooled_size(size, window, p.rounding)
    check_steps(p.method, window, output_size)
    return window, output_size


def check_steps(method: str, window: Window, output_size: Shape) -> None:
    """Raise `LayerError` if windows have more than `_MAX_STEPS` cells along an axis.

    The computation has a step for each of these cells, except for the average over a single window, such as the whole
    plane.
    """
    if method != "AVE" or math.prod(output_size) > 1:
        require(
            max(window.kernel) <= _MAX_STEPS,
            f"the kernel {window.kernel} is larger than {_MAX_STEPS}, the maximum that can be computed cell by cell; "
            "pool a smaller plane, or use two layers",
        )


def check_window(method: str, window: Window) -> None:
    """Raise `LayerError` if a method does not support the padding of the window."""
    pad, kernel = window.low, window.kernel
    require(method != "STOCHASTIC" or not any(pad), f"STOCHASTIC pooling does not support padding, but pad is {pad}")
    require(all(a < k for a, k in zip(pad, kernel, strict=True)), f"pad {pad} must be less than kernel {kernel}")


def pooled_size(size: Shape, window: Window, rounding: Callable[[float], int]) -> Shape:
    """Return the output size along each axis of the plane.

    Raises:
        LayerError: if the kernel is larger than the padded plane.
    """
    kernel, stride, pad = window.kernel, window.stride, window.low
    output_size = [rounding((n + 2 * a - k) / s) + 1 for n, k, s, a in zip(size, kernel, stride, pad, strict=True)]
    if any(pad):  # a last window that would start in the padding at the end is dropped
        output_size = [o - ((o - 1) * s >= n + a) for o, n, s, a in zip(output_size, size, stride, pad, strict=True)]
    require(all(o > 0 for o in output_size), f"the kernel {kernel} does not fit the plane {size} with pad {pad}")
    return tuple(output_size)


def read_height_width(p: Any, square_field: str, height_field: str, width_field: str) -> Shape:
    """Return the height and width that a message sets: both in `square_field`, or each in a separate field.

    As in Caffe, if `square_field` is set, and only one of the separate fields, that field is ignored. For stride and
    pad this is an error.

    Raises:
        LayerError: if the size is set twice, for one axis only, or not at all and it has no default.
    """
    has_default = square_field in ("stride", "pad")
    sets_one_side = p.HasField(height_field) != p.HasField(width_field)
    if sets_one_side and p.HasField(square_field) and not has_default:
        return (getattr(p, square_field),) * 2
    sets_any_side = p.HasField(height_field) or p.HasField(width_field)
    require(
        not (p.HasField(square_field) and sets_any_side),
        f"give either {square_field} or {height_field} and {width_field}, not both",
    )
    if not sets_any_side:
        require(
            has_default or p.HasField(square_field), f"{square_field} (or {height_field} and {width_field}) must be set"
        )
        return (getattr(p, square_field),) * 2
    require(p.HasField(height_field) and p.HasField(width_field), f"{height_field} and {width_field} must both be set")
    return (getattr(p, height_field), getattr(p, width_field))


def max_windows(x: jax.Array, window: Window, output_size: Shape) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the maxima over windows, and the row and column of each maximum, all (N, C, *output size).

    Row and column are -1 for a window without input. Maxima are taken along the rows, then along the columns: 2k
    comparisons for a k x k window. Strict comparison selects the first maximum in row-major order, so that autodiff
    passes the gradient to this maximum only.
    """
    (low_h, high_h), (low_w, high_w) = pad_to_cover(x, window, output_size).padding
    lowest = jnp.finfo(x.dtype).min
    column = jnp.broadcast_to(jnp.arange(x.shape[3], dtype=jnp.int32), x.shape)
    best, (column,) = _max_along_axis(x, (column,), 3, low_w, high_w, window, output_size, lowest)
    row = jnp.broadcast_to(jnp.arange(x.shape[2], dtype=jnp.int32)[:, None], best.shape)
    best, (row, column) = _max_along_axis(best, (row, column), 2, low_h, high_h, window, output_size, lowest)
    return best, row, column


def _max_along_axis(
    x: jax.Array,
    positions: tuple[jax.Array, ...],
    axis: int,
    low: int,
    high: int,
    window: Window,
    output_size: Shape,
    lowest: Any,
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    kernel, stride, n = window.kernel[axis - 2], window.stride[axis - 2], output_size[axis - 2]
    best: jax.Array | None = None
    best_positions: tuple[jax.Array, ...] = ()
    values = _kernel_slices(_pad_axis(x, axis, low, high, lowest), axis, kernel, stride, n)
    slices = [_kernel_slices(_pad_axis(p, axis, low, high, -1), axis, kernel, stride, n) for p in positions]
    for value, *value_positions in zip(values, *slices, strict=True):
        if best is None:
            best, best_positions = jnp.full_like(value, lowest), tuple(jnp.full_like(p, -1) for p in value_positions)
        is_higher = value > best
        best = jnp.where(is_higher, value, best)
        best_positions = tuple(
            jnp.where(is_higher, new, old) for new, old in zip(value_positions, best_positions, strict=True)
        )
    assert best is not None
    return best, best_positions


def average_windows(x: jax.Array, window: Window, output_size: Shape, *, fast: bool = False) -> jax.Array:
    """Average windows of the last two of four axes. Padding counts as zeros; cells beyond the padding do not count."""
    covering_window, total = pad_to_cover(x, window, output_size), promote(x)
    if fast:
        return average_pool(total, covering_window, partial(window_areas, x.shape[2:], window, output_size)).astype(
            x.dtype
        )
    for axis in (3, 2):
        padded = _pad_axis(total, axis, *covering_window.padding[axis - 2], 0)
        kernel, stride = window.kernel[axis - 2], window.stride[axis - 2]
        if output_size[axis - 2] == 1:
            total = lax.slice_in_dim(padded, 0, kernel, axis=axis).sum(axis, keepdims=True)
        else:
            total = sum(_kernel_slices(padded, axis, kernel, stride, output_size[axis - 2]))  # type: ignore[assignment]
    return (total / constant_window_areas(x.shape[2:], window, output_size, total.dtype)).astype(x.dtype)


def constant_window_areas(size: Shape, window: Window, output_size: Shape, dtype: Any) -> jax.Array:
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


def _pad_axis(x: jax.Array, axis: int, low: int, high: int, value: Any) -> jax.Array:
    widths = [(low, high, 0) if k == axis else (0, 0, 0) for k in range(x.ndim)]
    return lax.pad(x, jnp.asarray(value, x.dtype), widths)


def _kernel_slices(x: jax.Array, axis: int, kernel: int, stride: int, n: int) -> Iterator[jax.Array]:
    """Yield a slice of `x` for each kernel position along `axis`: the cell at that position in each of `n` windows."""
    for i in range(kernel):
        yield lax.slice_in_dim(x, i, i + (n - 1) * stride + 1, stride, axis)


def _kernel_slice(i: int, axis: int, window: Window, output_size: Shape) -> slice:
    return slice(i, i + (output_size[axis] - 1) * window.stride[axis] + 1, window.stride[axis])


def stochastic_windows(x: jax.Array, window: Window, output_size: Shape, key: jax.Array | None) -> jax.Array:
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


def stochastic_diff(
    x: jax.Array, dy: jax.Array, window: Window, output_size: Shape, key: jax.Array | None
) -> jax.Array:
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


def _stochastic_cells(x: jax.Array, window: Window, output_size: Shape) -> jax.Array:
    """Return the inputs of each pooling window, (N, C, kernel cells in row-major order, *output size).

    Cells outside the plane are 0 and are never sampled.
    """
    return gather_windows(x, window, output_size).reshape(*x.shape[:2], math.prod(window.kernel), *output_size)


def _sample_cells(cells: jax.Array, key: jax.Array) -> jax.Array:
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
def spp(p: SPPParameter, x: jax.Array, *, ctx: Context) -> jax.Array:
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
def spp_backward(p: SPPParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context) -> jax.Array:
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


def _spp_key(ctx: Context, level: int) -> jax.Array | None:
    is_random = ctx.training and pool_method(ctx.param) == "STOCHASTIC"
    return jax.random.fold_in(ctx.key, level) if is_random else None


def _spp_levels(p: SPPParameter, x: Any) -> list[tuple[Window, Shape]]:
    height = p.pyramid_height
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not shape {x.shape}")
    size = tuple(x.shape[2:])
    max_levels = max(size).bit_length()
    require(
        height <= max_levels, f"a plane of size {size} has at most {max_levels} levels, but pyramid_height is {height}"
    )
    return [_spp_window(pool_method(p), size, 2**level) for level in range(height)]


def _spp_window(method: str, size: Shape, num_bins: int) -> tuple[Window, Shape]:
    kernel = tuple(math.ceil(n / num_bins) for n in size)
    pad = tuple((k * num_bins - n + 1) // 2 for k, n in zip(kernel, size, strict=True))
    window = Window.symmetric(kernel, kernel, pad)
    check_window(method, window)
    output_size = pooled_size(size, window, math.ceil)
    check_steps(method, window, output_size)
    return window, output_size
