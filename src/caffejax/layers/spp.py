"""SPP: spatial pyramid pooling."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ..errors import require
from ..kernels.window import Window
from .context import Context, Shape
from .pooling import check_steps, check_window, pool, pool_diff, pool_method, pooled_size
from .registry import register
from .types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced


def spp(ctx: Context, x: jax.Array) -> jax.Array:
    """Pooling into 1 x 1, 2 x 2, 4 x 4 ... bins, `pyramid_height` levels, side by side in a row for each item.

    Planes that do not divide into the bins are padded on both sides. With one level the top keeps four axes.
    """
    tops = [
        pool(pool_method(ctx.param), x, window, out, _key(ctx, level))
        for level, (window, out) in enumerate(_levels(ctx, x))
    ]
    return tops[0] if len(tops) == 1 else jnp.concatenate([t.reshape(x.shape[0], -1) for t in tops], axis=1)


def spp_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    dx, start = jnp.zeros_like(x), 0
    d_rows = dy.reshape(x.shape[0], -1)
    for level, (window, out) in enumerate(_levels(ctx, x)):
        end = start + x.shape[1] * math.prod(out)
        d_top = d_rows[:, start:end].reshape(*x.shape[:2], *out)
        dx += pool_diff(pool_method(ctx.param), x, d_top, window, out, _key(ctx, level))
        start = end
    return dx


register(
    LayerType(
        Signature("SPP", param="spp_param"),
        Traced(spp),
        Gradient(spp_backward),
        LayerTraits(dtype_policy="bottoms"),
        docs=LayerDocs(restrictions="STOCHASTIC only where the plane divides evenly, as in Caffe."),
    )
)


def _key(ctx: Context, level: int) -> jax.Array | None:
    random = ctx.training and pool_method(ctx.param) == "STOCHASTIC"
    return jax.random.fold_in(ctx.key, level) if random else None


def _levels(ctx: Context, x: Any) -> list[tuple[Window, Shape]]:
    """Return window and output size of each level."""
    height = ctx.param.pyramid_height
    require(height > 0, "pyramid_height must be given and positive")
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not {x.shape}")
    size = tuple(x.shape[2:])
    levels = max(size).bit_length()
    require(
        height <= levels, f"a plane of size {size} has no more than {levels} levels, but pyramid_height is {height}"
    )
    return [_level(pool_method(ctx.param), size, 2**level) for level in range(height)]


def _level(method: str, size: Shape, bins: int) -> tuple[Window, Shape]:
    kernel = tuple(math.ceil(n / bins) for n in size)
    pad = tuple((k * bins - n + 1) // 2 for k, n in zip(kernel, size, strict=True))
    window = Window.symmetric(kernel, kernel, pad)
    check_window(method, window)
    out = pooled_size(size, window, math.ceil)
    check_steps(method, window, out)
    return window, out
