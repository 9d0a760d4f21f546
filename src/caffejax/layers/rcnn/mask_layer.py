"""MNC's MaskLayer as it is in the TEST phase, a Python layer that is built in."""

from __future__ import annotations

import math

import jax

from ...errors import require
from ..context import Context
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced


def mask_layer(ctx: Context, masks: jax.Array) -> jax.Array:
    """Rows of size * size numbers as masks N x 1 x size x size."""
    side = math.isqrt(math.prod(masks.shape[1:]))
    require(
        side > 0 and side**2 == math.prod(masks.shape[1:]), f"rows must be square masks, not of shape {masks.shape}"
    )
    return masks.reshape(masks.shape[0], 1, side, side)


def mask_layer_backward(ctx: Context, masks: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy.reshape(masks.shape)


MASK_LAYER = LayerType(
    Signature("Python", param="python_param", in_place=False),
    Traced(mask_layer),
    Gradient(mask_layer_backward),
    LayerTraits(row_wise=True, dtype_policy="bottoms"),
    docs=LayerDocs(origin="MNC"),
)
