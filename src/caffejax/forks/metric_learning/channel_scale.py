"""caffe-windows' ChannelScale, which scales all channels of a position by one factor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import require
from ...core.layers import cross_replica
from ...core.layers.context import Context, Params, ParamSpec
from ...core.layers.declaration import declare
from ...core.layers.dtype_policy import promote
from ...core.layers.helpers import as_nchw, first_top
from ...core.layers.registry import add_type
from ...core.layers.types import Variants


@declare(
    "ChannelScale",
    bottoms=2,
    tops=(1, 2),
    param="channel_scale_param",
    row_wise=True,
    dtype_policy="bottoms",
    spatial_map="same",
    origin="caffe-windows",
    restrictions="init_global_scale is ignored, as in the fork.",
)
def channel_scale(x: jax.Array, scale: jax.Array, *, num_tops: int) -> jax.Array:
    """Multiply each channel of x (N, C, H, W) by bottom 1, (N, 1, H, W). The top has the shape of x."""
    require(num_tops == 1, "must not have a second top without global_scale: true")
    return (x * _broadcast_scale(x, scale)).astype(x.dtype)


@channel_scale.backward
def channel_scale_backward(
    x: jax.Array, scale: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    return dy * _broadcast_scale(x, scale), _sum_scale_diff(x, scale, dy)


@channel_scale.variant(
    stateful=True,
    row_wise=False,
    overrides_autodiff=True,
    deviation="Gradients are computed for the product with bottom 1, whatever the top is.",
    origin=channel_scale.type.docs.origin,
    restrictions=channel_scale.type.docs.restrictions,
)
def configurable_channel_scale(
    p: Any, x: jax.Array, scale: jax.Array, *, state: Params, ctx: Context
) -> tuple[Any, Params]:
    """Apply ChannelScale with `global_scale`, or with the product omitted in the forward or the backward pass.

    With `global_scale`, x is multiplied by one number, which is the blob (1,) and the optional second top. In TRAIN the
    blob is first moved by 1 % towards the mean absolute value of bottom 1 (or set to this mean if the blob is
    negative), and then clamped to [min_global_scale, max_global_scale]. Without `do_forward` the top is x. The
    gradients are the gradients of the product with bottom 1, with two exceptions: without `do_backward_feature` the
    gradient of x is the gradient of the top, and without `do_backward_scale` the gradient of bottom 1 is 0.
    """
    factors = _broadcast_scale(x, scale)
    require(ctx.num_tops == 1 or p.global_scale, "must not have a second top without global_scale: true")
    if state and ctx.training and p.do_forward:
        mean_magnitude = cross_replica.pmean(ctx, jnp.mean(jnp.abs(promote(scale))))
        new_scale = jnp.where(state["scale"] < 0, mean_magnitude, 0.99 * state["scale"] + 0.01 * mean_magnitude)
        state = {"scale": jnp.clip(new_scale, p.min_global_scale, p.max_global_scale)}
    top = (x * (state["scale"][0] if state else factors) if p.do_forward else x).astype(x.dtype)
    return (top if ctx.num_tops == 1 else (top, *state.values())), state


@configurable_channel_scale.params
def configurable_channel_scale_params(p: Any, x: Any, scale: Any) -> list[ParamSpec]:
    require(
        p.min_global_scale <= p.max_global_scale,
        f"min_global_scale {p.min_global_scale:g} must be at most max_global_scale {p.max_global_scale:g}",
    )
    return [ParamSpec((1,), learnable=False, value=np.array([-1], np.float32), name="scale")] if p.global_scale else []


@configurable_channel_scale.backward
def configurable_channel_scale_backward(p: Any, x: jax.Array, scale: jax.Array, *, y: Any, dy: Any) -> tuple[Any, ...]:
    d_top = first_top(dy)
    dx = d_top * _broadcast_scale(x, scale) if p.do_backward_feature else d_top
    d_scale = _sum_scale_diff(x, scale, d_top) if p.do_backward_scale else jnp.zeros_like(scale)
    return dx, d_scale


def _channel_scale_variant(layer: Any) -> str:
    p = layer.channel_scale_param
    is_product = p.do_forward and p.do_backward_feature and p.do_backward_scale and not p.global_scale
    return "product" if is_product else "by settings"


add_type(
    replace(
        channel_scale.type,
        implementation=Variants(
            _channel_scale_variant,
            {"product": channel_scale.type, "by settings": configurable_channel_scale.type},
            "Settings that differ from the defaults select the second variant.",
        ),
    ),
    __name__,
)


def _broadcast_scale(x: jax.Array, scale: jax.Array) -> jax.Array:
    num, _, height, width = as_nchw(x.shape)
    require(
        as_nchw(scale.shape, "bottom 1") == (num, 1, height, width),
        f"bottom 1 must have shape {(num, 1, height, width)} to match bottom 0, {x.shape}, not {scale.shape}",
    )
    return scale.reshape(x.shape[0], *(1,) * (x.ndim > 1), *x.shape[2:])


def _sum_scale_diff(x: jax.Array, scale: jax.Array, dy: jax.Array) -> jax.Array:
    return jnp.sum(promote(dy) * x, axis=1).reshape(scale.shape)
