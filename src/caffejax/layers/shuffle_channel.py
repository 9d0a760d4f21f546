"""ShuffleChannel: channels of groups, dealt out one from each group in turn."""

from __future__ import annotations

import jax

from ..errors import require
from .context import Context
from .registry import register
from .types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced


def shuffle_channel(ctx: Context, x: jax.Array) -> jax.Array:
    """Channels (group, channels / group) transposed to (channels / group, group)."""
    return _transposed(x, *_groups(ctx, x))


def shuffle_channel_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    groups, each = _groups(ctx, x)
    return _transposed(dy, each, groups)


register(
    LayerType(
        Signature("ShuffleChannel", param="shuffle_channel_param"),
        Traced(shuffle_channel),
        Gradient(shuffle_channel_backward),
        LayerTraits(
            row_wise=True, data_movement="whole", dtype_policy="bottoms", accepts_integers=True, spatial_map="same"
        ),
        docs=LayerDocs(origin="ShuffleNet"),
    )
)


def _groups(ctx: Context, x: jax.Array) -> tuple[int, int]:
    require(len(x.shape) >= 2, f"needs a bottom with a channel axis (axis 1), not shape {x.shape}")
    group, channels = ctx.param.group, x.shape[1]
    require(group > 0, "group must be positive")
    require(channels % group == 0, f"channels {channels} must be a multiple of group {group}")
    return group, channels // group


def _transposed(x: jax.Array, outer: int, inner: int) -> jax.Array:
    return x.reshape(x.shape[0], outer, inner, *x.shape[2:]).swapaxes(1, 2).reshape(x.shape)
