"""Emitters for activation layers, Dropout, element-wise arithmetic and reductions."""

from __future__ import annotations

import math

import numpy as np

from ...errors import require
from ...layers.helpers import canonical_axis
from .emit_context import Emission, Emit, affine_expression, number, writes
from .ir import Value

_PLAIN = {
    "Sigmoid": "nnx.sigmoid({0})",
    "TanH": "nnx.tanh({0})",
    "BNLL": "nnx.softplus({0})",
    "AbsVal": "jnp.abs({0})",
    "HardSwish": "nnx.hard_swish({0})",
}


def _plain(text: str) -> Emit:
    """Return an emitter for an element-wise function without settings; `text` is its expression."""
    return lambda e: e.elementwise(text, *e.bottoms)


for _type, _text in _PLAIN.items():
    writes(_type)(_plain(_text))


@writes("Mish")
def mish(e: Emission) -> Value:
    """Write x * tanh(log(1 + exp(x)))."""
    return e.elementwise("{0} * nnx.tanh(nnx.softplus({0}))", *e.bottoms)


@writes("ReLU")
def relu(e: Emission) -> Value:
    """Write max(x, 0), or a leaky ReLU."""
    slope = number(e.p.negative_slope)
    return e.elementwise("nnx.relu({0})" if slope == 0 else f"nnx.leaky_relu({{0}}, {slope})", *e.bottoms)


@writes("ReLU6")
def relu6(e: Emission) -> Value:
    """Write min(max(x, 0), 6), or its leaky form."""
    slope = number(e.p.negative_slope)
    text = "nnx.relu6({0})" if slope == 0 else f"jnp.minimum(nnx.leaky_relu({{0}}, {slope}), 6)"
    return e.elementwise(text, *e.bottoms)


@writes("PReLU")
def prelu(e: Emission) -> Value:
    """Write a leaky ReLU with learned slopes."""
    (slope,) = e.arrays
    if slope.ndim == 0:
        part = e.part("nnx.PReLU", "prelu", {"negative_slope": slope}, random=False)
        return e.elementwise("{part}({0})", *e.bottoms, part=part)
    x = e.last(e.bottoms[0])
    part = e.part("PReLU", "prelu", {"slope": slope}, positional=1, features=slope.size, random=False)
    return e.elementwise("{part}({0})", x, part=part, helpers=["PReLU"])


@writes("ELU")
def elu(e: Emission) -> Value:
    """Write ELU: alpha * (exp(x) - 1) below 0."""
    alpha = number(e.p.alpha)
    return e.elementwise("nnx.elu({0})" if alpha == 1 else f"nnx.elu({{0}}, {alpha})", *e.bottoms)


@writes("Swish")
def swish(e: Emission) -> Value:
    """Write x * sigmoid(beta * x)."""
    beta = number(e.p.beta)
    return e.elementwise("nnx.silu({0})" if beta == 1 else f"{{0}} * nnx.sigmoid({beta} * {{0}})", *e.bottoms)


@writes("HardSigmoid")
def hard_sigmoid(e: Emission) -> Value:
    """Write a linear function clipped to [0, 1]."""
    return e.elementwise(f"jnp.clip({affine_expression(e.p.alpha, e.p.beta)}, 0, 1)", *e.bottoms)


@writes("Clip")
def clip(e: Emission) -> Value:
    """Write clipping to the range from min to max; if min is the larger number, min wins as in the layer."""
    low, high = number(e.p.min), number(e.p.max)
    text = f"jnp.clip({{0}}, {low}, {high})" if low <= high else f"jnp.maximum(jnp.minimum({{0}}, {high}), {low})"
    return e.elementwise(text, *e.bottoms)


@writes("Threshold")
def threshold(e: Emission) -> Value:
    """Write 1 above the threshold, else 0."""
    return e.elementwise(f"jnp.where({{0}} > {number(e.p.threshold)}, 1.0, 0.0)", *e.bottoms)


@writes("Dropout")
def dropout(e: Emission) -> Value:
    """Write nnx.Dropout. Like Caffe's, it scales in training; with scale_train: false the output is scaled in TEST."""
    ratio = number(e.p.dropout_ratio)
    part = e.part("nnx.Dropout", "dropout", {}, positional=1, rate=ratio)
    if e.p.scale_train:
        return e.elementwise("{part}({0})", *e.bottoms, part=part)
    return e.elementwise(f"{number(float(np.float32(1 - e.p.dropout_ratio)))} * {{part}}({{0}})", *e.bottoms, part=part)


@writes("Power")
def power(e: Emission) -> Value:
    """Write (shift + scale * x) ** power."""
    exponent, inner = number(e.p.power), affine_expression(e.p.scale, e.p.shift)
    if exponent == 0 or e.p.scale == 0:
        constant = 1 if exponent == 0 else number(float(e.p.shift) ** float(e.p.power))
        return e.elementwise(f"jnp.full_like({{0}}, {constant})", *e.bottoms)
    if exponent == 1:
        return e.bottoms[0] if inner == "{0}" else e.elementwise(inner, *e.bottoms)
    return e.elementwise(f"{inner} ** {exponent}" if inner == "{0}" else f"({inner}) ** {exponent}", *e.bottoms)


