"""Emitters for InnerProduct, InnerDistance, Embed and Parameter."""

from __future__ import annotations

import math

import numpy as np

from ...base.errors import require
from ...core.layers.helpers import canonical_axis
from .emit_context import FLAX, FlaxCall, caffe_order
from .emit_shape_ops import flatten_from
from .ir import ModuleSpec, Shape, Value


@FLAX.rule("InnerProduct")
def inner_product(e: FlaxCall) -> Value:
    """Emit nnx.Linear, with the rows of its kernel in the order in which the bottom's features are stored."""
    x, *other_bottoms = e.bottoms
    axis = canonical_axis(e.param.axis, x.shape)
    require(axis > 0, "has axis 0, which makes the batch a single example; this is not supported")
    if other_bottoms:
        return _emit_product_of_bottoms(e, axis)
    require(not e.param.normalize, "normalizes the rows of its weight (normalize), which is not supported")
    weight, *bias = e.arrays[: 1 + e.param.bias_term]  # without MyCaffe's deviations, which are used only in training
    kernel = weight if e.param.transpose else weight.T
    x = flatten_from(e, x, axis)
    if x.flattened_from is not None:
        kernel = _reorder_inputs(kernel, *x.flattened_from)
    weights = {"kernel": kernel, **({"bias": bias[0]} if bias else {})}
    options = {} if bias else {"use_bias": False}
    module = e.make_module(
        "nnx.Linear",
        "fc",
        weights,
        num_positional=2,
        in_features=kernel.shape[0],
        out_features=kernel.shape[1],
        **options,
    )
    return e.add_step("{module}({0})", x, module=module, shape=e.top_shape, order=tuple(range(len(e.top_shape))))


def _emit_product_of_bottoms(e: FlaxCall, axis: int) -> Value:
    """Emit an InnerProduct whose weight is the second bottom. The bias is the third bottom or a learned array."""
    require(axis == 1, "has a bottom as its weight and an axis other than 1, which is not supported")
    x, weight, *bias = (_flatten_rows(e, bottom) for bottom in e.bottoms)
    text = "{0} @ {1}" if e.param.transpose else "{0} @ {1}.T"
    if not e.arrays:
        return e.add_step(f"{text} + {{2}}" if bias else text, x, weight, *bias, shape=e.top_shape)
    return e.add_step(f"{text} + {{module}}[...]", x, weight, module=_make_param(e, "bias"), shape=e.top_shape)


def _make_param(e: FlaxCall, short_name: str) -> ModuleSpec:
    """Return a module `nnx.Param` that holds the layer's first array."""
    array = e.arrays[0]
    return e.make_module(
        "nnx.Param", short_name, {"": array}, num_positional=1, needs_rngs=False, value=Zeros(array.shape)
    )


def _reorder_inputs(kernel: np.ndarray, shape: Shape, order: Shape) -> np.ndarray:
    """Return a kernel with its inputs reordered from Caffe's order to the order in which they are stored.

    Args:
        kernel: the kernel, of shape (inputs, outputs).
        shape: the shape of the inputs in Caffe's order.
        order: the order in which the axes of the inputs are stored.
    """
    inputs = kernel.reshape(*shape, -1).transpose(*order, len(shape))
    return inputs.reshape(math.prod(shape), -1)


@FLAX.rule("InnerDistance")
def inner_distance(e: FlaxCall) -> Value:
    """Emit the distance of each row of the bottom to each row of the second bottom or of a learned array."""
    normalizes = bool(e.arrays) and e.param.normalize
    require(not normalizes, "normalizes the rows of its weight (normalize), which is not supported")
    require(canonical_axis(e.param.axis, e.bottoms[0].shape) == 1, "has an axis other than 1, which is not supported")
    x, *centers = (_flatten_rows(e, bottom) for bottom in e.bottoms)
    distance = (
        f"jnp.sum({'jnp.abs' if e.param.distance_type == 'L1' else 'jnp.square'}({{0}}[:, None] - {{1}}), axis=-1)"
    )
    if centers:
        return e.add_step(distance, x, *centers, shape=e.top_shape)
    return e.add_step(distance.replace("{1}", "{module}[...]"), x, module=_make_param(e, "centers"), shape=e.top_shape)


def _flatten_rows(e: FlaxCall, x: Value) -> Value:
    x = e.to_caffe_order(x)
    if len(x.shape) <= 2:
        return x
    shape = (x.shape[0], math.prod(x.shape[1:]))
    return e.add_step("{0}.reshape({0}.shape[0], -1)", x, shape=shape, order=(0, 1), blob=x.blob)


@FLAX.rule("Embed")
def embed(e: FlaxCall) -> Value:
    """Emit nnx.Embed."""
    weight, *bias = e.arrays
    x = e.to_caffe_order(e.bottoms[0])
    require(not bias, "has a bias_term, which nnx.Embed does not support")
    module = e.make_module(
        "nnx.Embed",
        "embed",
        {"embedding": weight},
        num_positional=2,
        num_embeddings=weight.shape[0],
        features=weight.shape[1],
    )
    order = tuple(range(len(e.top_shape)))
    expression = "jnp.where({0}.astype(int)[..., None] == -1, 0, {module}({0}.astype(int)))"  # -1 is padding
    return e.add_step(expression, x, module=module, shape=e.top_shape, order=order)


@FLAX.rule("Parameter")
def parameter(e: FlaxCall) -> Value:
    """Emit a learned array, which is the layer's top."""
    (array,) = e.arrays
    module = e.make_module(
        "nnx.Param", "param", {"": array}, num_positional=1, needs_rngs=False, value=Zeros(array.shape)
    )
    return e.add_step("{module}[...]", module=module, shape=e.top_shape, order=caffe_order(len(e.top_shape)))


class Zeros(tuple[int, ...]):
    """The shape of an array of zeros. If a module argument is a `Zeros`, the source contains `jnp.zeros(shape)`."""

    def __repr__(self) -> str:
        return f"jnp.zeros({tuple(self)})"
