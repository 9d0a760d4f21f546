"""Neuron layers, number by number."""

from __future__ import annotations

import numpy as np

from ....layers.neuron import dropout_is_identity
from .registry import Call, Tops, emits


@emits("ReLU", operators="Relu, LeakyRelu")
def relu(call: Call) -> Tops:
    """max(x, 0), or with a slope below 0."""
    slope = call.param.negative_slope
    return call.emit("LeakyRelu", alpha=slope) if slope else call.emit("Relu")


@emits("PReLU", operators="PRelu")
def prelu(call: Call) -> Tops:
    """A slope below 0 for each channel."""
    slope = call.blobs[0]
    return call.emit("PRelu", call.array(slope.reshape(*slope.shape, *(1,) * (len(call.x.shape) - 2)), 0))


@emits("ELU", operators="Elu")
def elu(call: Call) -> Tops:
    """alpha * (exp(x) - 1) below 0."""
    return call.emit("Elu", alpha=call.param.alpha)


@emits("AbsVal", operators="Abs")
def absval(call: Call) -> Tops:
    """|x|."""
    return call.emit("Abs")


@emits("BNLL", operators="Softplus")
def bnll(call: Call) -> Tops:
    """log(1 + exp(x))."""
    return call.emit("Softplus")


@emits("Clip", operators="Clip", unless="`min` is more than `max`")
def clip(call: Call) -> Tops | None:
    """x held between bounds."""
    p = call.param
    return None if p.min > p.max else _clipped(call, p.min, p.max)


@emits("ReLU6", operators="Clip", unless="it has a slope below 0")
def relu6(call: Call) -> Tops | None:
    """x held between 0 and 6."""
    return None if call.param.negative_slope else _clipped(call, 0, 6)


def _clipped(call: Call, low: float, high: float) -> Tops:
    bounds = (call.array(np.float32(low), "min"), call.array(np.float32(high), "max"))
    return call.emit("Clip", *bounds)


@emits("HardSigmoid", operators="HardSigmoid")
def hard_sigmoid(call: Call) -> Tops:
    """alpha * x + beta held between 0 and 1."""
    return call.emit("HardSigmoid", alpha=call.param.alpha, beta=call.param.beta)


@emits("HardSwish", operators="HardSwish")
def hard_swish(call: Call) -> Tops:
    """x * HardSigmoid(x)."""
    return call.emit("HardSwish")


@emits("Dropout", operators="Dropout", unless="it scales or drops in TEST")
def dropout(call: Call) -> Tops | None:
    """Nothing, in inference."""
    return call.emit("Dropout") if dropout_is_identity(call.context) else None


@emits("Split", operators="Identity")
def split(call: Call) -> Tops:
    """The bottom for each top."""
    return [call.x] * len(call.shapes)


@emits("Eltwise", operators="Add, Mul, Max", unless="not MAX: then Mul by `coeff`, Add")
def eltwise(call: Call) -> Tops | None:
    """Max of all bottoms."""
    if call.param.EltwiseOp.Name(call.param.operation) != "MAX":
        return None
    return call.emit("Max", *map(call.name, call.bottoms[1:]))
