"""Reverse and Flip: axes from the other end."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..errors import require
from .axes import canonical_axis
from .context import Context, Shape
from .registry import register
from .types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced


def reverse(ctx: Context, x: jax.Array) -> jax.Array:
    """The bottom back to front along each `axis`, by default along the first: in CTPN, that of time."""
    return jnp.flip(x, reversed_axes(ctx, x.shape))


def reverse_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return jnp.flip(dy, reversed_axes(ctx, x.shape))


def reverses_within_rows(ctx: Context) -> bool:
    return bool(ctx.param.axis) and all(axis > 0 for axis in ctx.param.axis)


register(
    LayerType(
        Signature("Reverse", param="reverse_param", in_place=False),
        Traced(reverse),
        Gradient(reverse_backward),
        LayerTraits(
            row_wise=reverses_within_rows, data_movement="whole", dtype_policy="bottoms", accepts_integers=True
        ),
        docs=LayerDocs(origin="CTPN"),
    )
)


def reversed_axes(ctx: Context, shape: Shape) -> tuple[int, ...]:
    """Return the axes that Reverse turns round."""
    axes = tuple(canonical_axis(axis, shape) for axis in ctx.param.axis) or (canonical_axis(0, shape),)
    require(len(set(axes)) == len(axes), f"reverse_param names an axis twice: {list(ctx.param.axis)}")
    return axes


def flip(ctx: Context, x: jax.Array) -> jax.Array:
    """Images mirrored left to right (unless flip_width is false) and, with flip_height, upside down."""
    return jnp.flip(x, flipped_axes(ctx, x.shape))


def flip_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return jnp.flip(dy, flipped_axes(ctx, x.shape))


register(
    LayerType(
        Signature("Flip", param="flip_param", in_place=False),
        Traced(flip),
        Gradient(flip_backward),
        LayerTraits(row_wise=True, data_movement="whole", dtype_policy="bottoms", accepts_integers=True),
        docs=LayerDocs(origin="caffe-windows"),
    )
)


def flipped_axes(ctx: Context, shape: Shape) -> tuple[int, ...]:
    """Return the axes that Flip turns round."""
    require(len(shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not {shape}")
    return tuple(axis for axis, flipped in ((2, ctx.param.flip_height), (3, ctx.param.flip_width)) if flipped)
