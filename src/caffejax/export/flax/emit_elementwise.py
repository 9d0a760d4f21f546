"""Emitters for activation layers, Softmax, Dropout, element-wise arithmetic and reductions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...base.errors import require
from ...core.layers.helpers import canonical_axis
from .emit_context import FLAX, FlaxCall, affine_expression, shorten_float32
from .ir import Value

_EXPRESSIONS = {
    "Sigmoid": "nnx.sigmoid({0})",
    "TanH": "nnx.tanh({0})",
    "BNLL": "nnx.softplus({0})",
    "AbsVal": "jnp.abs({0})",
    "HardSwish": "nnx.hard_swish({0})",
    "Mish": "{0} * nnx.tanh(nnx.softplus({0}))",
}


def _make_emitter(text: str) -> Callable[[FlaxCall], Value]:
    """Return an emitter for an element-wise function without settings, whose expression is `text`."""
    return lambda e: e.add_elementwise_step(text, *e.bottoms)


for _type, _text in _EXPRESSIONS.items():
    FLAX.rule(_type)(_make_emitter(_text))


@FLAX.rule("ReLU")
def relu(e: FlaxCall) -> Value:
    """Emit max(x, 0), or a leaky ReLU if negative_slope is set."""
    slope = shorten_float32(e.param.negative_slope)
    return e.add_elementwise_step("nnx.relu({0})" if slope == 0 else f"nnx.leaky_relu({{0}}, {slope})", *e.bottoms)


@FLAX.rule("ReLU6")
def relu6(e: FlaxCall) -> Value:
    """Emit min(max(x, 0), 6), or a leaky ReLU limited to 6 if negative_slope is set."""
    slope = shorten_float32(e.param.negative_slope)
    text = "nnx.relu6({0})" if slope == 0 else f"jnp.minimum(nnx.leaky_relu({{0}}, {slope}), 6)"
    return e.add_elementwise_step(text, *e.bottoms)


@FLAX.rule("PReLU")
def prelu(e: FlaxCall) -> Value:
    """Emit a leaky ReLU with one learned slope for each channel, or one for all channels."""
    (slope,) = e.arrays
    if slope.ndim == 0:
        module = e.make_module("nnx.PReLU", "prelu", {"negative_slope": slope}, needs_rngs=False)
        return e.add_elementwise_step("{module}({0})", *e.bottoms, module=module)
    x = e.to_channels_last(e.bottoms[0])
    module = e.make_module("PReLU", "prelu", {"slope": slope}, num_positional=1, features=slope.size, needs_rngs=False)
    return e.add_elementwise_step("{module}({0})", x, module=module, helpers=["PReLU"])


@FLAX.rule("ELU")
def elu(e: FlaxCall) -> Value:
    """Emit ELU: x above 0, and alpha * (exp(x) - 1) below 0."""
    alpha = shorten_float32(e.param.alpha)
    return e.add_elementwise_step("nnx.elu({0})" if alpha == 1 else f"nnx.elu({{0}}, {alpha})", *e.bottoms)


@FLAX.rule("Swish")
def swish(e: FlaxCall) -> Value:
    """Emit x * sigmoid(beta * x)."""
    beta = shorten_float32(e.param.beta)
    return e.add_elementwise_step("nnx.silu({0})" if beta == 1 else f"{{0}} * nnx.sigmoid({beta} * {{0}})", *e.bottoms)


@FLAX.rule("HardSigmoid")
def hard_sigmoid(e: FlaxCall) -> Value:
    """Emit a linear function of x, clipped to [0, 1]."""
    return e.add_elementwise_step(f"jnp.clip({affine_expression(e.param.alpha, e.param.beta)}, 0, 1)", *e.bottoms)


@FLAX.rule("Clip")
def clip(e: FlaxCall) -> Value:
    """Emit clipping to [min, max]. If min is larger than max, the result is min, as in the layer."""
    low, high = shorten_float32(e.param.min), shorten_float32(e.param.max)
    text = f"jnp.clip({{0}}, {low}, {high})" if low <= high else f"jnp.maximum(jnp.minimum({{0}}, {high}), {low})"
    return e.add_elementwise_step(text, *e.bottoms)


@FLAX.rule("Threshold")
def threshold(e: FlaxCall) -> Value:
    """Emit 1 where x is above the threshold, 0 elsewhere."""
    return e.add_elementwise_step(f"jnp.where({{0}} > {shorten_float32(e.param.threshold)}, 1.0, 0.0)", *e.bottoms)


@FLAX.rule("Softmax")
def softmax(e: FlaxCall) -> Value:
    """Emit a softmax along an axis."""
    (x,) = e.bottoms
    operand = "{0}" if e.param.temperature == 1 else f"{{0}} / {e.param.temperature:.8g}"
    axis = canonical_axis(e.param.axis, x.shape)
    position = x.stored_axis(axis)
    text = f"nnx.softmax({operand})" if position == -1 else f"nnx.softmax({operand}, axis={position})"
    return e.add_elementwise_step(text, x if axis == 1 else e.reorder(x, x.order))


@FLAX.rule("Dropout")
def dropout(e: FlaxCall) -> Value:
    """Emit nnx.Dropout, which scales in training like Caffe. With `scale_train: false`, emit a scaling for TEST."""
    ratio = shorten_float32(e.param.dropout_ratio)
    module = e.make_module("nnx.Dropout", "dropout", {}, num_positional=1, rate=ratio)
    if e.param.scale_train:
        return e.add_elementwise_step("{module}({0})", *e.bottoms, module=module)
    return e.add_elementwise_step(
        f"{shorten_float32(float(np.float32(1 - e.param.dropout_ratio)))} * {{module}}({{0}})",
        *e.bottoms,
        module=module,
    )


@FLAX.rule("Power")
def power(e: FlaxCall) -> Value:
    """Emit (shift + scale * x) ** power."""
    exponent, affine = shorten_float32(e.param.power), affine_expression(e.param.scale, e.param.shift)
    if exponent == 0 or e.param.scale == 0:
        constant = 1 if exponent == 0 else shorten_float32(float(e.param.shift) ** float(e.param.power))
        return e.add_elementwise_step(f"jnp.full_like({{0}}, {constant})", *e.bottoms)
    if exponent == 1:
        return e.bottoms[0] if affine == "{0}" else e.add_elementwise_step(affine, *e.bottoms)
    return e.add_elementwise_step(
        f"{affine} ** {exponent}" if affine == "{0}" else f"({affine}) ** {exponent}", *e.bottoms
    )


@FLAX.rule("Exp")
def exp(e: FlaxCall) -> Value:
    """Emit base ** (shift + scale * x)."""
    affine = affine_expression(e.param.scale, e.param.shift)
    text = f"jnp.exp({affine})" if e.param.base == -1 else f"{shorten_float32(e.param.base)} ** ({affine})"
    return e.add_elementwise_step(text, *e.bottoms)


@FLAX.rule("Log")
def log(e: FlaxCall) -> Value:
    """Emit the logarithm of shift + scale * x."""
    affine = affine_expression(e.param.scale, e.param.shift)
    text = f"jnp.log({affine})" if e.param.base == -1 else f"jnp.log({affine}) / {math.log(e.param.base)}"
    return e.add_elementwise_step(text, *e.bottoms)


@FLAX.rule("Eltwise")
def eltwise(e: FlaxCall) -> Value:
    """Emit a sum with coefficients, a product or a maximum."""
    xs = e.to_common_order(e.bottoms)
    placeholders = [f"{{{i}}}" for i in range(len(xs))]
    match e.param.EltwiseOp.Name(e.param.operation):
        case "PROD":
            text = " * ".join(placeholders)
        case "SUM":
            text = _sum_expression(placeholders, [shorten_float32(c) for c in e.param.coeff] or [1] * len(xs))
        case _:
            text = placeholders[0]
            for placeholder in placeholders[1:]:
                text = f"jnp.maximum({text}, {placeholder})"
    return e.add_elementwise_step(text, *xs)


def _sum_expression(placeholders: list[str], coefficients: list[int | float]) -> str:
    text = ""
    for placeholder, coefficient in zip(placeholders, coefficients, strict=True):
        sign = "-" if coefficient < 0 else "+"
        term = placeholder if abs(coefficient) == 1 else f"{abs(coefficient)} * {placeholder}"
        text = f"{text} {sign} {term}" if text else f"-{term}" if sign == "-" else term
    return text


@FLAX.rule("Axpy")
def axpy(e: FlaxCall) -> Value:
    """Emit factor * x + y, with a separate factor for each channel of each image."""
    factor, (x, y) = e.bottoms[0], map(e.to_channels_last, e.bottoms[1:])
    broadcast_factor = _broadcast_channels(e, factor, x)
    return e.add_step("{0} * {1} + {2}", x, broadcast_factor, y)


@FLAX.rule("ChannelScale")
def channel_scale(e: FlaxCall) -> Value:
    """Emit the product of the two bottoms. The single channel of the second bottom is broadcast to all channels."""
    x, factor = map(e.to_channels_last, e.bottoms)
    require(len(x.shape) == len(factor.shape), f"bottoms of shapes {x.shape} and {factor.shape} are not supported")
    return e.add_step("{0} * {1}", x, factor)


def _broadcast_channels(e: FlaxCall, factor: Value, x: Value) -> Value:
    """Return factors of shape (images, channels, ...), reshaped to broadcast with `x`, whose channels are last."""
    factor = e.to_channels_last(factor)
    if len(factor.shape) == len(x.shape):
        return factor
    ones = (1,) * (len(x.shape) - 2)
    return e.add_step(
        f"{{0}}.reshape({{0}}.shape[0], {', '.join(map(str, (*ones, x.shape[1])))})",
        factor,
        shape=(*x.shape[:2], *ones),
        order=x.order,
        blob=factor.blob,
    )


@FLAX.rule("Reduction")
def reduction(e: FlaxCall) -> Value:
    """Emit a sum or mean over the last axes."""
    (x,) = e.bottoms
    x, axis = e.to_caffe_order(x), canonical_axis(e.param.axis, x.shape)
    axes = ", ".join(str(k) for k in range(axis, len(x.shape)))
    axes = f"axis=({axes})" if "," in axes else f"axis={axes}"
    text = {
        "SUM": f"jnp.sum({{0}}, {axes})",
        "ASUM": f"jnp.sum(jnp.abs({{0}}), {axes})",
        "SUMSQ": f"jnp.sum(jnp.square({{0}}), {axes})",
        "MEAN": f"jnp.mean({{0}}, {axes})",
    }[e.param.ReductionOp.Name(e.param.operation)]
    coefficient = shorten_float32(e.param.coeff)
    return e.add_step(text if coefficient == 1 else f"{coefficient} * {text}", x, shape=e.top_shape)


@FLAX.rule("ArgMax")
def arg_max(e: FlaxCall) -> Value:
    """Emit the index of the maximum along an axis. In a tie the last index wins, as in Caffe."""
    (x,) = e.bottoms
    require(
        e.param.HasField("axis") and e.param.top_k == 1 and not e.param.out_max_val,
        "is only supported with an axis, top_k 1 and no out_max_val",
    )
    axis = canonical_axis(e.param.axis, x.shape)
    position = x.stored_axis(axis)
    index = f"jnp.argmax(jnp.flip({{0}}, {position}), axis={position}, keepdims=True)"
    text = f"{x.shape[axis] - 1} - {index}.astype({{0}}.dtype)"
    return e.add_step(text, x, shape=e.top_shape, order=x.order)
