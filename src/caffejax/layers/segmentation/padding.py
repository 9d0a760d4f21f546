"""Padding: rows and columns added to the plane, or cut off."""

from __future__ import annotations

import jax
from jax import lax

from ...errors import require
from ..context import Context
from ..registry import register
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced


def padding(ctx: Context, x: jax.Array) -> jax.Array:
    """pad_beg rows and columns of zeros before the plane and pad_end after it; negative numbers cut off as many."""
    return _padded(x, *_ends(ctx, x))


def padding_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    before, after = _ends(ctx, x)
    return _padded(dy, -before, -after)


register(
    LayerType(
        Signature("Padding", param="padding_param", in_place=False),
        Traced(padding),
        Gradient(padding_backward),
        LayerTraits(row_wise=True, dtype_policy="bottoms", accepts_integers=True),
        docs=LayerDocs(origin="DeepLab"),
    )
)


def _ends(ctx: Context, x: jax.Array) -> tuple[int, int]:
    before, after = ctx.param.pad_beg, ctx.param.pad_end
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not {x.shape}")
    left = [n + min(before, 0) + min(after, 0) for n in x.shape[2:]]
    require(min(left) > 0, f"pad_beg {before} and pad_end {after} leave nothing of the plane {x.shape[2:]}")
    return before, after


def _padded(x: jax.Array, before: int, after: int) -> jax.Array:
    return lax.pad(x, x.dtype.type(0), [(0, 0, 0)] * 2 + [(before, after, 0)] * 2)
