"""InnerProduct: the fully connected layer."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ..errors import require
from ..kernels.affine import add_to_rows
from ..kernels.product import rows_times
from .axes import after_first_axis, canonical_axis
from .context import Context, ParamSpec, Shape
from .dtypes import promote
from .types import Gradient, LayerTraits, LayerType, Signature, Traced
from .weights import taken_by_outputs, weight_and_bias


def inner_product(ctx: Context, blobs: tuple[jax.Array, ...], x: jax.Array) -> jax.Array:
    """x flattened from `axis` on, times the weight's rows, plus a bias: (..., K) to (..., num_output)."""
    return product_of_rows(ctx, x, *blobs)


def product_of_rows(ctx: Context, x: jax.Array, weight: jax.Array, *bias: jax.Array) -> jax.Array:
    """Multiply rows of x by a weight, and add a bias if there is one."""
    axis = canonical_axis(ctx.param.axis, x.shape)
    rows = x.reshape(*(x.shape[:axis] or (1,)), math.prod(x.shape[axis:]))
    y = rows_times(rows, weight, ctx.param.transpose, fast=ctx.fast)
    if bias:
        y = add_to_rows(y, bias[0], fast=ctx.fast).astype(y.dtype)
    return y.reshape(*x.shape[:axis], weight.shape[1 if ctx.param.transpose else 0])


def inner_product_params(ctx: Context, x: jax.Array) -> list[ParamSpec]:
    p = ctx.param
    require(p.num_output > 0, "num_output must be positive")
    inputs = math.prod(x.shape[canonical_axis(p.axis, x.shape) :])
    return weight_and_bias(p, (inputs, p.num_output) if p.transpose else (p.num_output, inputs))


def inner_product_top_shapes(ctx: Context, x: Any) -> list[Shape] | None:
    return [(*x.shape[: canonical_axis(ctx.param.axis, x.shape)], ctx.param.num_output)]


def inner_product_backward(
    ctx: Context, blobs: tuple[jax.Array, ...], x: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[tuple[jax.Array, ...], jax.Array]:
    weight, *bias = blobs
    axis = canonical_axis(ctx.param.axis, x.shape)
    rows = x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
    d_rows = dy.reshape(rows.shape[0], ctx.param.num_output)
    d_weight = jnp.einsum("mn,mk->kn" if ctx.param.transpose else "mn,mk->nk", d_rows, rows)
    dx = jnp.einsum("mn,kn->mk" if ctx.param.transpose else "mn,nk->mk", d_rows, weight)
    return (d_weight, *(promote(d_rows).sum(0) for _ in bias)), dx.reshape(x.shape)


INNER_PRODUCT = LayerType(  # registered with its other forms
    Signature("InnerProduct", param="inner_product_param"),
    Traced(inner_product, params=inner_product_params, top_shapes=inner_product_top_shapes),
    Gradient(inner_product_backward),
    LayerTraits(row_wise=after_first_axis, dtype_policy="products", weight_axes=2, fold_scale_bias=taken_by_outputs),
)
