"""Neurons, and Dropout."""

from __future__ import annotations

import numpy as np

from ..building import Emission, Emit, writes
from ..program import Value
from .literals import affine, number

_PLAIN = {
    "Sigmoid": "nnx.sigmoid({0})",
    "TanH": "nnx.tanh({0})",
    "BNLL": "nnx.softplus({0})",
    "AbsVal": "jnp.abs({0})",
    "HardSwish": "nnx.hard_swish({0})",
}


def _plain(text: str) -> Emit:
    """Return what writes a function without parameters."""
    return lambda e: e.elementwise(text, *e.bottoms)


for _type, _text in _PLAIN.items():
    writes(_type)(_plain(_text))


@writes("Mish")
def mish(e: Emission) -> Value:
    """Write x * tanh(log(1 + exp(x)))."""
    return e.elementwise("{0} * nnx.tanh(nnx.softplus({0}))", *e.bottoms)


@writes("ReLU")
def relu(e: Emission) -> Value:
    """Write max(x, 0), or a leaky one."""
    slope = number(e.p.negative_slope)
    return e.elementwise("nnx.relu({0})" if slope == 0 else f"nnx.leaky_relu({{0}}, {slope})", *e.bottoms)


@writes("ReLU6")
def relu6(e: Emission) -> Value:
    """Write min(max(x, 0), 6), or a leaky one."""
    slope = number(e.p.negative_slope)
    text = "nnx.relu6({0})" if slope == 0 else f"jnp.minimum(nnx.leaky_relu({{0}}, {slope}), 6)"
    return e.elementwise(text, *e.bottoms)


@writes("PReLU")
def prelu(e: Emission) -> Value:
    """Write a leaky function with learned slopes."""
    (slope,) = e.arrays
    if slope.ndim == 0:
        part = e.part("nnx.PReLU", "prelu", {"negative_slope": slope}, random=False)
        return e.elementwise("{part}({0})", *e.bottoms, part=part)
    x = e.last(e.bottoms[0])
    part = e.part("PReLU", "prelu", {"slope": slope}, positional=1, features=slope.size, random=False)
    return e.elementwise("{part}({0})", x, part=part, helpers=["PReLU"])


@writes("ELU")
def elu(e: Emission) -> Value:
    """Write x, or alpha * (exp(x) - 1) below 0."""
    alpha = number(e.p.alpha)
    return e.elementwise("nnx.elu({0})" if alpha == 1 else f"nnx.elu({{0}}, {alpha})", *e.bottoms)


@writes("Swish")
def swish(e: Emission) -> Value:
    """Write x * sigmoid(beta * x)."""
    beta = number(e.p.beta)
    return e.elementwise("nnx.silu({0})" if beta == 1 else f"{{0}} * nnx.sigmoid({beta} * {{0}})", *e.bottoms)


@writes("HardSigmoid")
def hard_sigmoid(e: Emission) -> Value:
    """Write a line held between 0 and 1."""
    return e.elementwise(f"jnp.clip({affine(e.p.alpha, e.p.beta)}, 0, 1)", *e.bottoms)


@writes("Clip")
def clip(e: Emission) -> Value:
    """Write x held between two numbers; the greater of them wins where they are the wrong way round."""
    return e.elementwise(f"jnp.clip({{0}}, {number(e.p.min)}, {number(e.p.max)})", *e.bottoms)


@writes("Threshold")
def threshold(e: Emission) -> Value:
    """Write 1 above a number, else 0."""
    return e.elementwise(f"jnp.where({{0}} > {number(e.p.threshold)}, 1.0, 0.0)", *e.bottoms)


@writes("Dropout")
def dropout(e: Emission) -> Value:
    """Write nnx.Dropout, which scales in training as Caffe does; with scale_train: false it scales in TEST."""
    ratio = number(e.p.dropout_ratio)
    part = e.part("nnx.Dropout", "dropout", {}, positional=1, rate=ratio)
    if e.p.scale_train:
        return e.elementwise("{part}({0})", *e.bottoms, part=part)
    return e.elementwise(f"{number(float(np.float32(1 - e.p.dropout_ratio)))} * {{part}}({{0}})", *e.bottoms, part=part)
