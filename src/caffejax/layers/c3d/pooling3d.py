"""Pooling3D: maxima or averages over windows of time and the plane."""

from __future__ import annotations

import math
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...errors import require
from ...kernels.table import table
from ...kernels.window import Window
from ..context import Context, Shape
from ..dtypes import promote
from ..registry import register
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .windows import TEMPORAL, volume_param, volume_size, volume_window


def pooling3d(ctx: Context, x: jax.Array) -> jax.Array:
    """MAX or AVE over windows of (N, C, length, height, width); sizes round up, and a last window may overhang.

    AVE divides by the part of the window inside of the padded volume. All places that equal a window's maximum get
    its whole gradient. Settings are those of pooling3d_param, or as in C3D 1.0 of pooling_param with kernel_depth and
    temporal_stride.
    """
    return pooled(x, *volume_windows(ctx, x))


def pooling3d_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return pooled_diff(x, y, dy, *volume_windows(ctx, x))


def pooled(x: jax.Array, method: str, window: Window, out: Shape) -> jax.Array:
    """Return maxima or averages, (N, C, *out), over windows of all axes of (N, C, *size)."""
    if method == "MAX":
        return _maxima(x, window)
    total = _over_windows(lax.add, 0, promote(x), window)
    return (total / _volumes(total, x, window, out)).astype(x.dtype)


def pooled_diff(x: jax.Array, y: jax.Array, dy: jax.Array, method: str, window: Window, out: Shape) -> jax.Array:
    """Return the diff of x, of which `pooled` made y."""
    if method == "AVE":
        return _spread(promote(dy) / _volumes(promote(dy), x, window, out), window, x)
    padded = lax.pad(x, jnp.asarray(-np.inf, x.dtype), [(0, 0, 0), (0, 0, 0), *((*p, 0) for p in window.padding)])
    size, dx = padded.shape[2:], jnp.zeros_like(padded)
    for cells in window.cells(out):  # each place of the kernel: where it holds the maximum, and where that lies
        share = jnp.where(padded[(..., *cells)] == y, dy, 0)
        around = [(c.start, n - c.stop, c.step - 1) for c, n in zip(cells, size, strict=True)]
        dx += lax.pad(share, jnp.zeros((), share.dtype), [(0, 0, 0), (0, 0, 0), *around])
    return _cropped(dx, window, x)


register(
    LayerType(
        Signature("Pooling3D", param="pooling_param", fork_settings=TEMPORAL),
        Traced(pooling3d),
        Gradient(pooling3d_backward, overrides_autodiff=True),
        LayerTraits(row_wise=True, dtype_policy="bottoms"),
        docs=LayerDocs(
            origin="C3D", restrictions="pad is for AVE, and not for time; STOCHASTIC is refused, as by C3D."
        ),
    )
)


def volume_windows(ctx: Context, x: Any) -> tuple[str, Window, Shape]:
    """Return the method, the window with padding up to where the last one ends, and the output's size.

    Raises:
        LayerError: for settings that do not go together, and other shapes.
    """
    p, size = volume_param(ctx, "pooling3d_param"), volume_size(x)
    method = str(p.PoolMethod.Name(p.pool))
    require(method in ("MAX", "AVE"), f"pool: {method} is not supported; use MAX or AVE")
    window = volume_window(p)
    (frames, *pads), kernel, stride = window.low, window.kernel, window.stride
    require(frames == 0, f"takes no padding in time, but temporal_pad is {frames}")
    require(method == "AVE" or not any(pads), f"MAX pooling takes no padding, but pad is {pads[0]}")
    out = tuple(math.ceil((n + 2 * a - k) / s) + 1 for n, k, s, a in zip(size, kernel, stride, window.low, strict=True))
    require(all(o > 0 for o in out), f"the kernel {kernel} does not fit the volume {size} with pad {window.low}")
    starts = [(o - 1) * s - a for o, s, a in zip(out, stride, window.low, strict=True)]
    require(
        all(start < n for start, n in zip(starts, size, strict=True)),
        f"the last window begins beyond the volume {size}: kernel {kernel}, stride {stride}, pad {window.low}",
    )
    return method, window.ending(size, out).without_rest(size), out


def _maxima(x: jax.Array, window: Window) -> jax.Array:
    return _over_windows(lax.max, -np.inf, x, window)


def _over_windows(combine: Any, start: float, x: jax.Array, window: Window) -> jax.Array:
    y: jax.Array = lax.reduce_window(
        x,
        np.array(start, x.dtype),
        combine,
        (1, 1, *window.kernel),
        (1, 1, *window.stride),
        ((0, 0), (0, 0), *window.padding),
    )
    return y


def _spread(share: jax.Array, window: Window, x: jax.Array) -> jax.Array:
    """Give every cell of each window its share: add up over the windows that each place of `x` is in."""
    size = [n + low + high for n, (low, high) in zip(x.shape[2:], window.padding, strict=True)]
    axes = zip(size, share.shape[2:], window.stride, window.kernel, strict=True)
    around = [(k - 1, n - 1 - (o - 1) * s, s - 1) for n, o, s, k in axes]
    apart = lax.pad(share, jnp.zeros((), share.dtype), [(0, 0, 0), (0, 0, 0), *around])
    n = len(window.kernel)
    alone = Window.symmetric(window.kernel, (1,) * n, (0,) * n)
    return _cropped(_over_windows(lax.add, 0, apart, alone), window, x)


def _cropped(dx: jax.Array, window: Window, x: jax.Array) -> jax.Array:
    kept = (slice(low, low + n) for low, n in zip(window.low, x.shape[2:], strict=True))
    return dx[(..., *kept)]


def _volumes(of: jax.Array, x: jax.Array, window: Window, out: Shape) -> jax.Array:
    return table(partial(_counted, x.shape[2:], window, out), out, of.dtype)


def _counted(size: Shape, window: Window, out: Shape) -> np.ndarray:
    """Count the cells of the padded volume that each window covers. Padding is the same at both ends."""
    lengths = []
    for n, kernel, stride, low, o in zip(size, window.kernel, window.stride, window.low, out, strict=True):
        start = np.arange(o) * stride - low
        lengths.append(np.minimum(start + kernel, n + low) - start)
    return reduce(np.multiply.outer, lengths).astype(np.float32)
