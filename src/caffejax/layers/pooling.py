"""Pooling and SPP: maximum, average or random choice over windows of the plane (pooling_layer.cpp, spp_layer.cpp)."""

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

from ..errors import require
from ..kernels.host_constant import host_constant
from ..kernels.pooling_op import average_pool, max_pool
from ..kernels.window import Window
from .context import Context, Shape
from .dtype_policy import promote
from .helpers import first_top
from .im2col import overlay, windows
from .registry import define_layer
from .types import Gradient, LayerDocs, LayerTraits, Signature, Traced

_MOST_STEPS = 8192  # more steps take minutes to compile
_LARGEST = 1024  # each cell of a kernel is a step of the computation; larger kernels than the plane are useless


@dataclass(frozen=True)
class PoolingSettings:
    """The settings of a PoolingParameter.

    Attributes:
        method: "MAX", "AVE" or "STOCHASTIC".
        kernel: height and width in cells; None for the whole plane (global_pooling).
        stride, pad: height and width in cells.
        rounding: how output sizes are rounded: `math.ceil`, or `math.floor`.
    """

    method: str
    kernel: Shape | None
    stride: Shape
    pad: Shape
    rounding: Callable[[float], int]


def read_pooling(ctx: Context) -> PoolingSettings:
    """Read a PoolingParameter.

    Raises:
        LayerError: for settings that are missing, out of range or contradictory.
    """
    p = ctx.param
    kernel = None
    if p.global_pooling:
        require(
            not any(p.HasField(f) for f in ("kernel_size", "kernel_h", "kernel_w")),
            "with global_pooling: true the kernel is the whole plane; remove kernel_size",
        )
    else:
        kernel = window_pair(p, "kernel_size", "kernel_h", "kernel_w")
        require(all(k > 0 for k in kernel), f"kernel must be positive: {kernel}")
    pad, stride = window_pair(p, "pad", "pad_h", "pad_w"), window_pair(p, "stride", "stride_h", "stride_w")
    require(all(s > 0 for s in stride), f"stride must be positive: {stride}")
    require(
        not p.global_pooling or (pad == (0, 0) and stride == (1, 1)),
        "with global_pooling: true pad must be 0 and stride 1",
    )
    rounds_down = p.round_mode == p.FLOOR or not p.ceil_mode
    return PoolingSettings(pool_method(p), kernel, stride, pad, math.floor if rounds_down else math.ceil)


def pooling(ctx: Context, x: jax.Array) -> object:
    """MAX, AVE or STOCHASTIC pooling over windows: (N, C, H, W) to (N, C, *output size). See pooling_layer.cpp.

    Output sizes (size + 2 * pad - kernel) / stride + 1 round up, or down with `round_mode: FLOOR` (in forks:
    `ceil_mode: false`); a last window that would start in the padding is dropped.

    MAX takes the first maximum in row-major order; the optional second top holds its index in the plane. A window
    without input gives -FLT_MAX and index -1. AVE divides by the part of the window inside the padded plane. STOCHASTIC
    draws a cell of each window with a probability proportional to its value; in TEST it computes the expectation.
    """
    window, out = window_and_size(ctx, x)
    if ctx.n_tops == 1:
        return pool(ctx.settings.method, x, window, out, _key(ctx), fast=ctx.fast)
    require(ctx.settings.method == "MAX", "only MAX pooling has a second top")
    top, row, column = max_windows(x, window, out)
    index = jnp.where(column < 0, -1, row * x.shape[3] + column)
    return top, lax.stop_gradient(index.astype(promote(x).dtype))  # bfloat16 cannot represent 257


def pooling_backward(ctx: Context, x: jax.Array, *, y: Any, dy: Any) -> jax.Array:
    d_top = first_top(dy)
    return pool_diff(ctx.settings.method, x, d_top, *window_and_size(ctx, x), _key(ctx))


def pooling_top_shapes(ctx: Context, x: Any) -> list[Shape] | None:
    if ctx.n_tops != 1 or ctx.settings.method == "STOCHASTIC" or 0 in x.shape:
        return None
    return [(*x.shape[:2], *window_and_size(ctx, x)[1])]


