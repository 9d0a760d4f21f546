"""InnerProduct as caffe-windows and NormFace have it: weights from bottoms, or with unit rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from ..errors import require
from .axes import after_first_axis, canonical_axis
from .context import Context, ParamSpec
from .dtypes import promote
from .inner_product import INNER_PRODUCT, inner_product, inner_product_backward, inner_product_params, product_of_rows
from .registry import register
from .types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced, Variants
from .unit_rows import nearly_unit_rows

Arrays = tuple[jax.Array, ...]


def inner_product_of_bottoms(
    ctx: Context, blobs: Arrays, x: jax.Array, weight: jax.Array, *bias: jax.Array
) -> jax.Array:
    """InnerProduct with the weight (num_output, K) from bottom 1, and the bias from bottom 2 or else a blob.

    The number of outputs is the weight's; `num_output` and `weight_filler` mean nothing.
    """
    _check(ctx, x, weight, *bias)
    return product_of_rows(ctx, x, weight.reshape(_flat(ctx, weight)), *(bias or blobs))


def inner_product_of_bottoms_params(ctx: Context, x: Any, weight: Any, *bias: Any) -> list[ParamSpec]:
    _check(ctx, x, weight, *bias)
    outputs = _flat(ctx, weight)[1 if ctx.param.transpose else 0]
    return [ParamSpec((outputs,), ctx.param.bias_filler)] if ctx.param.bias_term and not bias else []


def inner_product_of_bottoms_backward(
    ctx: Context, blobs: Arrays, x: jax.Array, weight: jax.Array, *bias: jax.Array, y: jax.Array, dy: jax.Array
) -> tuple[Any, ...]:
    axis, transposed = canonical_axis(ctx.param.axis, x.shape), ctx.param.transpose
    flat = weight.reshape(_flat(ctx, weight))
    rows = x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
    d_rows = dy.reshape(rows.shape[0], flat.shape[1 if transposed else 0])
    d_weight = jnp.einsum("mn,mk->kn" if transposed else "mn,mk->nk", d_rows, rows).reshape(weight.shape)
    dx = jnp.einsum("mn,kn->mk" if transposed else "mn,nk->mk", d_rows, flat).reshape(x.shape)
    d_bias = tuple(promote(d_rows).sum(0) for _ in (bias or blobs))
    return ((), dx, d_weight, *d_bias) if bias or not blobs else (d_bias, dx, d_weight)


def _flat(ctx: Context, weight: Any) -> tuple[int, int]:
    return weight.shape[0], math.prod(weight.shape[1:])


def _check(ctx: Context, x: Any, weight: Any, *bias: Any) -> None:
    require(weight.shape, "bottom 1, the weight, must have axes")
    inputs = math.prod(x.shape[canonical_axis(ctx.param.axis, x.shape) :])
    outputs, columns = _flat(ctx, weight)[:: -1 if ctx.param.transpose else 1]
    require(columns == inputs, f"bottom 1, the weight {weight.shape}, must have {inputs} inputs to go with {x.shape}")
    require(
        not bias or (ctx.param.bias_term and bias[0].shape == (outputs,)),
        f"bottom 2, the bias, must be of shape {(outputs,)}, and bias_term true",
    )


def inner_product_of_unit_rows(ctx: Context, blobs: Arrays, x: jax.Array) -> jax.Array:
    """InnerProduct with `normalize`: the weight's rows are divided by their lengths first."""
    return inner_product(ctx, (nearly_unit_rows(blobs[0]), *blobs[1:]), x)


def inner_product_of_unit_rows_backward(
    ctx: Context, blobs: Arrays, x: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[Any, ...]:
    return inner_product_backward(ctx, (nearly_unit_rows(blobs[0]), *blobs[1:]), x, y=y, dy=dy)


def _variant(layer: Any) -> str:
    if len(layer.bottom) > 1:
        return "of bottoms"
    return "of unit rows" if layer.inner_product_param.normalize else "BVLC's"


OF_BOTTOMS = LayerType(
    Signature("InnerProduct", bottoms=(1, 3), param="inner_product_param"),
    Traced(inner_product_of_bottoms, params=inner_product_of_bottoms_params),
    Gradient(inner_product_of_bottoms_backward),
    LayerTraits(row_wise=False, dtype_policy="products", weight_axes=2),
    docs=LayerDocs(origin="caffe-windows"),
)
OF_UNIT_ROWS = LayerType(
    Signature("InnerProduct", param="inner_product_param", fork_settings=("normalize",)),
    Traced(inner_product_of_unit_rows, params=inner_product_params),
    Gradient(
        inner_product_of_unit_rows_backward,
        overrides_autodiff=True,
        not_derivative="The gradient takes the weight's rows as they are after the division.",
    ),
    LayerTraits(row_wise=after_first_axis, dtype_policy="products", weight_axes=2),
    docs=LayerDocs(
        origin="caffe-windows",
        restrictions="The weight itself stays as it is; the fork overwrites it with the rows of length 1.",
    ),
)

register(
    replace(
        INNER_PRODUCT,
        signature=replace(INNER_PRODUCT.signature, bottoms=(1, 3), fork_settings=("normalize",)),
        implementation=Variants(
            _variant,
            {"BVLC's": INNER_PRODUCT, "of bottoms": OF_BOTTOMS, "of unit rows": OF_UNIT_ROWS},
            selection_doc="They are told apart by the number of bottoms, and by `normalize` in its parameters.",
        ),
    )
)
