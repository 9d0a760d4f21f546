"""InnerProduct, the fully connected layer.

Caffe's rule (inner_product_layer.cpp): the bottom's axes before `axis` are rows, the others are inputs.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jax import Array

from ...base.errors import require
from ..ops.channels import add_bias_to_rows
from ..ops.matmul import matmul_rows
from ..schema.caffe_pb2 import InnerProductParameter
from .context import Arrays, Params, ParamSpec, Shape
from .declaration import register
from .dtype_policy import promote
from .helpers import canonical_axis, is_after_first_axis
from .weight_and_bias import fold_scale_bias, weight_and_bias_specs


@register(
    "InnerProduct",
    param="inner_product_param",
    row_wise=is_after_first_axis,
    dtype_policy="products",
    weight_axes=2,
    blob_names=("weight", "bias"),
    fold_scale_bias=fold_scale_bias,
)
def inner_product(p: InnerProductParameter, params: Params, x: Array, *, fast: bool) -> Array:
    """Multiply x, flattened from `axis` on to K inputs, by the weight, and add a bias: (N, ...) to (N, num_output).

    Blobs: weight (num_output, K), or (K, num_output) with `transpose`, and bias (num_output,). Axes before `axis`
    remain. Caffe's rule: inner_product_layer.cpp.
    """
    return multiply_by_weight(p, x, *params.values(), fast=fast)


def multiply_by_weight(p: InnerProductParameter, x: Array, weight: Array, *bias: Array, fast: bool) -> Array:
    """Multiply the rows of x by a weight, and add a bias if there is one."""
    row_shape, num_inputs = split_shape(p, x.shape)
    y = matmul_rows(x.reshape(*(row_shape or (1,)), num_inputs), weight, p.transpose, fast=fast)
    if bias:
        y = add_bias_to_rows(y, bias[0], fast=fast).astype(y.dtype)
    return y.reshape(*row_shape, weight.shape[1 if p.transpose else 0])


def split_shape(p: InnerProductParameter, shape: Shape) -> tuple[Shape, int]:
    """Split a bottom's shape into its leading axes, which are rows, and the number of inputs in each row."""
    axis = canonical_axis(p.axis, shape)
    return shape[:axis], math.prod(shape[axis:])


@inner_product.params
def inner_product_params(p: InnerProductParameter, x: Array) -> list[ParamSpec]:
    require(p.num_output > 0, f"num_output must be positive, not {p.num_output}")
    _, num_inputs = split_shape(p, x.shape)
    return weight_and_bias_specs(p, (num_inputs, p.num_output) if p.transpose else (p.num_output, num_inputs))


@inner_product.top_shapes
def inner_product_top_shapes(p: InnerProductParameter, x: Any) -> list[Shape] | None:
    return [(*split_shape(p, x.shape)[0], p.num_output)]


@inner_product.backward
def inner_product_backward(
    p: InnerProductParameter, params: Params, x: Array, *, y: Array, dy: Array
) -> tuple[Arrays, Array]:
    weight, *bias = params.values()
    d_weight, dx, dy_rows = product_gradients(p, x, weight, dy)
    return (d_weight, *(promote(dy_rows).sum(0) for _ in bias)), dx


def product_gradients(p: InnerProductParameter, x: Array, weight: Array, dy: Array) -> tuple[Array, Array, Array]:
    """Return the gradients of the weight and of x, and dy as (rows, outputs)."""
    (row_shape, num_inputs), transpose = split_shape(p, x.shape), p.transpose
    rows = x.reshape(math.prod(row_shape), num_inputs)
    dy_rows = dy.reshape(rows.shape[0], weight.shape[1 if transpose else 0])
    d_weight = jnp.einsum("mn,mk->kn" if transpose else "mn,mk->nk", dy_rows, rows)
    dx = jnp.einsum("mn,kn->mk" if transpose else "mn,nk->mk", dy_rows, weight)
    return d_weight, dx.reshape(x.shape), dy_rows