def pooling_window(ctx: Context, x: Any) -> Window:
    """Return the pooling window of a bottom (N, C, H, W)."""
    return window_and_size(ctx, x)[0]


define_layer(
    Signature("Pooling", tops=(1, 2), param="pooling_param", fork_settings=("ceil_mode",)),
    Traced(pooling, top_shapes=pooling_top_shapes),
    Gradient(pooling_backward),
    LayerTraits(row_wise=True, dtype_policy="bottoms", spatial_map="windows", window=pooling_window),
    docs=LayerDocs(restrictions="A kernel larger than both the plane and 1024 is an error."),
    settings=read_pooling,
)


def pool(
    method: str, x: jax.Array, window: Window, out: Shape, key: jax.Array | None = None, *, fast: bool = False
) -> jax.Array:
    """Pool windows of the last two of four axes by MAX, AVE or STOCHASTIC, which draws cells only if given a key."""
    if method == "STOCHASTIC":
        return stochastic_windows(x, window, out, key)
    if method == "AVE":
        return average_windows(x, window, out, fast=fast)
    return max_pool(x, pad_to_cover(x, window, out)) if fast else max_windows(x, window, out)[0]


def pool_diff(
    method: str, x: jax.Array, d_top: jax.Array, window: Window, out: Shape, key: jax.Array | None = None
) -> jax.Array:
    """Return the gradient of the bottom: each window's gradient goes to its cells, one kernel position at a time."""
    if method == "STOCHASTIC":
        return stochastic_diff(x, d_top, window, out, key)
    (low_h, high_h), (low_w, high_w) = pad_to_cover(x, window, out).padding
    dx = jnp.zeros((*x.shape[:2], x.shape[2] + low_h + high_h, x.shape[3] + low_w + high_w), x.dtype)
    if method == "AVE":
        per_cell = d_top / areas_of(x.shape[2:], window, out, x.dtype)
    else:
        _, row, column = max_windows(x, window, out)
    for i in range(window.kernel[0]):
        for j in range(window.kernel[1]):
            rows, columns = _cells(i, 0, window, out), _cells(j, 1, window, out)
            if method == "AVE":
                part = per_cell
            else:
                at_i = row == np.arange(out[0])[:, None] * window.stride[0] - low_h + i
                at_j = column == np.arange(out[1]) * window.stride[1] - low_w + j
                part = jnp.where(at_i & at_j, d_top, 0)
            dx = dx.at[:, :, rows, columns].add(part)
    return lax.slice(dx, (0, 0, low_h, low_w), (*x.shape[:2], low_h + x.shape[2], low_w + x.shape[3]))


def pool_method(p: Any) -> str:
    """Return the method of a PoolingParameter or SPPParameter: MAX, AVE or STOCHASTIC.

    Raises:
        LayerError: for methods that only forks have.
    """
    method = str(p.PoolMethod.Name(p.pool))
    require(method in ("MAX", "AVE", "STOCHASTIC"), f"pool: {method} is not supported; use MAX, AVE or STOCHASTIC")
    return method


def _key(ctx: Context) -> jax.Array | None:
    return ctx.key if ctx.training and ctx.settings.method == "STOCHASTIC" else None


def window_and_size(ctx: Context, x: Any) -> tuple[Window, Shape]:
    """Return the window over the plane and the size of the output.

    Raises:
        LayerError: for settings that are missing, contradict each other, or do not fit the bottom.
    """
    s = ctx.settings
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not {x.shape}")
    size = tuple(x.shape[2:])
    kernel = size if s.kernel is None else s.kernel
    require(all(k > 0 for k in kernel), f"kernel must be positive: {kernel}")
    window = Window.symmetric(kernel, s.stride, s.pad)
    check_window(s.method, window)
    require(
        max(kernel) <= max(_LARGEST, *size),
        f"the kernel {kernel} is larger than both the plane {size} and {_LARGEST}; use global_pooling or a smaller one",
    )
    out = pooled_size(size, window, s.rounding)
    check_steps(s.method, window, out)
    return window, out


