"""InnerProduct, the fully connected layer, and the variants of caffe-windows, NormFace and MyCaffe.

Caffe's rule (inner_product_layer.cpp): the bottom's axes before `axis` are rows, the others are inputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ..ops.channel_affine import add_bias_to_rows
from ..ops.matmul import matmul_rows
from ..schema.caffe_pb2 import FillerParameter
from .context import Context, ParamSpec, Shape
from .dtype_policy import promote
from .fillers import scale_filler
from .helpers import canonical_axis, is_after_first_axis
from .registry import register
from .types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced, Variants
from .weight_and_bias import fold_scale_bias, normalize_rows, weight_and_bias_specs

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


def read_inner_product(ctx: Context) -> InnerProductSettings:
    """Return the settings of the layer's InnerProductParameter."""
    p = ctx.param
    return InnerProductSettings(p.num_output, p.bias_term, p.weight_filler, p.bias_filler, p.axis, p.transpose)


def inner_product(ctx: Context, blobs: Arrays, x: jax.Array) -> jax.Array:
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


def inner_product_params(ctx: Context, x: jax.Array) -> list[ParamSpec]:
    s = ctx.settings
    require(s.num_output > 0, f"num_output must be positive, not {s.num_output}")
    _, num_inputs = s.split_shape(x.shape)
    return weight_and_bias_specs(s, (num_inputs, s.num_output) if s.transpose else (s.num_output, num_inputs))


def inner_product_top_shapes(ctx: Context, x: Any) -> list[Shape] | None:
    return [(*ctx.settings.split_shape(x.shape)[0], ctx.settings.num_output)]


