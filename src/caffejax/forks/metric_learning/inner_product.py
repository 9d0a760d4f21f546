"""Variants of InnerProduct: a weight from a bottom, unit rows (caffe-windows, NormFace), and noise (MyCaffe)."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import jax

from ...base.errors import require
from ...core.layers.context import Context, Params, ParamSpec
from ...core.layers.declaration import declare
from ...core.layers.dtype_policy import promote
from ...core.layers.fillers import scale_filler
from ...core.layers.helpers import is_after_first_axis
from ...core.layers.inner_product import (
    inner_product,
    inner_product_backward,
    inner_product_params,
    multiply_by_weight,
    product_gradients,
    split_shape,
)
from ...core.layers.registry import register_variants
from ...core.layers.weight_and_bias import normalize_rows
from ...core.schema.caffe_pb2 import FillerParameter, InnerProductParameter

Arrays = tuple[jax.Array, ...]


@declare(
    "InnerProduct",
    bottoms=(1, 3),
    param="inner_product_param",
    row_wise=False,
    dtype_policy="products",
    weight_axes=2,
    blob_names=("weight", "bias"),
    origin="caffe-windows",
)
def inner_product_of_bottoms(
    p: InnerProductParameter, params: Params, x: jax.Array, weight: jax.Array, *bias: jax.Array, fast: bool
) -> jax.Array:
    """Apply InnerProduct with the weight (num_output, K) from bottom 1, and the bias from bottom 2 or from a blob.

    The weight determines the number of outputs; `num_output` and `weight_filler` are ignored.
    """
    _check_bottoms(p, x, weight, *bias)
    return multiply_by_weight(p, x, weight.reshape(_matrix_shape(weight)), *(bias or params.values()), fast=fast)


@inner_product_of_bottoms.params
def inner_product_of_bottoms_params(p: InnerProductParameter, x: Any, weight: Any, *bias: Any) -> list[ParamSpec]:
    _check_bottoms(p, x, weight, *bias)
    num_outputs = _matrix_shape(weight)[1 if p.transpose else 0]
    return [ParamSpec((num_outputs,), p.bias_filler, name="bias")] if p.bias_term and not bias else []


@inner_product_of_bottoms.backward
def inner_product_of_bottoms_backward(
    p: InnerProductParameter,
    params: Params,
    x: jax.Array,
    weight: jax.Array,
    *bias: jax.Array,
    y: jax.Array,
    dy: jax.Array,
) -> tuple[Any, ...]:
    d_flat, dx, dy_rows = product_gradients(p, x, weight.reshape(_matrix_shape(weight)), dy)
    d_weight = d_flat.reshape(weight.shape)
    d_bias = tuple(promote(dy_rows).sum(0) for _ in (bias or params))
    return ((), dx, d_weight, *d_bias) if bias or not params else (d_bias, dx, d_weight)


def _matrix_shape(weight: Any) -> tuple[int, int]:
    return weight.shape[0], math.prod(weight.shape[1:])


def _check_bottoms(p: InnerProductParameter, x: Any, weight: Any, *bias: Any) -> None:
    require(weight.shape, "bottom 1, the weight, must have at least one axis")
    _, num_inputs = split_shape(p, x.shape)
    num_outputs, num_columns = _matrix_shape(weight)[:: -1 if p.transpose else 1]
    require(
        num_columns == num_inputs,
        f"bottom 1, the weight, must have {num_inputs} inputs to match bottom 0, {x.shape}, but has shape "
        f"{weight.shape}",
    )
    if bias:
        shape = tuple(bias[0].shape)
        require(p.bias_term, "bottom 2, the bias, requires bias_term: true")
        require(shape == (num_outputs,), f"bottom 2, the bias, must have shape {(num_outputs,)}, not {shape}")


@declare(
    "InnerProduct",
    param="inner_product_param",
    fork_settings=("normalize",),
    overrides_autodiff=True,
    deviation="The gradient treats the normalized rows of the weight as the parameters.",
    row_wise=is_after_first_axis,
    dtype_policy="products",
    weight_axes=2,
    blob_names=("weight", "bias"),
    origin="caffe-windows",
)
def inner_product_of_unit_rows(p: InnerProductParameter, params: Params, x: jax.Array, *, fast: bool) -> jax.Array:
    """Apply InnerProduct with `normalize`: each row of the weight is divided by its length, also in the stored blob.

    As in the fork, a transposed weight (K, num_output) is read as if it were (num_output, K), and divided row by row.
    """
    return inner_product(p, {**params, "weight": _normalize_weight_rows(p.num_output, params["weight"])}, x, fast=fast)


@inner_product_of_unit_rows.params
def inner_product_of_unit_rows_params(p: InnerProductParameter, x: jax.Array) -> list[ParamSpec]:
    weight, *bias = inner_product_params(p, x)
    return [replace(weight, rewrite=partial(_normalize_weight_rows, p.num_output)), *bias]


@inner_product_of_unit_rows.backward
def inner_product_of_unit_rows_backward(
    p: InnerProductParameter, params: Params, x: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[Any, ...]:
    unit_rows = {**params, "weight": _normalize_weight_rows(p.num_output, params["weight"])}
    return inner_product_backward(p, unit_rows, x, y=y, dy=dy)


def _normalize_weight_rows(num_outputs: int, weight: jax.Array) -> jax.Array:
    return normalize_rows(weight.reshape(num_outputs, -1), eps=1e-6).reshape(weight.shape)


@declare(
    "InnerProduct",
    param="inner_product_param",
    fork_settings=("enable_noise", "sigma_init"),
    row_wise=is_after_first_axis,
    dtype_policy="products",
    weight_axes=2,
    blob_names=("weight", "bias", "weight_deviation", "bias_deviation"),
    origin="MyCaffe",
)
def noisy_inner_product(p: InnerProductParameter, params: Params, x: jax.Array, *, ctx: Context) -> jax.Array:
    """Apply InnerProduct with `enable_noise`: in TRAIN, weight and bias are mean + deviation * noise.

    Blobs: the means of weight and bias, which have the shapes of InnerProduct's blobs, then their deviations, with the
    same shapes. The noise is uniform in -1 .. 1 and is sampled in each pass, while MyCaffe samples it when its trainer
    requests new noise. TEST computes with the means.
    """
    return inner_product(p, _add_noise(params, _sample_noise(ctx, params)), x, fast=ctx.fast)


@noisy_inner_product.params
def noisy_inner_product_params(p: InnerProductParameter, x: jax.Array) -> list[ParamSpec]:
    means = inner_product_params(p, x)
    fan_in = means[0].shape[1]
    deviations = [p.sigma_init / math.sqrt(n) for n in (fan_in, p.num_output)]
    return [
        *(replace(spec, filler=scale_filler(spec.filler, 1 / math.sqrt(fan_in), spec.shape)) for spec in means),
        *(
            ParamSpec(spec.shape, FillerParameter(type="constant", value=value), name=f"{spec.name}_deviation")
            for spec, value in zip(means, deviations, strict=False)
        ),
    ]


@noisy_inner_product.backward
def noisy_inner_product_backward(
    p: InnerProductParameter, params: Params, x: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context
) -> tuple[Any, jax.Array]:
    noise = _sample_noise(ctx, params)
    diffs, dx = inner_product_backward(p, _add_noise(params, noise), x, y=y, dy=dy)
    deviation_diffs = [d * n for d, n in zip(diffs, noise, strict=True)] if noise else [None] * len(diffs)
    return (*diffs, *deviation_diffs), dx


def _sample_noise(ctx: Context, params: Params) -> list[jax.Array]:
    """Return the noise of the weight and, if there is one, of the bias; in TEST return an empty list."""
    if not ctx.training:
        return []
    means = list(params.values())[: len(params) // 2]
    keys = jax.random.split(ctx.key, len(means))
    return [jax.random.uniform(key, b.shape, b.dtype, -1, 1) for key, b in zip(keys, means, strict=True)]


def _add_noise(params: Params, noise: list[jax.Array]) -> Params:
    means = [name for name in params if not name.endswith("_deviation")]
    if not noise:
        return {name: params[name] for name in means}
    return {name: params[name] + params[f"{name}_deviation"] * n for name, n in zip(means, noise, strict=True)}


def _select_variant(layer: Any) -> str | None:
    if len(layer.bottom) > 1:
        return "of bottoms"
    if layer.inner_product_param.enable_noise:
        return "with noise"
    return "of unit rows" if layer.inner_product_param.normalize else None


register_variants(
    "InnerProduct",
    _select_variant,
    {
        "of bottoms": inner_product_of_bottoms.type,
        "of unit rows": inner_product_of_unit_rows.type,
        "with noise": noisy_inner_product.type,
    },
    "The number of bottoms, `normalize` and `enable_noise` in inner_product_param select the variant.",
)
