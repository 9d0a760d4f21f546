"""Neuron layers, number by number, and what else is a factor and a bias for each channel."""

from __future__ import annotations

import numpy as np

from ...layers.neuron import log_base
from ..program import Value
from .registry import Call, lowers


@lowers("ReLU")
def relu(call: Call) -> Value:
    """max(x, 0), or with a slope below 0."""
    return call.writer.apply(call.x, "relu", call.param.negative_slope)


@lowers("ReLU6")
def relu6(call: Call) -> Value | None:
    """x held between 0 and 6."""
    return None if call.param.negative_slope else call.writer.apply(call.x, "clip", 0, 6)


@lowers("ELU")
def elu(call: Call) -> Value:
    """alpha * (exp(x) - 1) below 0."""
    return call.writer.apply(call.x, "elu", call.param.alpha)


@lowers("Sigmoid")
def sigmoid(call: Call) -> Value:
    """1 / (1 + exp(-x))."""
    return call.writer.apply(call.x, "logistic")


@lowers("TanH")
def tanh(call: Call) -> Value:
    """The hyperbolic tangent."""
    return call.writer.apply(call.x, "tanh")


@lowers("Swish")
def swish(call: Call) -> Value:
    """x * sigmoid(beta * x)."""
    return call.writer.apply(call.x, "swish", call.param.beta)


@lowers("AbsVal")
def absval(call: Call) -> Value:
    """|x|."""
    return call.writer.apply(call.x, "abs")


@lowers("Clip")
def clip(call: Call) -> Value | None:
    """x held between bounds."""
    p = call.param
    return None if p.min > p.max else call.writer.apply(call.x, "clip", p.min, p.max)


@lowers("Power")
def power(call: Call) -> Value | None:
    """scale * x + shift."""
    p = call.param
    return call.writer.apply(call.x, "linear", p.scale, p.shift) if p.power == 1 and p.scale else None


@lowers("Exp")
def exp(call: Call) -> Value:
    """A power of the base."""
    p, by = call.param, log_base(call.param)
    return call.writer.apply(call.writer.apply(call.x, "linear", by * p.scale, by * p.shift), "exp")


@lowers("Log")
def log(call: Call) -> Value:
    """The logarithm to the base."""
    p = call.param
    x = call.writer.apply(call.writer.apply(call.x, "linear", p.scale, p.shift), "log")
    return call.writer.apply(x, "linear", 1 / log_base(p))


@lowers("PReLU")
def prelu(call: Call) -> Value | None:
    """max(x, 0), with a slope below 0 for each channel, or for all."""
    slope = np.asarray(call.blobs[0], np.float32)
    if slope.ndim == 0:
        return call.writer.apply(call.x, "relu", float(slope))
    return call.writer.apply_by_channel(call.x, "prelu", slope) if len(call.x.shape) == 4 else None


@lowers("Axpy")
def axpy(call: Call) -> Value | None:
    """a * x + y, with a factor for each channel of each item."""
    factors, x, y = call.bottoms
    if len(x.shape) < 3:
        return None
    along = call.writer.add("reshape", [factors], (*x.shape[:2], *(1,) * (len(x.shape) - 2)))
    return call.writer.combine("plus", call.writer.combine("times", x, along), y)


@lowers("Eltwise")
def eltwise(call: Call) -> Value | None:
    """The sum, product or maximum of all bottoms."""
    p, name = call.param, call.param.EltwiseOp.Name(call.param.operation)
    if any(c != 1 for c in p.coeff):
        return None
    word = {"SUM": "plus", "PROD": "times", "MAX": "maximum"}[name]
    total = call.x
    for other in call.bottoms[1:]:
        total = call.writer.combine(word, total, other)
    return total