def check_steps(method: str, window: Window, out: Shape) -> None:
    """Raise `LayerError` if windows have too many cells along an axis: the computation has a step for each.

    Averages over a single window, such as the whole plane, take one step.
    """
    if method != "AVE" or math.prod(out) > 1:
        require(
            max(window.kernel) <= _MOST_STEPS,
            f"the kernel {window.kernel} is larger than {_MOST_STEPS}, the maximum that can be computed cell by cell; "
            "pool a smaller plane, or use two layers",
        )


def check_window(method: str, window: Window) -> None:
    """Raise `LayerError` if a method does not support the padding of the window."""
    pad, kernel = window.low, window.kernel
    require(method != "STOCHASTIC" or not any(pad), f"STOCHASTIC pooling does not support padding, but pad is {pad}")
    require(all(a < k for a, k in zip(pad, kernel, strict=True)), f"pad {pad} must be less than kernel {kernel}")


def pooled_size(size: Shape, window: Window, rounding: Callable[[float], int]) -> Shape:
    """Return the output size along each axis.

    Raises:
        LayerError: if the kernel does not fit.
    """
    kernel, stride, pad = window.kernel, window.stride, window.low
    out = [rounding((n + 2 * a - k) / s) + 1 for n, k, s, a in zip(size, kernel, stride, pad, strict=True)]
    if any(pad):  # a last window that would start in the far padding is dropped
        out = [o - ((o - 1) * s >= n + a) for o, n, s, a in zip(out, size, stride, pad, strict=True)]
    require(all(o > 0 for o in out), f"the kernel {kernel} does not fit the plane {size} with pad {pad}")
    return tuple(out)


def window_pair(p: Any, both: str, height: str, width: str) -> Shape:
    """Return height and width of a setting that has one field for both, or one for each.

    As in Caffe, if the field for both is set, a single one of the other two is ignored, except for stride and pad.

    Raises:
        LayerError: if the setting is set twice or for one axis only, or is missing and has no default.
    """
    has_default = both in ("stride", "pad")
    one = p.HasField(height) != p.HasField(width)
    if one and p.HasField(both) and not has_default:
        return (getattr(p, both),) * 2
    either = p.HasField(height) or p.HasField(width)
    require(not (p.HasField(both) and either), f"give either {both} or {height} and {width}, not both")
    if not either:
        require(has_default or p.HasField(both), f"{both} (or {height} and {width}) must be given")
        return (getattr(p, both),) * 2
    require(p.HasField(height) and p.HasField(width), f"{height} and {width} must both be given")
    return (getattr(p, height), getattr(p, width))


