"""Neuron layers, which compute each element of the top from the same element of the bottom.

Caffe's rules: the files named after the types, such as relu_layer.cpp.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ..ops import elementwise
from ..schema.caffe_pb2 import (
    ClipParameter,
    ELUParameter,
    ExpParameter,
    FillerParameter,
    LogParameter,
    PowerParameter,
    PReLUParameter,
    ReLUParameter,
    SwishParameter,
    ThresholdParameter,
)
from .context import ParamSpec
from .dtype_policy import promote
from .helpers import same_shape
from .layer_kinds import Function
from .registry import define_layer
from .types import Gradient, LayerDocs, LayerTraits, Signature, Traced

Arrays = tuple[jax.Array, ...]


def relu(p: ReLUParameter, x: jax.Array, *, fast: bool) -> jax.Array:
    """Return x where x > 0, else negative_slope * x. At 0 the gradient is the slope."""
    if fast and p.negative_slope == 0:
        return elementwise.relu(x)
    slope = p.negative_slope
    return jnp.where(x <= 0, slope * x if slope else 0, x)  # 0 * x would be -0 where Caffe has 0; NaN remains NaN


def relu_backward(p: ReLUParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * ((x > 0) + p.negative_slope * (x <= 0)).astype(dy.dtype)


define_layer(
    Signature("ReLU", param="relu_param"),
    Traced(relu, top_shapes=same_shape),
    Gradient(relu_backward),
    LayerTraits(is_relu=lambda p: p.negative_slope == 0, elementwise=True, dtype_policy="bottoms"),
)


def prelu(blobs: Arrays, x: jax.Array) -> jax.Array:
    """Return x where x > 0, else slope * x, with one learnable slope per channel, or one for all (`channel_shared`).

    Bottom and top: (N, C, ...). Blob: slope (C,) or (). At 0 the gradient of x is the slope, and the gradient of the
    slope is 0.
    """
    return jnp.where(x > 0, x, _broadcast_channels(blobs[0], x) * x).astype(x.dtype)


def prelu_params(p: PReLUParameter, x: Any) -> list[ParamSpec]:
    require(len(x.shape) >= 2, f"needs a bottom with a channel axis (axis 1), not shape {x.shape}")
    channels = x.shape[1]
    filler = p.filler if p.HasField("filler") else FillerParameter(type="constant", value=0.25)
    return [ParamSpec(() if p.channel_shared else (channels,), filler, name="slope")]


def prelu_backward(blobs: Arrays, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> tuple[Arrays, jax.Array]:
    slope = blobs[0]
    element_diffs = jnp.where(x > 0, 0, promote(dy) * x)
    d_slope = jnp.sum(element_diffs, axis=[k for k in range(x.ndim) if k != 1 or slope.ndim == 0])
    return (d_slope,), dy * ((x > 0) + _broadcast_channels(slope, x) * (x <= 0))


define_layer(
    Signature("PReLU", param="prelu_param"),
    Traced(prelu, params=prelu_params, top_shapes=same_shape),
    Gradient(prelu_backward),
    LayerTraits(row_wise=True, dtype_policy="bottoms", spatial_map="same"),
)


def _broadcast_channels(slope: jax.Array, x: jax.Array) -> jax.Array:
    return slope.reshape(*slope.shape, *(1,) * (x.ndim - 2))


def define_elementwise(
    name: str, forward: Function, backward: Function, *, origin: str = LayerDocs.origin, **signature: Any
) -> None:
    """Register an element-wise type by its name and functions; `signature` has further attributes of `Signature`."""
    define_layer(
        Signature(name, **signature),
        Traced(forward, top_shapes=same_shape),
        Gradient(backward),
        LayerTraits(elementwise=True, dtype_policy="bottoms"),
        LayerDocs(origin),
    )


def elu(p: ELUParameter, x: jax.Array) -> jax.Array:
    """Return x where x > 0, else alpha * (exp(x) - 1). At 0 the gradient is alpha."""
    negative_part = jnp.where(x > 0, 0, x)  # the gradient would be NaN if the branch that is not selected overflowed
    return jnp.where(x > 0, x, p.alpha * jnp.expm1(negative_part))


def elu_backward(p: ELUParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * jnp.where(x > 0, 1, y + p.alpha)


define_elementwise("ELU", elu, elu_backward, param="elu_param")


def sigmoid(x: jax.Array) -> jax.Array:
    """Return 1 / (1 + exp(-x))."""
    return jax.nn.sigmoid(x)


def sigmoid_backward(x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * y * (1 - y)


define_elementwise("Sigmoid", sigmoid, sigmoid_backward, param="sigmoid_param")


def tanh(x: jax.Array) -> jax.Array:
    """Return the hyperbolic tangent of x."""
    return jnp.tanh(x)


def tanh_backward(x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * (1 - y * y)


define_elementwise("TanH", tanh, tanh_backward, param="tanh_param")


def swish(p: SwishParameter, x: jax.Array) -> jax.Array:
    """Return x * sigmoid(beta * x)."""
    return x * jax.nn.sigmoid(p.beta * x)


def swish_backward(p: SwishParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    beta = p.beta
    return dy * (beta * y + jax.nn.sigmoid(beta * x) * (1 - beta * y))


define_elementwise("Swish", swish, swish_backward, param="swish_param")


def bnll(x: jax.Array) -> jax.Array:
    """Return log(1 + exp(x)), computed without overflow."""
    return jax.nn.softplus(x)


def bnll_backward(x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * -jnp.expm1(-y)  # 1 - 1 / (1 + exp(x))


define_layer(Signature("BNLL"), Traced(bnll), Gradient(bnll_backward), LayerTraits(elementwise=True))


def absval(x: jax.Array) -> jax.Array:
    """Return |x|. At 0 the gradient is 0."""
    return jnp.sign(x) * x


def absval_backward(x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * ((x > 0).astype(dy.dtype) - (x < 0).astype(dy.dtype))


define_elementwise("AbsVal", absval, absval_backward, in_place=False)


def clip(p: ClipParameter, x: jax.Array) -> jax.Array:
    """Clamp x to [min, max]. On both bounds the gradient is 1."""
    require(p.HasField("min") and p.HasField("max"), "clip_param must set min and max")
    # the maximum is applied last, so that min wins if min > max
    clamped_x = jnp.maximum(jnp.minimum(x, p.max), p.min)
    return jnp.where(_is_within_bounds(p, x), x, jax.lax.stop_gradient(clamped_x))


def clip_backward(p: ClipParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return jnp.where(_is_within_bounds(p, x), dy, 0)


define_layer(
    Signature("Clip", param="clip_param"),
    Traced(clip),
    Gradient(clip_backward),
    LayerTraits(elementwise=True, dtype_policy="bottoms"),
)


def _is_within_bounds(p: Any, x: jax.Array) -> jax.Array:
    return (x >= p.min) & (x <= p.max)


def threshold(p: ThresholdParameter, x: jax.Array) -> jax.Array:
    """Return 1 where x > threshold, else 0. Caffe defines no gradient."""
    return (x > p.threshold).astype(x.dtype)


define_layer(
    Signature("Threshold", param="threshold_param"),
    Traced(threshold),
    Gradient(exists=False),
    LayerTraits(elementwise=True),
)


def power(p: PowerParameter, x: jax.Array) -> jax.Array:
    """Return (shift + scale * x) ** power. If scale or power is 0, the top is constant."""
    if p.power == 0:
        return jnp.ones_like(x)
    base = _scale_and_shift(p, x) if p.scale else jnp.full_like(x, p.shift)
    return base if p.power == 1 else base**p.power


def power_backward(p: PowerParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array | None:
    if p.power * p.scale == 0:
        return None
    if p.power == 1:
        return dy * p.scale
    return dy * (p.power * p.scale) * _scale_and_shift(p, x) ** (p.power - 1)


define_layer(
    Signature("Power", param="power_param"),
    Traced(power, top_shapes=same_shape),
    Gradient(power_backward),
    LayerTraits(elementwise=True),
)


def exp(p: ExpParameter, x: jax.Array) -> jax.Array:
    """Return base ** (shift + scale * x), where base -1 means e."""
    return jnp.exp(ln_base(p) * _scale_and_shift(p, x))


def exp_backward(p: ExpParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * y * (ln_base(p) * p.scale)


define_layer(Signature("Exp", param="exp_param"), Traced(exp), Gradient(exp_backward), LayerTraits(elementwise=True))


def log(p: LogParameter, x: jax.Array) -> jax.Array:
    """Return the logarithm of shift + scale * x to `base`, where base -1 means e."""
    require(p.base != 1, "there is no logarithm to base 1; set a different base")
    return jnp.log(_scale_and_shift(p, x)) / ln_base(p)


def log_backward(p: LogParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * (p.scale / ln_base(p)) / _scale_and_shift(p, x)


define_layer(Signature("Log", param="log_param"), Traced(log), Gradient(log_backward), LayerTraits(elementwise=True))


def _scale_and_shift(p: Any, x: jax.Array) -> jax.Array:
    return p.scale * x + p.shift


def ln_base(p: Any) -> float:
    """Return the natural logarithm of the base.

    Raises:
        LayerError: if the base is neither -1 nor positive and finite.
    """
    require(p.base == -1 or 0 < p.base < math.inf, f"base must be positive, or -1 for e, not {p.base:g}")
    return 1.0 if p.base == -1 else math.log(p.base)
