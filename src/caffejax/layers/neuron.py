"""Neuron layers: one bottom, one top of the same shape, element by element."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ..errors import require
from ..schema.caffe_pb2 import FillerParameter
from .axes import four_axes
from .context import Blob, Context
from .precision import wide
from .registry import register

Arrays = tuple[jax.Array, ...]


@register("ReLU", param="relu_param", elementwise=True, floats="bottoms")
def relu(ctx: Context, x: jax.Array) -> jax.Array:
    """x where positive, else negative_slope * x. At 0 the gradient is the slope."""
    return jnp.where(x > 0, x, ctx.param.negative_slope * x)


@relu.backward
def _(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * ((x > 0) + ctx.param.negative_slope * (x <= 0)).astype(dy.dtype)


@register("PReLU", param="prelu_param", row_wise=True, floats="bottoms")
def prelu(ctx: Context, blobs: Arrays, x: jax.Array) -> jax.Array:
    """x where positive, else slope * x, with one learnable slope per channel, or one for all.

    At 0 the gradient is the slope, and the slope gets none.
    """
    return jnp.where(x > 0, x, _by_channel(blobs[0], x) * x).astype(x.dtype)


@prelu.blobs
def _(ctx: Context, x: Any) -> list[Blob]:
    p = ctx.param
    require(len(x.shape) >= 2, f"needs a bottom with a channel axis (axis 1), not shape {x.shape}")
    _, channels, _, _ = four_axes(x.shape)
    filler = p.filler if p.HasField("filler") else FillerParameter(type="constant", value=0.25)
    return [Blob(() if p.channel_shared else (channels,), filler)]


@prelu.backward
def _(ctx: Context, blobs: Arrays, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> tuple[Arrays, jax.Array]:
    slope = blobs[0]
    per_element = jnp.where(x > 0, 0, wide(dy) * x)
    d_slope = jnp.sum(per_element, axis=[k for k in range(x.ndim) if k != 1 or slope.ndim == 0])
    return (d_slope,), dy * ((x > 0) + _by_channel(slope, x) * (x <= 0))


def _by_channel(slope: jax.Array, x: jax.Array) -> jax.Array:
    return slope.reshape(*slope.shape, *(1,) * (x.ndim - 2))


@register("ELU", param="elu_param", elementwise=True, floats="bottoms")
def elu(ctx: Context, x: jax.Array) -> jax.Array:
    """x where positive, else alpha * (exp(x) - 1). At 0 the gradient is alpha."""
    below = jnp.where(x > 0, 0, x)  # an overflow in the branch not taken would reach the gradient
    return jnp.where(x > 0, x, ctx.param.alpha * jnp.expm1(below))


@elu.backward
def _(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * jnp.where(x > 0, 1, y + ctx.param.alpha)


@register("Sigmoid", param="sigmoid_param", elementwise=True, floats="bottoms")
def sigmoid(ctx: Context, x: jax.Array) -> jax.Array:
    """1 / (1 + exp(-x))."""
    return jax.nn.sigmoid(x)


@sigmoid.backward
def _(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * y * (1 - y)


@register("TanH", param="tanh_param", elementwise=True, floats="bottoms")
def tanh(ctx: Context, x: jax.Array) -> jax.Array:
    """The hyperbolic tangent."""
    return jnp.tanh(x)


@tanh.backward
def _(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * (1 - y * y)


@register("Swish", param="swish_param", elementwise=True, floats="bottoms")
def swish(ctx: Context, x: jax.Array) -> jax.Array:
    """x * sigmoid(beta * x)."""
    return x * jax.nn.sigmoid(ctx.param.beta * x)


@swish.backward
def _(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    beta = ctx.param.beta
    return dy * (beta * y + jax.nn.sigmoid(beta * x) * (1 - beta * y))


@register("BNLL", elementwise=True)
def bnll(ctx: Context, x: jax.Array) -> jax.Array:
    """log(1 + exp(x)), without overflow."""
    return jax.nn.softplus(x)


@bnll.backward
def _(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * -jnp.expm1(-y)  # 1 - 1 / (1 + exp(x))


@register("AbsVal", in_place=False, elementwise=True, floats="bottoms")
def absval(ctx: Context, x: jax.Array) -> jax.Array:
    """|x|. At 0 the gradient is 0."""
    return jnp.sign(x) * x


@absval.backward
def _(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * ((x > 0).astype(dy.dtype) - (x < 0).astype(dy.dtype))


@register("Clip", param="clip_param", elementwise=True, floats="bottoms")
def clip(ctx: Context, x: jax.Array) -> jax.Array:
    """x held between min and max. On both bounds the gradient passes."""
    p = ctx.param
    require(p.HasField("min") and p.HasField("max"), "clip_param must give min and max")
    # the maximum last: it wins where min > max
    bounded = jnp.maximum(jnp.minimum(x, p.max), p.min)
    return jnp.where(_inside(p, x), x, jax.lax.stop_gradient(bounded))


@clip.backward
def _(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return jnp.where(_inside(ctx.param, x), dy, 0)


def _inside(p: Any, x: jax.Array) -> jax.Array:
    return (x >= p.min) & (x <= p.max)


@register("Threshold", param="threshold_param", elementwise=True, differentiable=False)
def threshold(ctx: Context, x: jax.Array) -> jax.Array:
    """1 where x is strictly above the threshold, else 0. There is no gradient to ask for."""
    return (x > ctx.param.threshold).astype(x.dtype)


@register("Power", param="power_param", elementwise=True)
def power(ctx: Context, x: jax.Array) -> jax.Array:
    """(shift + scale * x) ** power. With scale or power 0 a constant, whatever x is."""
    p = ctx.param
    if p.power == 0:
        return jnp.ones_like(x)
    inner = _affine(p, x) if p.scale else jnp.full_like(x, p.shift)
    return inner if p.power == 1 else inner**p.power


@power.backward
def _(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array | None:
    p = ctx.param
    if p.power * p.scale == 0:
        return None
    if p.power == 1:
        return dy * p.scale
    return dy * (p.power * p.scale) * _affine(p, x) ** (p.power - 1)


@register("Exp", param="exp_param", elementwise=True)
def exp(ctx: Context, x: jax.Array) -> jax.Array:
    """base ** (shift + scale * x); base -1 stands for e."""
    return jnp.exp(_log_base(ctx.param) * _affine(ctx.param, x))


@exp.backward
def _(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * y * (_log_base(ctx.param) * ctx.param.scale)


@register("Log", param="log_param", elementwise=True)
def log(ctx: Context, x: jax.Array) -> jax.Array:
    """The logarithm of shift + scale * x to a base; base -1 stands for e."""
    require(ctx.param.base != 1, "there is no logarithm to base 1")
    return jnp.log(_affine(ctx.param, x)) / _log_base(ctx.param)


@log.backward
def _(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    p = ctx.param
    return dy * (p.scale / _log_base(p)) / _affine(p, x)


def _affine(p: Any, x: jax.Array) -> jax.Array:
    return p.scale * x + p.shift


def _log_base(p: Any) -> float:
    require(p.base == -1 or 0 < p.base < math.inf, f"base must be positive, or -1 for e, not {p.base:g}")
    return 1.0 if p.base == -1 else math.log(p.base)


@register("Dropout", param="dropout_param", row_wise=True, floats="bottoms")
def dropout(ctx: Context, x: jax.Array) -> jax.Array:
    """In TRAIN, zero with probability dropout_ratio and the rest scaled up; the identity in TEST."""
    return x * _dropout_mask(ctx, x) if ctx.training else x


@dropout.backward
def _(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * _dropout_mask(ctx, x) if ctx.training else dy


def _dropout_mask(ctx: Context, x: jax.Array) -> jax.Array:
    ratio = ctx.param.dropout_ratio
    require(0 <= ratio < 1, f"dropout_ratio must be at least 0 and less than 1, not {ratio:g}")
    keep = jax.random.bernoulli(ctx.key, 1 - ratio, x.shape)
    return keep.astype(x.dtype) / (1 - ratio)