def max_windows(x: jax.Array, window: Window, out: Shape) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the maxima over windows, and the row and column of each (-1 for none); all (N, C, *out).

    Maxima are taken along the rows, then along the columns: 2k comparisons for a k x k window. Strict comparison keeps
    the first maximum in row-major order, and makes autodiff send the whole gradient there.
    """
    (low_h, high_h), (low_w, high_w) = pad_to_cover(x, window, out).padding
    least = jnp.finfo(x.dtype).min
    column = jnp.broadcast_to(jnp.arange(x.shape[3], dtype=jnp.int32), x.shape)
    best, (column,) = _first_max(x, (column,), 3, low_w, high_w, window, out, least)
    row = jnp.broadcast_to(jnp.arange(x.shape[2], dtype=jnp.int32)[:, None], best.shape)
    best, (row, column) = _first_max(best, (row, column), 2, low_h, high_h, window, out, least)
    return best, row, column


def _first_max(
    x: jax.Array,
    positions: tuple[jax.Array, ...],
    axis: int,
    low: int,
    high: int,
    window: Window,
    out: Shape,
    least: Any,
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    kernel, stride, n = window.kernel[axis - 2], window.stride[axis - 2], out[axis - 2]
    best: jax.Array | None = None
    at: tuple[jax.Array, ...] = ()
    values = _slices(_pad_axis(x, axis, low, high, least), axis, kernel, stride, n)
    slices = [_slices(_pad_axis(p, axis, low, high, -1), axis, kernel, stride, n) for p in positions]
    for value, *position in zip(values, *slices, strict=True):
        if best is None:
            best, at = jnp.full_like(value, least), tuple(jnp.full_like(p, -1) for p in position)
        higher = value > best
        best = jnp.where(higher, value, best)
        at = tuple(jnp.where(higher, new, old) for new, old in zip(position, at, strict=True))
    assert best is not None
    return best, at


def average_windows(x: jax.Array, window: Window, out: Shape, *, fast: bool = False) -> jax.Array:
    """Average windows of the last two of four axes; padding counts as zeros, cells beyond the padding do not count."""
    padded, total = pad_to_cover(x, window, out), promote(x)
    if fast:
        return average_pool(total, padded, partial(window_areas, x.shape[2:], window, out)).astype(x.dtype)
    for axis in (3, 2):
        longer = _pad_axis(total, axis, *padded.padding[axis - 2], 0)
        kernel, stride = window.kernel[axis - 2], window.stride[axis - 2]
        if out[axis - 2] == 1:
            total = lax.slice_in_dim(longer, 0, kernel, axis=axis).sum(axis, keepdims=True)
        else:
            total = sum(_slices(longer, axis, kernel, stride, out[axis - 2]))  # type: ignore[assignment]
    return (total / areas_of(x.shape[2:], window, out, total.dtype)).astype(x.dtype)


def areas_of(size: Shape, window: Window, out: Shape, dtype: Any) -> jax.Array:
    """Return `window_areas` as a constant of the traced computation, (*out)."""
    return host_constant(partial(window_areas, size, window, out), out, dtype)


def window_areas(size: Shape, window: Window, out: Shape) -> np.ndarray:
    """Count the cells of the padded plane that each window covers."""
    lengths = []
    for n, kernel, stride, (low, high), o in zip(size, window.kernel, window.stride, window.padding, out, strict=True):
        start = np.arange(o) * stride - low
        lengths.append(np.minimum(start + kernel, n + high) - start)
    return np.outer(*lengths).astype(np.float32)


def pad_to_cover(x: Any, window: Window, out: Shape) -> Window:
    """Adjust the padding so that exactly `out` windows fit the padded plane."""
    size = x.shape[2:]
    return window.fit_padding(size, out).drop_negative_padding(size)


def _pad_axis(x: jax.Array, axis: int, low: int, high: int, value: Any) -> jax.Array:
    widths = [(low, high, 0) if k == axis else (0, 0, 0) for k in range(x.ndim)]
    return lax.pad(x, jnp.asarray(value, x.dtype), widths)


def _slices(x: jax.Array, axis: int, kernel: int, stride: int, n: int) -> Iterator[jax.Array]:
    """Yield, for each kernel position, the cells that the n windows have at that position."""
    for i in range(kernel):
        yield lax.slice_in_dim(x, i, i + (n - 1) * stride + 1, stride, axis)


def _cells(i: int, axis: int, window: Window, out: Shape) -> slice:
    return slice(i, i + (out[axis] - 1) * window.stride[axis] + 1, window.stride[axis])


def stochastic_windows(x: jax.Array, window: Window, out: Shape, key: jax.Array | None) -> jax.Array:
    """Return the drawn cells or, without a key, the mean of each window's values weighted by themselves.

    A window of zeros gives 0. The gradient goes to the drawn cell.
    """
    cells = _stochastic_cells(x, window, out)
    if key is not None:
        return jnp.take_along_axis(cells, _draw_cells(cells, key), axis=2)[:, :, 0]
    values = promote(cells)
    total = values.sum(2)
    mean = jnp.square(values).sum(2) / jnp.where(total > 0, total, 1)
    return jnp.where(total > 0, mean, 0).astype(x.dtype)


def stochastic_diff(x: jax.Array, dy: jax.Array, window: Window, out: Shape, key: jax.Array | None) -> jax.Array:
    """Return the gradient of the bottom, computed for each cell of each window and then summed."""
    cells = _stochastic_cells(x, window, out)
    if key is not None:
        slope = (jnp.arange(cells.shape[2])[:, None, None] == _draw_cells(cells, key)).astype(jnp.float32)
    else:  # of sum(v^2) / sum(v) by v: (2 v - mean) / sum(v)
        values = promote(cells)
        total = values.sum(2, keepdims=True)
        safe = jnp.where(total > 0, total, 1)
        slope = jnp.where(total > 0, (2 * values - jnp.square(values).sum(2, keepdims=True) / safe) / safe, 0)
    diffs = slope * promote(dy)[:, :, None]
    return overlay(diffs.reshape(*x.shape[:2], *window.kernel, *out), x.shape[2:], window).astype(x.dtype)


def _stochastic_cells(x: jax.Array, window: Window, out: Shape) -> jax.Array:
    """Return (N, C, kernel cells in row-major order, *out); cells beyond the plane are 0 and never drawn."""
    return windows(x, window, out).reshape(*x.shape[:2], math.prod(window.kernel), *out)


def _draw_cells(cells: jax.Array, key: jax.Array) -> jax.Array:
    """Draw a cell of each window: the first at which the running sum reaches a random part of the total."""
    running = jnp.cumsum(lax.stop_gradient(promote(cells)), axis=2)
    total = running[:, :, -1:]
    part = 1 - jax.random.uniform(key, total.shape, total.dtype)  # above 0, since zeros must not be drawn
    return jnp.argmax(running >= part * total, axis=2, keepdims=True)


@dataclass(frozen=True)
class SppSettings:
    """The settings of an SPPParameter.

    Attributes:
        method: "MAX", "AVE" or "STOCHASTIC".
        height: the number of levels, at least 1.
    """

    method: str
    height: int


def read_spp(ctx: Context) -> SppSettings:
    """Read an SPPParameter.

    Raises:
        LayerError: for a method that is not supported, or no height.
    """
    require(ctx.param.pyramid_height > 0, "pyramid_height must be given and positive")
    return SppSettings(pool_method(ctx.param), ctx.param.pyramid_height)


def spp(ctx: Context, x: jax.Array) -> jax.Array:
    """Pooling into 1 x 1, 2 x 2, 4 x 4 ... bins, `pyramid_height` levels, concatenated for each item: (N, C * bins).

    Planes that are not divisible into the bins are padded on both sides. With one level the top is (N, C, 1, 1).
    Caffe's rule: spp_layer.cpp.
    """
    tops = [
        pool(ctx.settings.method, x, window, out, _spp_key(ctx, level))
        for level, (window, out) in enumerate(_spp_levels(ctx, x))
    ]
    return tops[0] if len(tops) == 1 else jnp.concatenate([t.reshape(x.shape[0], -1) for t in tops], axis=1)


def spp_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    dx, start = jnp.zeros_like(x), 0
    d_rows = dy.reshape(x.shape[0], -1)
    for level, (window, out) in enumerate(_spp_levels(ctx, x)):
        end = start + x.shape[1] * math.prod(out)
        d_top = d_rows[:, start:end].reshape(*x.shape[:2], *out)
        dx += pool_diff(ctx.settings.method, x, d_top, window, out, _spp_key(ctx, level))
        start = end
    return dx


define_layer(
    Signature("SPP", param="spp_param"),
    Traced(spp),
    Gradient(spp_backward),
    LayerTraits(dtype_policy="bottoms"),
    docs=LayerDocs(restrictions="STOCHASTIC needs a plane that is divisible into the bins, as in Caffe."),
    settings=read_spp,
)


def _spp_key(ctx: Context, level: int) -> jax.Array | None:
    random = ctx.training and ctx.settings.method == "STOCHASTIC"
    return jax.random.fold_in(ctx.key, level) if random else None


def _spp_levels(ctx: Context, x: Any) -> list[tuple[Window, Shape]]:
    """Return window and output size of each level."""
    height = ctx.settings.height
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not {x.shape}")
    size = tuple(x.shape[2:])
    levels = max(size).bit_length()
    require(height <= levels, f"a plane of size {size} has at most {levels} levels, but pyramid_height is {height}")
    return [_spp_level(ctx.settings.method, size, 2**level) for level in range(height)]


def _spp_level(method: str, size: Shape, bins: int) -> tuple[Window, Shape]:
    kernel = tuple(math.ceil(n / bins) for n in size)
    pad = tuple((k * bins - n + 1) // 2 for k, n in zip(kernel, size, strict=True))
    window = Window.symmetric(kernel, kernel, pad)
    check_window(method, window)
    out = pooled_size(size, window, math.ceil)
    check_steps(method, window, out)
    return window, out
