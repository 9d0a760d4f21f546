"""BN of PSPNet and of SegNet: batch normalization, followed by a learned scale and shift for each channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...core.layers.batch_norm import batch_statistics, normalize_batch, project_out
from ...core.layers.context import Context, Epilogue, Params, ParamSpec, Phase, Shape
from ...core.layers.declaration import declare, register
from ...core.layers.dtype_policy import promote
from ...core.layers.helpers import first_top, rsqrt, stop_gradient
from ...core.layers.types import (
    ChannelAffine,
    Gradient,
    Signature,
    Traced,
    Variants,
)
from ...core.ops.channels import CHANNELS_FIRST, channel_affine
from ...core.schema.caffe_pb2 import BNParameter, FillerParameter
from ..general.settings_checks import reject_fields

Arrays = tuple[jax.Array, ...]

_SEGNET_SETTINGS = ("bn_mode", "scale_filler", "shift_filler")  # settings of SegNet's layer
_PSPNET_SETTINGS = ("slope_filler", "bias_filler", "momentum", "eps", "frozen")  # settings of PSPNet's layer


def blob_shape(x: Any) -> Shape:
    require(len(x.shape) >= 2, f"needs a bottom with a channel axis (axis 1), not shape {x.shape}")
    return (1, x.shape[1], 1, 1)


def flatten_blob(blob: jax.Array) -> jax.Array:
    return blob.reshape(-1)


def scale_and_shift(ctx: Context, x: jax.Array, factor: jax.Array, bias: jax.Array) -> jax.Array:
    return channel_affine(x, factor, bias, fast=ctx.fast).astype(x.dtype)


def normalize_batch_backward(
    ctx: Context, factor: jax.Array, x: jax.Array, dy: jax.Array, eps: float
) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
    """Return the gradients of (factor, bias) and of the bottom of batch normalization in training.

    Args:
        ctx: the layer.
        factor: the factor of each channel; the gradients of factor and bias have its shape.
        x: the bottom (N, channels, ...).
        dy: the gradient of the top.
        eps: added to the variance.
    """
    mean, variance = batch_statistics(ctx, x)
    deviation, dy = jnp.sqrt(variance + eps), promote(dy)
    normalized = (promote(x) - CHANNELS_FIRST.broadcast(mean, x)) / CHANNELS_FIRST.broadcast(deviation, x)
    d_factor, d_bias = CHANNELS_FIRST.sums(dy * normalized), CHANNELS_FIRST.sums(dy)
    dx = project_out(ctx, dy, normalized) * CHANNELS_FIRST.broadcast(flatten_blob(factor) / deviation, x)
    return (d_factor.reshape(factor.shape), d_bias.reshape(factor.shape)), dx


def _is_pspnet_bn_affine(shapes: Sequence[Shape], axis: int, channels: int, *, ctx: Context) -> bool:
    return not _uses_batch_statistics(ctx) and axis == 1 and shapes[0] == (1, channels, 1, 1)


def pspnet_factor_and_bias(p: BNParameter, blobs: Arrays) -> tuple[jax.Array, jax.Array]:
    slope, bias, mean, variance = (promote(flatten_blob(b)) for b in blobs)
    factor = slope * rsqrt(variance + p.eps)
    bias = bias - mean * factor
    return (stop_gradient(factor), stop_gradient(bias)) if p.frozen else (factor, bias)


@declare(
    "BN",
    param="bn_param",
    stateful=True,
    dtype_policy="bottoms",
    spatial_map="same",
    channel_affine=ChannelAffine(_is_pspnet_bn_affine, pspnet_factor_and_bias),
    weight_axes=4,
    blob_names=("weight", "bias", "mean", "variance"),
    origin="yjxiong/caffe, PSPNet",
)
def pspnet_bn(p: BNParameter, params: Params, x: jax.Array, *, state: Params, ctx: Context) -> tuple[jax.Array, Arrays]:
    """Compute slope * (x - mean) / sqrt(variance + eps) + bias for each channel of (N, channels, ...).

    The blobs are slope, bias, mean and variance, (1, channels, 1, 1) each. In TRAIN, mean and variance are computed
    from the batch, and the stored values become momentum * stored + (1 - momentum) * computed. In TEST, or if `frozen`,
    the stored mean and variance are used. If `frozen`, slope and bias get no gradient.
    """
    if _uses_batch_statistics(ctx):
        return pspnet_bn_fused(p, params, x, (), state=state, ctx=ctx)
    statistics = tuple(state.values())
    return scale_and_shift(ctx, x, *pspnet_factor_and_bias(p, (*params.values(), *statistics))), statistics


@pspnet_bn.params
def pspnet_bn_params(p: BNParameter, x: Any) -> list[ParamSpec]:
    shape = blob_shape(x)
    reject_fields(p, _SEGNET_SETTINGS, "it is a setting of SegNet's layer, but this is PSPNet's")
    require(0 <= p.momentum <= 1, f"momentum must be between 0 and 1, not {p.momentum:g}")
    variance = FillerParameter(type="constant", value=float(p.frozen))
    return [
        ParamSpec(shape, p.slope_filler, name="weight"),
        ParamSpec(shape, p.bias_filler, name="bias"),
        ParamSpec(shape, learnable=False, name="mean"),
        ParamSpec(shape, variance, learnable=False, name="variance"),
    ]


@pspnet_bn.backward
def pspnet_bn_backward(
    p: BNParameter, params: Params, x: jax.Array, *, state: Params, y: jax.Array, dy: jax.Array, ctx: Context
) -> tuple[Any, jax.Array]:
    slope, (mean, variance) = params["weight"], state.values()
    if _uses_batch_statistics(ctx):
        return normalize_batch_backward(ctx, slope, x, dy, p.eps)
    deviation = jnp.sqrt(promote(flatten_blob(variance)) + p.eps)
    dx = promote(dy) * CHANNELS_FIRST.broadcast(flatten_blob(slope) / deviation, x)
    if p.frozen:
        return (None, None), dx
    normalized = (promote(x) - CHANNELS_FIRST.broadcast(flatten_blob(mean), x)) / CHANNELS_FIRST.broadcast(deviation, x)
    d_slope, d_bias = CHANNELS_FIRST.sums(promote(dy) * normalized), CHANNELS_FIRST.sums(promote(dy))
    return (d_slope.reshape(slope.shape), d_bias.reshape(slope.shape)), dx


@pspnet_bn.count_fusible
def pspnet_count_fusible(x: Any, epilogues: Sequence[Epilogue], *, ctx: Context) -> int:
    """Return how many of the next layers (`epilogues`) `pspnet_bn_fused` can compute together with this layer.

    It is 1 in TRAIN if the next layer is a ReLU and this layer is not `frozen`, otherwise 0.
    """
    return int(_uses_batch_statistics(ctx) and epilogues[0].is_relu)


@pspnet_bn.fused
def pspnet_bn_fused(
    p: BNParameter, params: Params, x: jax.Array, epilogues: Sequence[Epilogue], *, state: Params, ctx: Context
) -> tuple[jax.Array, Arrays]:
    """Compute this layer and the next layers, `epilogues`, as one operation.

    `pspnet_count_fusible` determines how many of the next layers are included.
    """
    slope, bias, mean, variance = map(flatten_blob, (*params.values(), *state.values()))
    top, *statistics = normalize_batch(ctx, x, slope, bias, mean, p.eps, relu=bool(epilogues))
    momentum = p.momentum
    new_statistics = (
        momentum * stored + (1 - momentum) * computed
        for stored, computed in zip((mean, variance), statistics, strict=True)
    )
    return top, tuple(
        jax.lax.stop_gradient(n).reshape(b.shape).astype(b.dtype)
        for n, b in zip(new_statistics, state.values(), strict=True)
    )


PSPNET_FROZEN = replace(
    pspnet_bn.type,
    gradient=Gradient(pspnet_bn_backward, overrides_autodiff=True),
    docs=replace(
        pspnet_bn.type.docs,
        unsupported={"second_order": "the top depends on slope and bias, which its gradient ignores"},
    ),
)


def _uses_batch_statistics(ctx: Context) -> bool:
    return ctx.training and not ctx.param.frozen


SEGNET_EPS = 1e-9


def _is_segnet_bn_affine(p: BNParameter, shapes: Sequence[Shape], axis: int, channels: int) -> bool:
    return not _is_learn_mode(p) and axis == 1 and shapes[0] == (1, channels, 1, 1)


def segnet_factor_and_bias(blobs: Arrays) -> tuple[jax.Array, jax.Array]:
    return flatten_blob(blobs[0]), flatten_blob(blobs[1])


@declare(
    "BN",
    param="bn_param",
    overwrites_diffs=True,
    dtype_policy="bottoms",
    spatial_map="same",
    channel_affine=ChannelAffine(_is_segnet_bn_affine, segnet_factor_and_bias),
    weight_axes=4,
    blob_names=("weight", "bias"),
    origin="SegNet, DeconvNet",
)
def segnet_bn(p: BNParameter, params: Params, x: jax.Array, *, ctx: Context) -> object:
    """Compute scale * (x - mean) / sqrt(variance + 1e-9) + shift for each channel.

    Mean and variance are computed from the batch, also in TEST. The bottom is (N, channels, ...). With bn_mode
    INFERENCE, the layer computes scale * x + shift. The blobs are scale and shift, (1, channels, 1, 1) each. Two
    further tops, also (1, channels, 1, 1), contain mean and variance.
    """
    if _is_learn_mode(p) or ctx.num_tops > 1:
        return segnet_bn_fused(params, x, (), ctx=ctx)
    return scale_and_shift(ctx, x, *map(flatten_blob, params.values()))


@segnet_bn.params
def segnet_bn_params(p: BNParameter, x: Any, *, num_tops: int) -> list[ParamSpec]:
    reject_fields(p, _PSPNET_SETTINGS, "it is a setting of PSPNet's layer, but this is SegNet's")
    require(_is_learn_mode(p) or num_tops == 1, "with bn_mode: INFERENCE there are no tops for mean and variance")
    return [
        ParamSpec(blob_shape(x), p.scale_filler, name="weight"),
        ParamSpec(blob_shape(x), p.shift_filler, name="bias"),
    ]


@segnet_bn.backward
def segnet_bn_backward(
    p: BNParameter, params: Params, x: jax.Array, *, y: Any, dy: Any, ctx: Context
) -> tuple[Any, jax.Array]:
    d_top, scale = first_top(dy), params["weight"]
    if _is_learn_mode(p):
        return normalize_batch_backward(ctx, scale, x, d_top, SEGNET_EPS)
    d_scale, d_shift = CHANNELS_FIRST.sums(promote(d_top) * x), CHANNELS_FIRST.sums(promote(d_top))
    return (d_scale.reshape(scale.shape), d_shift.reshape(scale.shape)), d_top * CHANNELS_FIRST.broadcast(
        flatten_blob(scale), x
    )


def segnet_bn_in_place(p: Any, params: Params, x: jax.Array, *, ctx: Context) -> object:
    """Compute scale * x + shift for each channel in-place (bn_mode INFERENCE): the top has the name of the bottom.

    As in the fork, where the top overwrites the bottom, the gradient of the scale is computed from the top.
    """
    return segnet_bn(p, params, x, ctx=ctx)


def segnet_bn_in_place_backward(
    p: Any, params: Params, x: jax.Array, *, y: Any, dy: Any, ctx: Context
) -> tuple[Any, jax.Array]:
    (_, d_shift), dx = segnet_bn_backward(p, params, x, y=y, dy=dy, ctx=ctx)
    return (CHANNELS_FIRST.sums(promote(dy) * y).reshape(d_shift.shape), d_shift), dx


def _is_segnet_bn_in_place_affine(p: Any, shapes: Sequence[Shape], axis: int, channels: int, *, phase: Phase) -> bool:
    return phase == "TEST" and _is_segnet_bn_affine(p, shapes, axis, channels)


@segnet_bn.count_fusible
def segnet_count_fusible(p: BNParameter, x: Any, epilogues: Sequence[Epilogue]) -> int:
    """Return how many of the next layers (`epilogues`) `segnet_bn_fused` can compute together with this layer.

    It is 1 with bn_mode LEARN if the next layer is a ReLU, otherwise 0.
    """
    return int(_is_learn_mode(p) and epilogues[0].is_relu)


@segnet_bn.fused
def segnet_bn_fused(params: Params, x: jax.Array, epilogues: Sequence[Epilogue], *, ctx: Context) -> object:
    """Compute this layer and the next layers, `epilogues`, as one operation.

    `segnet_count_fusible` determines how many of the next layers are included.
    """
    scale, shift = map(flatten_blob, params.values())
    top, *statistics = normalize_batch(ctx, x, scale, shift, jnp.zeros_like(shift), SEGNET_EPS, relu=bool(epilogues))
    return (
        top
        if ctx.num_tops == 1
        else (top, *(b.reshape(blob_shape(x)).astype(x.dtype) for b in statistics[: ctx.num_tops - 1]))
    )


SEGNET_WITH_STATISTICS = replace(
    segnet_bn.type,
    signature=Signature("BN", tops=(2, 3), param="bn_param"),
    gradient=Gradient(segnet_bn_backward, overrides_autodiff=True, overwrites_diffs=True),
)
SEGNET_IN_PLACE = replace(
    segnet_bn.type,
    implementation=Traced(segnet_bn_in_place, params=segnet_bn_params),
    gradient=Gradient(
        segnet_bn_in_place_backward,
        overrides_autodiff=True,
        overwrites_diffs=True,
        deviation="The gradient of the scale is computed from the top, which overwrites the bottom.",
    ),
    traits=replace(
        segnet_bn.type.traits, channel_affine=ChannelAffine(_is_segnet_bn_in_place_affine, segnet_factor_and_bias)
    ),
)


def _is_learn_mode(p: BNParameter) -> bool:
    return bool(p.bn_mode == p.LEARN)


def select_bn(layer: Any) -> str:
    """Return the name of the variant of a layer of type BN, such as "PSPNet" or "SegNet"."""
    p = layer.bn_param
    has_segnet_setting = any(p.HasField(field) for field in _SEGNET_SETTINGS)
    if not p.icnet and (has_segnet_setting or len(layer.blobs) == 2 or len(layer.top) > 1):
        if len(layer.top) > 1:
            return "SegNet, with statistics"
        is_in_place = p.bn_mode == p.INFERENCE and list(layer.top) == list(layer.bottom) != [""]
        return "SegNet, in place" if is_in_place else "SegNet"
    return "PSPNet, frozen" if p.frozen else "PSPNet"


register(
    "BN",
    Variants(
        select_bn,
        {
            "PSPNet": pspnet_bn.type,
            "PSPNet, frozen": PSPNET_FROZEN,
            "SegNet": segnet_bn.type,
            "SegNet, in place": SEGNET_IN_PLACE,
            "SegNet, with statistics": SEGNET_WITH_STATISTICS,
        },
        "A layer with bn_mode, scale_filler or shift_filler, with two blobs, or with tops for the statistics is "
        "SegNet's, unless it has `icnet: true`. All others are PSPNet's.",
    ),
    tops=(1, 3),
    param="bn_param",
    origin="PSPNet, SegNet",
)
