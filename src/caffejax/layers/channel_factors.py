"""Factors for whole channels, or all channels of a pixel, from another bottom: Axpy and ChannelScale."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..errors import require
from .axes import four_axes
from .context import Context
from .dtypes import promote
from .registry import register
from .types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced


def axpy(ctx: Context, a: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """a * x + y, where `a` has one factor for each channel of each item: (num, channels) or (num, channels, 1, 1)."""
    return (_factors(a, x, y) * x + y).astype(x.dtype)


def axpy_backward(
    ctx: Context, a: jax.Array, x: jax.Array, added: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    da = jnp.sum(promote(dy) * x, axis=tuple(range(2, x.ndim)))
    return da.reshape(a.shape), _factors(a, x, added) * dy, dy


register(
    LayerType(
        Signature("Axpy", bottoms=3),
        Traced(axpy),
        Gradient(axpy_backward),
        LayerTraits(row_wise=True, dtype_policy="bottoms", spatial_map="same"),
        docs=LayerDocs(origin="SENet"),
    )
)


def _factors(a: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    require(len(x.shape) >= 2, f"bottom 1 needs a channel axis (axis 1), not shape {x.shape}")
    require(x.shape == y.shape, f"bottoms 1 and 2 must have one shape: {x.shape} and {y.shape}")
    require(
        a.shape[:2] == x.shape[:2] and all(n == 1 for n in a.shape[2:]),
        f"bottom 0 must hold a factor for each channel, {x.shape[:2]}, not have shape {a.shape}",
    )
    return a.reshape(*x.shape[:2], *(1,) * (x.ndim - 2))


def channel_scale(ctx: Context, x: jax.Array, scale: jax.Array) -> jax.Array:
    """All channels of a pixel times that pixel of the second bottom, which has one channel."""
    return (x * _by_pixel(ctx, x, scale)).astype(x.dtype)


def channel_scale_backward(
    ctx: Context, x: jax.Array, scale: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    d_scale = jnp.sum(promote(dy) * x, axis=1)
    return dy * _by_pixel(ctx, x, scale), d_scale.reshape(scale.shape)


register(
    LayerType(
        Signature("ChannelScale", bottoms=2, param="channel_scale_param"),
        Traced(channel_scale),
        Gradient(channel_scale_backward),
        LayerTraits(row_wise=True, dtype_policy="bottoms", spatial_map="same"),
        docs=LayerDocs(
            origin="caffe-windows", restrictions="No `global_scale`; forward and both gradients are always computed."
        ),
    )
)


def _by_pixel(ctx: Context, x: jax.Array, scale: jax.Array) -> jax.Array:
    p = ctx.param
    require(not p.global_scale, "global_scale is not supported")
    for field in ("do_forward", "do_backward_feature", "do_backward_scale"):
        require(getattr(p, field), f"{field}: false is not supported")
    num, _, height, width = four_axes(x.shape)
    require(
        four_axes(scale.shape, "bottom 1") == (num, 1, height, width),
        f"bottom 1 must have one channel and else bottom 0's shape {x.shape}, not {scale.shape}",
    )
    return scale.reshape(x.shape[0], *(1,) * (x.ndim > 1), *x.shape[2:])
