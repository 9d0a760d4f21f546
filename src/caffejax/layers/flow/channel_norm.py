"""ChannelNorm: the length of the vector that each place holds."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ...errors import require
from ..context import Context
from ..dtypes import promote
from ..registry import register
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced

_SOFTENING = 1e-9


def channel_norm(ctx: Context, x: jax.Array) -> jax.Array:
    """Root of the sum of squares over the channels: (N, C, height, width) to (N, 1, height, width).

    The gradient divides by the root plus 1e-9, and is 0 where all channels are.
    """
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (number, channels, height, width), not {x.shape}")
    return jnp.sqrt(jnp.sum(jnp.square(promote(x)), axis=1, keepdims=True)).astype(x.dtype)


def channel_norm_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    squares = jnp.sum(jnp.square(promote(x)), axis=1, keepdims=True)
    some = squares > 0  # at 0 the root's own derivative, for second derivatives, is infinite
    return jnp.where(some, dy * x / (jnp.sqrt(jnp.where(some, squares, 1)) + _SOFTENING), 0)


register(
    LayerType(
        Signature("ChannelNorm", in_place=False),
        Traced(channel_norm),
        Gradient(channel_norm_backward, overrides_autodiff=True),
        LayerTraits(row_wise=True, dtype_policy="bottoms", spatial_map="same"),
        docs=LayerDocs(origin="FlowNet 2"),
    )
)