def inner_product_backward(
    ctx: Context, blobs: Arrays, x: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[Arrays, jax.Array]:
    weight, *bias = blobs
    d_weight, dx, dy_rows = _product_gradients(ctx, x, weight, dy)
    return (d_weight, *(promote(dy_rows).sum(0) for _ in bias)), dx


def _product_gradients(
    ctx: Context, x: jax.Array, weight: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the gradients of the weight and of x, and dy as (rows, outputs)."""
    (row_shape, num_inputs), transpose = ctx.settings.split_shape(x.shape), ctx.settings.transpose
    rows = x.reshape(math.prod(row_shape), num_inputs)
    dy_rows = dy.reshape(rows.shape[0], weight.shape[1 if transpose else 0])
    d_weight = jnp.einsum("mn,mk->kn" if transpose else "mn,mk->nk", dy_rows, rows)
    dx = jnp.einsum("mn,kn->mk" if transpose else "mn,nk->mk", dy_rows, weight)
    return d_weight, dx.reshape(x.shape), dy_rows


INNER_PRODUCT = LayerType(  # registered below, with its variants
    Signature("InnerProduct", param="inner_product_param"),
    Traced(inner_product, params=inner_product_params, top_shapes=inner_product_top_shapes),
    Gradient(inner_product_backward),
    LayerTraits(row_wise=is_after_first_axis, dtype_policy="products", weight_axes=2, fold_scale_bias=fold_scale_bias),
    settings=read_inner_product,
)


def inner_product_of_bottoms(
    ctx: Context, blobs: Arrays, x: jax.Array, weight: jax.Array, *bias: jax.Array
) -> jax.Array:
    """Apply InnerProduct with the weight (num_output, K) from bottom 1, and the bias from bottom 2 or from a blob.

    The weight determines the number of outputs; `num_output` and `weight_filler` are ignored.
    """
    _check_bottoms(ctx, x, weight, *bias)
    return multiply_by_weight(ctx, x, weight.reshape(_matrix_shape(weight)), *(bias or blobs))


def inner_product_of_bottoms_params(ctx: Context, x: Any, weight: Any, *bias: Any) -> list[ParamSpec]:
    _check_bottoms(ctx, x, weight, *bias)
    num_outputs = _matrix_shape(weight)[1 if ctx.settings.transpose else 0]
    return [ParamSpec((num_outputs,), ctx.settings.bias_filler)] if ctx.settings.bias_term and not bias else []


def inner_product_of_bottoms_backward(
    ctx: Context, blobs: Arrays, x: jax.Array, weight: jax.Array, *bias: jax.Array, y: jax.Array, dy: jax.Array
) -> tuple[Any, ...]:
    d_flat, dx, dy_rows = _product_gradients(ctx, x, weight.reshape(_matrix_shape(weight)), dy)
    d_weight = d_flat.reshape(weight.shape)
    d_bias = tuple(promote(dy_rows).sum(0) for _ in (bias or blobs))
    return ((), dx, d_weight, *d_bias) if bias or not blobs else (d_bias, dx, d_weight)


def _matrix_shape(weight: Any) -> tuple[int, int]:
    return weight.shape[0], math.prod(weight.shape[1:])


def _check_bottoms(ctx: Context, x: Any, weight: Any, *bias: Any) -> None:
    require(weight.shape, "bottom 1, the weight, must have at least one axis")
    _, num_inputs = ctx.settings.split_shape(x.shape)
    num_outputs, num_columns = _matrix_shape(weight)[:: -1 if ctx.settings.transpose else 1]
    require(
        num_columns == num_inputs,
        f"bottom 1, the weight, must have {num_inputs} inputs to match bottom 0, {x.shape}, but has shape "
        f"{weight.shape}",
    )
    if bias:
        shape = tuple(bias[0].shape)
        require(ctx.settings.bias_term, "bottom 2, the bias, requires bias_term: true")
        require(shape == (num_outputs,), f"bottom 2, the bias, must have shape {(num_outputs,)}, not {shape}")


def inner_product_of_unit_rows(ctx: Context, blobs: Arrays, x: jax.Array) -> jax.Array:
    """Apply InnerProduct with `normalize`: each row of the weight is divided by its length, also in the stored blob.

    As in the fork, a transposed weight (K, num_output) is read as if it were (num_output, K), and divided row by row.
    """
    return inner_product(ctx, (_normalize_weight_rows(ctx.settings.num_output, blobs[0]), *blobs[1:]), x)


def inner_product_of_unit_rows_params(ctx: Context, x: jax.Array) -> list[ParamSpec]:
    weight, *bias = inner_product_params(ctx, x)
    return [replace(weight, rewrite=partial(_normalize_weight_rows, ctx.settings.num_output)), *bias]


def inner_product_of_unit_rows_backward(
    ctx: Context, blobs: Arrays, x: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[Any, ...]:
    return inner_product_backward(
        ctx, (_normalize_weight_rows(ctx.settings.num_output, blobs[0]), *blobs[1:]), x, y=y, dy=dy
    )


def _normalize_weight_rows(num_outputs: int, weight: jax.Array) -> jax.Array:
    return normalize_rows(weight.reshape(num_outputs, -1), eps=1e-6).reshape(weight.shape)


def noisy_inner_product(ctx: Context, blobs: Arrays, x: jax.Array) -> jax.Array:
    """Apply InnerProduct with `enable_noise`: in TRAIN, weight and bias are mean + deviation * noise.

    Blobs: the means of weight and bias, which have the shapes of InnerProduct's blobs, then their deviations, with the
    same shapes. The noise is uniform in -1 .. 1 and is sampled in each pass, while MyCaffe samples it when its trainer
    requests new noise. TEST computes with the means.
    """
    return inner_product(ctx, _add_noise(blobs, _sample_noise(ctx, blobs)), x)


def noisy_inner_product_params(ctx: Context, x: jax.Array) -> list[ParamSpec]:
    means, p = inner_product_params(ctx, x), ctx.param
    fan_in = means[0].shape[1]
    deviations = [p.sigma_init / math.sqrt(n) for n in (fan_in, p.num_output)]
    return [
        *(replace(spec, filler=scale_filler(spec.filler, 1 / math.sqrt(fan_in), spec.shape)) for spec in means),
        *(
            ParamSpec(spec.shape, FillerParameter(type="constant", value=value))
            for spec, value in zip(means, deviations, strict=False)
        ),
    ]


def noisy_inner_product_backward(
    ctx: Context, blobs: Arrays, x: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[Any, jax.Array]:
    noise = _sample_noise(ctx, blobs)
    diffs, dx = inner_product_backward(ctx, _add_noise(blobs, noise), x, y=y, dy=dy)
    deviation_diffs = [d * n for d, n in zip(diffs, noise, strict=True)] if noise else [None] * len(diffs)
    return (*diffs, *deviation_diffs), dx


def _sample_noise(ctx: Context, blobs: Arrays) -> list[jax.Array]:
    """Return the noise of the weight and, if there is one, of the bias; in TEST return an empty list."""
    if not ctx.training:
        return []
    means = blobs[: len(blobs) // 2]
    keys = jax.random.split(ctx.key, len(means))
    return [jax.random.uniform(key, b.shape, b.dtype, -1, 1) for key, b in zip(keys, means, strict=True)]


def _add_noise(blobs: Arrays, noise: list[jax.Array]) -> Arrays:
    means, deviations = blobs[: len(blobs) // 2], blobs[len(blobs) // 2 :]
    return tuple(m + s * n for m, s, n in zip(means, deviations, noise, strict=True)) if noise else means


def _select_variant(layer: Any) -> str:
    if len(layer.bottom) > 1:
        return "of bottoms"
    if layer.inner_product_param.enable_noise:
        return "with noise"
    return "of unit rows" if layer.inner_product_param.normalize else "BVLC's"


INNER_PRODUCT_OF_BOTTOMS = LayerType(
    Signature("InnerProduct", bottoms=(1, 3), param="inner_product_param"),
    Traced(inner_product_of_bottoms, params=inner_product_of_bottoms_params),
    Gradient(inner_product_of_bottoms_backward),
    LayerTraits(row_wise=False, dtype_policy="products", weight_axes=2),
    docs=LayerDocs(origin="caffe-windows"),
    settings=read_inner_product,
)
INNER_PRODUCT_OF_UNIT_ROWS = LayerType(
    Signature("InnerProduct", param="inner_product_param", fork_settings=("normalize",)),
    Traced(inner_product_of_unit_rows, params=inner_product_of_unit_rows_params),
    Gradient(
        inner_product_of_unit_rows_backward,
        overrides_autodiff=True,
        deviation="The gradient treats the normalized rows of the weight as the parameters.",
    ),
    LayerTraits(row_wise=is_after_first_axis, dtype_policy="products", weight_axes=2),
    docs=LayerDocs(origin="caffe-windows"),
    settings=read_inner_product,
)
NOISY_INNER_PRODUCT = LayerType(
    Signature("InnerProduct", param="inner_product_param", fork_settings=("enable_noise", "sigma_init")),
    Traced(noisy_inner_product, params=noisy_inner_product_params),
    Gradient(noisy_inner_product_backward),
    LayerTraits(row_wise=is_after_first_axis, dtype_policy="products", weight_axes=2),
    docs=LayerDocs(origin="MyCaffe"),
    settings=read_inner_product,
)

register(
    replace(
        INNER_PRODUCT,
        signature=replace(
            INNER_PRODUCT.signature, bottoms=(1, 3), fork_settings=("normalize", "enable_noise", "sigma_init")
        ),
        implementation=Variants(
            _select_variant,
            {
                "BVLC's": INNER_PRODUCT,
                "of bottoms": INNER_PRODUCT_OF_BOTTOMS,
                "of unit rows": INNER_PRODUCT_OF_UNIT_ROWS,
                "with noise": NOISY_INNER_PRODUCT,
            },
            selection_doc="The number of bottoms, `normalize` and `enable_noise` in inner_product_param select the "
            "variant.",
        ),
    )
)
