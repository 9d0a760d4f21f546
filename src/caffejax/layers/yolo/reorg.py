"""Reorg: pixels of a block into channels, in the order of darknet."""

from __future__ import annotations

import jax

from ...errors import require
from ..context import Context
from ..registry import register
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced


def reorg(ctx: Context, x: jax.Array) -> jax.Array:
    """(N, C, H, W) as (N, C s^2, H/s, W/s) in darknet's order, s being `stride`; with `reverse`, (N, C/s^2, sH, sW).

    Darknet reads the numbers of an image as if they were C/s^2 x sH x sW, takes blocks of s x s of these apart, and
    writes each place of a block as C/s^2 planes: not plainly space to depth.
    """
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (images, channels, height, width), not shape {x.shape}")
    s, (n, channels, height, width) = ctx.param.stride, x.shape
    require(s > 0, "needs reorg_param.stride, 1 or more")
    require(channels % (s * s) == 0, f"needs channels that stride^2 = {s * s} divides, not shape {x.shape}")
    if ctx.param.reverse:
        return _moved(x, s, together=True).reshape(n, channels // (s * s), height * s, width * s)
    require(
        height % s == 0 and width % s == 0, f"needs height and width that stride = {s} divides, not shape {x.shape}"
    )
    return _moved(x, s, together=False).reshape(n, channels * s * s, height // s, width // s)


def reorg_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return _moved(dy.reshape(x.shape), ctx.param.stride, together=not ctx.param.reverse)


register(
    LayerType(
        Signature("Reorg", param="reorg_param", in_place=False),
        Traced(reorg),
        Gradient(reorg_backward),
        LayerTraits(row_wise=True, dtype_policy="bottoms", data_movement="whole"),
        docs=LayerDocs(origin="MobileNet-YOLO"),
    )
)


def _moved(x: jax.Array, s: int, together: bool) -> jax.Array:
    """Return x with the numbers of each image in their new order, in x's shape."""
    n, channels, height, width = x.shape
    planes = channels // (s * s)
    if together:
        return x.reshape(n, s, s, planes, height, width).transpose(0, 3, 4, 1, 5, 2).reshape(x.shape)
    return x.reshape(n, planes, height, s, width, s).transpose(0, 3, 5, 1, 2, 4).reshape(x.shape)
