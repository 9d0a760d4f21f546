"""Unpooling: windows of a larger plane filled with one number each."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from ...kernels.window import Window
from ..context import Context, ParamSpec, Shape
from ..pooling import areas_of, average_windows, pool_diff, window_pair
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerTraits, LayerType, Signature, Traced, Variants
from .placing import numbers_at, placed

Arrays = tuple[jax.Array, ...]


def max_unpooling(ctx: Context, x: jax.Array, *mask: jax.Array) -> jax.Array:
    """Each number goes to the place that the mask, Pooling's second top, has for it; others are 0.

    Without a mask it goes to the top left of its window. Of several at one place the last stays; each of them gets the
    gradient there. A place outside gives NaN.
    """
    return placed(x, _mask(ctx, x, mask), _size(ctx, x))


def max_unpooling_backward(
    ctx: Context, x: jax.Array, *mask: jax.Array, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array | None, ...]:
    return numbers_at(dy, _mask(ctx, x, mask)), *(None for _ in mask)


def window_unpooling(ctx: Context, blobs: Arrays, x: jax.Array) -> tuple[jax.Array, Arrays]:
    """Each number is added to the cells of its window, divided by how many these are with AVE, as it is with TILE.

    The top of the pass before is not cleared: it is added, too. The gradient is divided with TILE as well.
    """
    window, size = _window(ctx, x), _size(ctx, x)
    shares = x
    if ctx.param.unpool == ctx.param.TILE:
        shares = x * areas_of(size, window, tuple(x.shape[2:]), x.dtype)
    like: Any = jax.ShapeDtypeStruct((*x.shape[:2], *size), x.dtype)
    top = (blobs[0] + pool_diff("AVE", like, shares, window, tuple(x.shape[2:]))).astype(x.dtype)
    return top, (jax.lax.stop_gradient(top).astype(blobs[0].dtype),)


def window_unpooling_params(ctx: Context, x: Any) -> list[ParamSpec]:
    return [ParamSpec((*x.shape[:2], *_size(ctx, x)), learnable=False, persistent=False)]


def window_unpooling_backward(
    ctx: Context, blobs: Arrays, x: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[tuple[None], jax.Array]:
    return (None,), average_windows(dy, _window(ctx, x), tuple(x.shape[2:]))


_MAX = LayerType(
    Signature("Unpooling", bottoms=(1, 2), param="unpooling_param", in_place=False),
    Traced(max_unpooling),
    Gradient(
        max_unpooling_backward,
        overrides_autodiff=True,
        indices=Indices(
            (1,), lambda ctx, x, *mask: _size(ctx, x)[0] * _size(ctx, x)[1], gathers=True, ignores_gradient=True
        ),
        exempt_from_force_backward=(1,),
    ),
    LayerTraits(row_wise=True, dtype_policy="bottoms"),
    docs=LayerDocs(origin="DeconvNet"),
)
_WINDOWS = LayerType(
    Signature("Unpooling", param="unpooling_param", in_place=False),
    Traced(window_unpooling, params=window_unpooling_params, stateful=True),
    Gradient(window_unpooling_backward, overrides_autodiff=True),
    docs=LayerDocs(
        origin="DeconvNet", unsupported={"symbolic_batch": "the top of the pass before is kept, for a number of rows"}
    ),
)
register(
    LayerType(
        Signature("Unpooling", bottoms=(1, 2), param="unpooling_param", in_place=False, aliases=("UnPooling",)),
        Variants(
            lambda layer: "MAX" if layer.unpooling_param.unpool == layer.unpooling_param.MAX else "AVE, TILE",
            {"MAX": _MAX, "AVE, TILE": _WINDOWS},
            "They are told apart by the method `unpool`.",
        ),
        docs=LayerDocs(origin="DeconvNet"),
    )
)


def _size(ctx: Context, x: Any) -> Shape:
    p = ctx.param
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not {x.shape}")
    size = window_pair(p, "unpool_size", "unpool_h", "unpool_w")
    require(min(size) > 0, f"unpool_size must be positive: {size}")
    return size


def _window(ctx: Context, x: Any) -> Window:
    p, size = ctx.param, _size(ctx, x)
    kernel = window_pair(p, "kernel_size", "kernel_h", "kernel_w")
    stride, pad = window_pair(p, "stride", "stride_h", "stride_w"), window_pair(p, "pad", "pad_h", "pad_w")
    require(min(kernel) > 0 and min(stride) > 0, f"kernel and stride must be positive: {kernel} and {stride}")
    require(all(a < k for a, k in zip(pad, kernel, strict=True)), f"pad {pad} must be less than kernel {kernel}")
    last = [(n - 1) * s - a for n, s, a in zip(x.shape[2:], stride, pad, strict=True)]
    require(
        all(at < n for at, n in zip(last, size, strict=True)),
        f"the last window would start at {tuple(last)}, outside of the top of {size}: give a larger unpool_size",
    )
    inside = tuple(min(k, n + 2 * a) for k, n, a in zip(kernel, size, pad, strict=True))  # all that a window can cover
    return Window.symmetric(inside, stride, pad)


def _mask(ctx: Context, x: jax.Array, mask: tuple[jax.Array, ...]) -> jax.Array:
    if mask:
        return mask[0]
    window, (_, width) = _window(ctx, x), _size(ctx, x)
    rows, columns = (
        jnp.maximum(jnp.arange(n) * s - a, 0) for n, s, a in zip(x.shape[2:], window.stride, window.low, strict=True)
    )
    return jnp.broadcast_to(rows[:, None] * width + columns, x.shape)
