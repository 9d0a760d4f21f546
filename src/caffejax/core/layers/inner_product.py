"""InnerProduct, the fully connected layer.

Caffe's rule (inner_product_layer.cpp): the bottom's axes before `axis` are rows, the others are inputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ..ops.channel_affine import add_bias_to_rows
from ..ops.matmul import matmul_rows
from ..schema.caffe_pb2 import InnerProductParameter
from .context import Context, ParamSpec, Shape
from .declaration import register
from .dtype_policy import promote
from .helpers import canonical_axis, is_after_first_axis
from .weight_and_bias import fold_scale_bias, weight_and_bias_specs

Arrays = tuple[jax.Array, ...]


@dataclass(frozen=True)
class InnerProductSettings:
    """The settings of an InnerProductParameter.

    Attributes:
        num_output: the number of outputs.
        bias_term: whether there is a bias.
        weight_filler, bias_filler: FillerParameters.
        axis: the first axis of the inputs; a negative axis counts from the end.
        transpose: whether the weight is (inputs, num_output) instead of (num_output, inputs).
    """

    num_output: int
    bias_term: bool
    weight_filler: Any
    bias_filler: Any
    axis: int
    transpose: bool

    def split_shape(self, shape: Shape) -> tuple[Shape, int]:
        """Split a bottom's shape into its leading axes, which are rows, and the number of inputs in each row."""
        axis = canonical_axis(self.axis, shape)
        return shape[:axis], math.prod(shape[axis:])


def read_inner_product(p: InnerProductParameter) -> InnerProductSettings:
    """Return the settings of the layer's InnerProductParameter."""
    return InnerProductSettings(p.num_output, p.bias_term, p.weight_filler, p.bias_filler, p.axis, p.transpose)


@register(
    "InnerProduct",
    param="inner_product_param",
    row_wise=is_after_first_axis,
    dtype_policy="products",
    weight_axes=2,
    blob_names=("weight", "bias"),
    fold_scale_bias=fold_scale_bias,
    settings=read_inner_product,
)
def inner_product(blobs: Arrays, x: jax.Array, *, ctx: Context) -> jax.Array:
    """Multiply x, flattened from `axis` on to K inputs, by the weight, and add a bias: (N, ...) to (N, num_output).

    Blobs: weight (num_output, K), or (K, num_output) with `transpose`, and bias (num_output,). Axes before `axis`
    remain. Caffe's rule: inner_product_layer.cpp.
    """
    return multiply_by_weight(ctx, x, *blobs)


def multiply_by_weight(ctx: Context, x: jax.Array, weight: jax.Array, *bias: jax.Array) -> jax.Array:
    """Multiply the rows of x by a weight, and add a bias if there is one."""
    (row_shape, num_inputs), transpose = ctx.settings.split_shape(x.shape), ctx.settings.transpose
    y = matmul_rows(x.reshape(*(row_shape or (1,)), num_inputs), weight, transpose, fast=ctx.fast)
    if bias:
        y = add_bias_to_rows(y, bias[0], fast=ctx.fast).astype(y.dtype)
    return y.reshape(*row_shape, weight.shape[1 if transpose else 0])


@inner_product.params
def inner_product_params(p: InnerProductSettings, x: jax.Array) -> list[ParamSpec]:
    require(p.num_output > 0, f"num_output must be positive, not {p.num_output}")
    _, num_inputs = p.split_shape(x.shape)
    return weight_and_bias_specs(p, (num_inputs, p.num_output) if p.transpose else (p.num_output, num_inputs))


@inner_product.top_shapes
def inner_product_top_shapes(p: InnerProductSettings, x: Any) -> list[Shape] | None:
    return [(*p.split_shape(x.shape)[0], p.num_output)]


@inner_product.backward
def inner_product_backward(
    p: InnerProductSettings, blobs: Arrays, x: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[Arrays, jax.Array]:
    weight, *bias = blobs
    d_weight, dx, dy_rows = product_gradients(p, x, weight, dy)
    return (d_weight, *(promote(dy_rows).sum(0) for _ in bias)), dx


def product_gradients(
    p: InnerProductSettings, x: jax.Array, weight: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the gradients of the weight and of x, and dy as (rows, outputs)."""
    (row_shape, num_inputs), transpose = p.split_shape(x.shape), p.transpose
    rows = x.reshape(math.prod(row_shape), num_inputs)
    dy_rows = dy.reshape(rows.shape[0], weight.shape[1 if transpose else 0])
    d_weight = jnp.einsum("mn,mk->kn" if transpose else "mn,mk->nk", dy_rows, rows)
    dx = jnp.einsum("mn,kn->mk" if transpose else "mn,nk->mk", dy_rows, weight)
    return d_weight, dx.reshape(x.shape), dy_rows
