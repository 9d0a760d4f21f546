"""Neuron layers, which compute each element of the top from the same element of the bottom.

Caffe's rules: the files named after the types, such as relu_layer.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ...base.errors import require
from ..ops import elementwise
from ..schema.caffe_pb2 import (
    ClipParameter,
    FillerParameter,
    LogParameter,
    PowerParameter,
    PReLUParameter,
    ReLUParameter,
)
from .context import Arrays, Context, Params, ParamSpec
from .declaration import Declaration, register
from .dtype_policy import promote
from .helpers import same_shape


def register_elementwise(
    name: str, doc: str, function: Callable[..., Any], slope: Callable[..., Any] | None, **fields: Any
) -> Declaration[..., Any]:
    """Register an element-wise type.

    Args:
        name: Caffe's type name.
        doc: the description of the type.
        function: `function([p,] x)` returns the top.
        slope: `slope([p,] x, y)` returns the derivative at x, where the top is y. It is None if Caffe has none.
        fields: see `register`.
    """
    function.__doc__ = doc

    declaration = register(name, elementwise=True, top_shapes=same_shape, differentiable=slope is not None, **fields)(
        function
    )
    if slope is not None:

        def backward(x: Array, *, y: Array, dy: Array, ctx: Context) -> Array:
            return dy * jnp.asarray(ctx.call(slope, x, y), dy.dtype)

        declaration.backward(backward)

    return declaration


def _relu(p: ReLUParameter, x: Array, *, fast: bool) -> Array:
    if fast and p.negative_slope == 0:
        return elementwise.relu(x)
    slope = p.negative_slope
    return jnp.where(x <= 0, slope * x if slope else 0, x)  # 0 * x would be -0 where Caffe has 0; NaN remains NaN


relu = register_elementwise(
    "ReLU",
    "Return x where x > 0, else negative_slope * x. At 0 the gradient is the slope.",
    _relu,
    lambda p, x, y: (x > 0) + p.negative_slope * (x <= 0),
    param="relu_param",
    is_relu=lambda p: p.negative_slope == 0,
    dtype_policy="bottoms",
)
register_elementwise(
    "ELU",
    "Return x where x > 0, else alpha * (exp(x) - 1). At 0 the gradient is alpha.",
    # the gradient would be NaN if the branch that is not selected overflowed
    lambda p, x: jnp.where(x > 0, x, p.alpha * jnp.expm1(jnp.where(x > 0, 0, x))),
    lambda p, x, y: jnp.where(x > 0, 1, y + p.alpha),
    param="elu_param",
    dtype_policy="bottoms",
)
register_elementwise(
    "Sigmoid",
    "Return 1 / (1 + exp(-x)).",
    lambda x: jax.nn.sigmoid(x),
    lambda x, y: y * (1 - y),
    param="sigmoid_param",
    dtype_policy="bottoms",
)
register_elementwise(
    "TanH",
    "Return the hyperbolic tangent of x.",
    lambda x: jnp.tanh(x),
    lambda x, y: 1 - y * y,
    param="tanh_param",
    dtype_policy="bottoms",
)
register_elementwise(
    "Swish",
    "Return x * sigmoid(beta * x).",
    lambda p, x: x * jax.nn.sigmoid(p.beta * x),
    lambda p, x, y: p.beta * y + jax.nn.sigmoid(p.beta * x) * (1 - p.beta * y),
    param="swish_param",
    dtype_policy="bottoms",
)
register_elementwise(
    "BNLL",
    "Return log(1 + exp(x)), computed without overflow.",
    lambda x: jax.nn.softplus(x),
    lambda x, y: -jnp.expm1(-y),  # 1 - 1 / (1 + exp(x))
)
register_elementwise(
    "AbsVal",
    "Return |x|. At 0 the gradient is 0.",
    lambda x: jnp.sign(x) * x,
    lambda x, y: (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype),
    in_place=False,
    dtype_policy="bottoms",
)
register_elementwise(
    "Threshold",
    "Return 1 where x > threshold, else 0. Caffe defines no gradient.",
    lambda p, x: (x > p.threshold).astype(x.dtype),
    None,
    param="threshold_param",
)


def _clip(p: ClipParameter, x: Array) -> Array:
    # the maximum is applied last, so that min wins if min > max
    clamped_x = jnp.maximum(jnp.minimum(x, p.max), p.min)
    return jnp.where(_is_within_bounds(p, x), x, jax.lax.stop_gradient(clamped_x))


def _is_within_bounds(p: ClipParameter, x: Array) -> Array:
    return (x >= p.min) & (x <= p.max)


clip = register_elementwise(
    "Clip",
    "Clamp x to [min, max]. On both bounds the gradient is 1.",
    _clip,
    lambda p, x, y: _is_within_bounds(p, x),
    param="clip_param",
    dtype_policy="bottoms",
)


@clip.check
def check_clip(p: ClipParameter) -> None:
    require(p.HasField("min") and p.HasField("max"), "clip_param must set min and max")


def _power(p: PowerParameter, x: Array) -> Array:
    if p.power == 0:
        return jnp.ones_like(x)
    base = _scale_and_shift(p, x) if p.scale else jnp.full_like(x, p.shift)
    return base if p.power == 1 else base**p.power


def _power_slope(p: PowerParameter, x: Array, y: Array) -> Array | float:
    if p.power == 1 or p.power * p.scale == 0:
        return float(p.power * p.scale)
    return (p.power * p.scale) * _scale_and_shift(p, x) ** (p.power - 1)


def _scale_and_shift(p: Any, x: Array) -> Array:
    return p.scale * x + p.shift


register_elementwise(
    "Power",
    "Return (shift + scale * x) ** power. If scale or power is 0, the top is constant.",
    _power,
    _power_slope,
    param="power_param",
)


def ln_base(p: Any) -> float:
    """Return the natural logarithm of the base of an ExpParameter or LogParameter.

    Raises:
        LayerError: if the base is neither -1 nor positive and finite.
    """
    require(p.base == -1 or 0 < p.base < math.inf, f"base must be positive, or -1 for e, not {p.base:g}")
    return 1.0 if p.base == -1 else math.log(p.base)


register_elementwise(
    "Exp",
    "Return base ** (shift + scale * x), where base -1 means e.",
    lambda p, x: jnp.exp(ln_base(p) * _scale_and_shift(p, x)),
    lambda p, x, y: y * (ln_base(p) * p.scale),
    param="exp_param",
    check=ln_base,
)
log = register_elementwise(
    "Log",
    "Return the logarithm of shift + scale * x to `base`, where base -1 means e.",
    lambda p, x: jnp.log(_scale_and_shift(p, x)) / ln_base(p),
    lambda p, x, y: (p.scale / ln_base(p)) / _scale_and_shift(p, x),
    param="log_param",
)


@log.check
def check_log(p: LogParameter) -> None:
    require(p.base != 1, "there is no logarithm to base 1; set a different base")
    ln_base(p)


@register(
    "PReLU", param="prelu_param", top_shapes=same_shape, row_wise=True, dtype_policy="bottoms", spatial_map="same"
)
def prelu(params: Params, x: Array) -> Array:
    """Return x where x > 0, else slope * x, with one learnable slope per channel, or one for all (`channel_shared`).

    Bottom and top: (N, C, ...). Blob: slope (C,) or (). At 0 the gradient of x is the slope, and the gradient of the
    slope is 0.
    """
    return jnp.where(x > 0, x, _broadcast_channels(params["slope"], x) * x).astype(x.dtype)


@prelu.params
def prelu_params(p: PReLUParameter, x: Any) -> list[ParamSpec]:
    require(len(x.shape) >= 2, f"needs a bottom with a channel axis (axis 1), not shape {x.shape}")
    channels = x.shape[1]
    filler = p.filler if p.HasField("filler") else FillerParameter(type="constant", value=0.25)
    return [ParamSpec(() if p.channel_shared else (channels,), filler, name="slope")]


@prelu.backward
def prelu_backward(params: Params, x: Array, *, y: Array, dy: Array) -> tuple[Arrays, Array]:
    slope = params["slope"]
    element_diffs = jnp.where(x > 0, 0, promote(dy) * x)
    d_slope = jnp.sum(element_diffs, axis=[k for k in range(x.ndim) if k != 1 or slope.ndim == 0])
    return (d_slope,), dy * ((x > 0) + _broadcast_channels(slope, x) * (x <= 0))


def _broadcast_channels(slope: Array, x: Array) -> Array:
    return slope.reshape(*slope.shape, *(1,) * (x.ndim - 2))
