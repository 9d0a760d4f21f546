"""MaskPooling: each region's features times its mask."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ...errors import require
from ..context import Context
from ..dtypes import promote
from ..registry import register
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced


def mask_pooling(ctx: Context, data: jax.Array, mask: jax.Array) -> jax.Array:
    """Bottom 0, N x C x H x W, times bottom 1, N x 1 x H x W, in every channel."""
    expected = (*data.shape[:1], 1, *data.shape[2:])
    require(len(data.shape) == 4, f"bottom 0 must be N x C x H x W, not of shape {data.shape}")
    require(mask.shape == expected, f"the masks, bottom 1, must have shape {expected}, not {mask.shape}")
    return data * mask


def mask_pooling_backward(
    ctx: Context, data: jax.Array, mask: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    return dy * mask, jnp.sum(promote(dy) * promote(data), axis=1, keepdims=True)


register(
    LayerType(
        Signature("MaskPooling", bottoms=2, in_place=False),
        Traced(mask_pooling),
        Gradient(mask_pooling_backward),
        LayerTraits(row_wise=True, dtype_policy="bottoms", spatial_map="same"),
        docs=LayerDocs(origin="MNC"),
    )
)
