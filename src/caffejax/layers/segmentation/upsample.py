"""Upsample: planes made larger by whole factors; of SegNet, to the places of maxima, and of YOLO, by repetition."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from ..context import Context, Shape
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerTraits, LayerType, Signature, Traced, Variants
from .placing import numbers_at, placed


def upsample_placed(ctx: Context, x: jax.Array, mask: jax.Array) -> jax.Array:
    """Each number goes to the place in the top's plane that the mask, Pooling's second top, has for it; others are 0.

    Of several at one place the last stays; each of them gets the gradient there. A place outside gives NaN.
    """
    return placed(x, mask, _placed_size(ctx, x))


def upsample_placed_backward(
    ctx: Context, x: jax.Array, mask: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    return numbers_at(dy, mask), None


def upsample_repeated(ctx: Context, x: jax.Array) -> jax.Array:
    """Each number repeated `scale` times, 1 by default, along height and width."""
    n = _scale(ctx, x)
    return jnp.repeat(jnp.repeat(x, n, axis=2), n, axis=3) if n > 1 else x


def upsample_repeated_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    n, (height, width) = _scale(ctx, x), x.shape[2:]
    return jnp.sum(dy.reshape(*x.shape[:2], height, n, width, n), axis=(3, 5))


_SEGNET = LayerType(
    Signature("Upsample", bottoms=2, param="upsample_param", in_place=False),
    Traced(upsample_placed),
    Gradient(
        upsample_placed_backward,
        overrides_autodiff=True,
        indices=Indices((1,), lambda ctx, x, mask: _cells(_placed_size(ctx, x)), gathers=True, ignores_gradient=True),
        exempt_from_force_backward=(1,),
    ),
    LayerTraits(row_wise=True, dtype_policy="bottoms"),
    docs=LayerDocs(origin="SegNet, ENet"),
)
_YOLO = LayerType(
    Signature("Upsample", param="upsample_param", in_place=False),
    Traced(upsample_repeated),
    Gradient(upsample_repeated_backward),
    LayerTraits(row_wise=True, dtype_policy="bottoms", accepts_integers=True),
    docs=LayerDocs(origin="MobileNet-YOLO"),
)
register(
    LayerType(
        Signature("Upsample", bottoms=(1, 2), param="upsample_param", in_place=False),
        Variants(
            lambda layer: "SegNet" if len(layer.bottom) == 2 else "MobileNet-YOLO",
            {"SegNet": _SEGNET, "MobileNet-YOLO": _YOLO},
            "SegNet's has a mask for a second bottom.",
        ),
        docs=LayerDocs(origin="SegNet, MobileNet-YOLO"),
    )
)


def _placed_size(ctx: Context, x: Any) -> Shape:
    p = ctx.param
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not {x.shape}")
    if p.HasField("upsample_h") and p.HasField("upsample_w"):
        size = (p.upsample_h, p.upsample_w)
    else:
        require(
            p.HasField("scale_h") == p.HasField("scale_w"),
            "give scale, or both of scale_h and scale_w, or both of upsample_h and upsample_w",
        )
        scales = (p.scale_h, p.scale_w) if p.HasField("scale_h") else (p.scale, p.scale)
        require(min(scales) > 1, f"scale must be more than 1, not {min(scales)}")
        pads = (p.pad_out_h, p.pad_out_w)
        require(all(s == 2 or not a for s, a in zip(scales, pads, strict=True)), "pad_out_h and pad_out_w need scale 2")
        size = tuple(n * s - a for n, s, a in zip(x.shape[2:], scales, pads, strict=True))
    require(min(size) > 1, f"the top must be larger than {size}")
    return size


def _cells(size: Shape) -> int:
    return size[0] * size[1]


def _scale(ctx: Context, x: Any) -> int:
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not {x.shape}")
    scale = ctx.param.scale if ctx.param.HasField("scale") else 1
    require(scale > 0, f"scale must be positive, not {scale}")
    return int(scale)