@writes("Exp")
def exp(e: Emission) -> Value:
    """Write base ** (shift + scale * x)."""
    inner = affine_expression(e.p.scale, e.p.shift)
    text = f"jnp.exp({inner})" if e.p.base == -1 else f"{number(e.p.base)} ** ({inner})"
    return e.elementwise(text, *e.bottoms)


@writes("Log")
def log(e: Emission) -> Value:
    """Write the logarithm of shift + scale * x."""
    inner = affine_expression(e.p.scale, e.p.shift)
    text = f"jnp.log({inner})" if e.p.base == -1 else f"jnp.log({inner}) / {math.log(e.p.base)}"
    return e.elementwise(text, *e.bottoms)


@writes("Eltwise")
def eltwise(e: Emission) -> Value:
    """Write a sum with coefficients, a product or a maximum."""
    xs = e.alike(e.bottoms)
    fields = [f"{{{i}}}" for i in range(len(xs))]
    match e.p.EltwiseOp.Name(e.p.operation):
        case "PROD":
            text = " * ".join(fields)
        case "SUM":
            text = _sum(fields, [number(c) for c in e.p.coeff] or [1] * len(xs))
        case _:
            text = fields[0]
            for field in fields[1:]:
                text = f"jnp.maximum({text}, {field})"
    return e.elementwise(text, *xs)


def _sum(fields: list[str], coefficients: list[int | float]) -> str:
    text = ""
    for field, coefficient in zip(fields, coefficients, strict=True):
        sign = "-" if coefficient < 0 else "+"
        term = field if abs(coefficient) == 1 else f"{abs(coefficient)} * {field}"
        text = f"{text} {sign} {term}" if text else f"-{term}" if sign == "-" else term
    return text


@writes("Axpy")
def axpy(e: Emission) -> Value:
    """Write factor * x + y, with a factor for each channel of each image."""
    factor, (x, y) = e.bottoms[0], map(e.last, e.bottoms[1:])
    wide = _broadcast_channels(e, factor, x)
    return e.call("{0} * {1} + {2}", x, wide, y)


@writes("ChannelScale")
def channel_scale(e: Emission) -> Value:
    """Write the product of all channels of a pixel and the other bottom's value at this pixel."""
    x, factor = map(e.last, e.bottoms)
    require(len(x.shape) == len(factor.shape), f"bottoms of shapes {x.shape} and {factor.shape} are not supported")
    return e.call("{0} * {1}", x, factor)


def _broadcast_channels(e: Emission, factor: Value, x: Value) -> Value:
    """Return factors (images, channels, ...) reshaped to broadcast with the value `x`, whose channels are last."""
    factor = e.last(factor)
    if len(factor.shape) == len(x.shape):
        return factor
    ones = (1,) * (len(x.shape) - 2)
    return e.call(
        f"{{0}}.reshape({{0}}.shape[0], {', '.join(map(str, (*ones, x.shape[1])))})",
        factor,
        shape=(*x.shape[:2], *ones),
        order=x.order,
        blob=factor.blob,
    )


@writes("Reduction")
def reduction(e: Emission) -> Value:
    """Write a sum or mean over the last axes."""
    (x,) = e.bottoms
    x, axis = e.plain(x), canonical_axis(e.p.axis, x.shape)
    axes = ", ".join(str(k) for k in range(axis, len(x.shape)))
    axes = f"axis=({axes})" if "," in axes else f"axis={axes}"
    text = {
        "SUM": f"jnp.sum({{0}}, {axes})",
        "ASUM": f"jnp.sum(jnp.abs({{0}}), {axes})",
        "SUMSQ": f"jnp.sum(jnp.square({{0}}), {axes})",
        "MEAN": f"jnp.mean({{0}}, {axes})",
    }[e.p.ReductionOp.Name(e.p.operation)]
    coefficient = number(e.p.coeff)
    return e.call(text if coefficient == 1 else f"{coefficient} * {text}", x, shape=e.tops[0])


@writes("ArgMax")
def arg_max(e: Emission) -> Value:
    """Write the index of the largest number along an axis; of equal numbers it is the last, as in Caffe."""
    (x,) = e.bottoms
    require(e.p.HasField("axis") and e.p.top_k == 1 and not e.p.out_max_val, "is written with axis and top_k 1 only")
    axis = canonical_axis(e.p.axis, x.shape)
    position = x.axis(axis)
    index = f"jnp.argmax(jnp.flip({{0}}, {position}), axis={position}, keepdims=True)"
    text = f"{x.shape[axis] - 1} - {index}.astype({{0}}.dtype)"
    return e.call(text, x, shape=e.tops[0], order=x.order)
