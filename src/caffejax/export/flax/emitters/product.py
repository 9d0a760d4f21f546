"""InnerProduct, InnerDistance and Embed."""

from __future__ import annotations

import math

import numpy as np

from ....errors import require
from ....layers.axes import canonical_axis
from ..building import Emission, writes
from ..program import Part, Shape, Value
from .moving import Zeros, flattened


@writes("InnerProduct")
def inner_product(e: Emission) -> Value:
    """Write nnx.Linear; its weight's inputs are in the order in which the bottom is stored."""
    x, *others = e.bottoms
    axis = canonical_axis(e.p.axis, x.shape)
    require(axis > 0, "with axis 0 the whole batch is one input; not supported")
    if others:
        return _with_bottoms(e, axis)
    require(not e.p.normalize, "has rows of length 1 (normalize), which is not supported")
    weight, *bias = e.arrays
    kernel = weight if e.p.transpose else weight.T
    x = flattened(e, x, axis)
    if x.flat is not None:
        kernel = _as_stored(kernel, *x.flat)
    weights = {"kernel": kernel, **({"bias": bias[0]} if bias else {})}
    options = {} if bias else {"use_bias": False}
    part = e.part(
        "nnx.Linear",
        "fc",
        weights,
        positional=2,
        in_features=kernel.shape[0],
        out_features=kernel.shape[1],
        **options,
    )
    return e.call("{part}({0})", x, part=part, shape=e.tops[0], order=tuple(range(len(e.tops[0]))))


def _with_bottoms(e: Emission, axis: int) -> Value:
    """Write the product with a second bottom; the bias is a third one or learned, if there is one."""
    require(axis == 1, "takes its weight from a bottom, with an axis other than 1; not supported")
    x, weight, *bias = (_rows(e, bottom) for bottom in e.bottoms)
    text = "{0} @ {1}" if e.p.transpose else "{0} @ {1}.T"
    if not e.arrays:
        return e.call(f"{text} + {{2}}" if bias else text, x, weight, *bias, shape=e.tops[0])
    return e.call(f"{text} + {{part}}[...]", x, weight, part=_param(e, "bias"), shape=e.tops[0])


def _param(e: Emission, kind: str) -> Part:
    """Return the layer's first array as it is."""
    array = e.arrays[0]
    return e.part("nnx.Param", kind, {"": array}, positional=1, random=False, value=Zeros(array.shape))


def _as_stored(kernel: np.ndarray, shape: Shape, order: Shape) -> np.ndarray:
    """Return a kernel (inputs, outputs) with its inputs in another order."""
    inputs = kernel.reshape(*shape, -1).transpose(*order, len(shape))
    return inputs.reshape(math.prod(shape), -1)


@writes("InnerDistance")
def inner_distance(e: Emission) -> Value:
    """Write distances of rows to the rows of a second bottom, or to learned ones."""
    require(not e.arrays or not e.p.normalize, "has rows of length 1 (normalize), which is not supported")
    require(canonical_axis(e.p.axis, e.bottoms[0].shape) == 1, "with an axis other than 1; not supported")
    x, *centers = (_rows(e, bottom) for bottom in e.bottoms)
    distance = f"jnp.sum({'jnp.abs' if e.p.distance_type == 'L1' else 'jnp.square'}({{0}}[:, None] - {{1}}), axis=-1)"
    if centers:
        return e.call(distance, x, *centers, shape=e.tops[0])
    return e.call(distance.replace("{1}", "{part}[...]"), x, part=_param(e, "centers"), shape=e.tops[0])


def _rows(e: Emission, x: Value) -> Value:
    x = e.plain(x)
    if len(x.shape) <= 2:
        return x
    shape = (x.shape[0], math.prod(x.shape[1:]))
    return e.call("{0}.reshape({0}.shape[0], -1)", x, shape=shape, order=(0, 1), blob=x.blob)


@writes("Embed")
def embed(e: Emission) -> Value:
    """Write nnx.Embed, and a bias if there is one."""
    weight, *bias = e.arrays
    x = e.plain(e.bottoms[0])
    require(not bias, "has a bias_term, which nnx.Embed has not; not supported")
    part = e.part(
        "nnx.Embed",
        "embed",
        {"embedding": weight},
        positional=2,
        num_embeddings=weight.shape[0],
        features=weight.shape[1],
    )
    order = tuple(range(len(e.tops[0])))
    return e.call("{part}({0}.astype(int))", x, part=part, shape=e.tops[0], order=order)
