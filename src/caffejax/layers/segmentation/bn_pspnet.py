"""BN as PSPNet has it: normalised by the batch in TRAIN, by moving statistics in TEST."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from ...kernels.sums import FIRST
from ..context import Context, ParamSpec, Shape
from ..dtypes import promote
from ..epilogue import Epilogue
from ..namespace import rsqrt, stop_gradient
from ..types import ByChannel, Fusion, Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .bn_shared import blob_shape, channels_of, normalized, normalized_diffs, scaled

Arrays = tuple[jax.Array, ...]


def moving_bn(ctx: Context, blobs: Arrays, x: jax.Array) -> tuple[jax.Array, Arrays]:
    """slope * (x - mean) / sqrt(variance + eps) + bias, channel by channel; blobs of (1, channels, 1, 1).

    In TRAIN mean and variance are the batch's, and the blobs mean and variance become momentum * blob + (1 - momentum)
    * batch's; in TEST, or if `frozen`, they are the blobs. If `frozen`, slope and bias get no gradient.
    """
    if not _by_batch(ctx):
        return scaled(ctx, x, *moving_factor_and_bias(ctx, blobs)), blobs[2:]
    return moving_bn_fused(ctx, blobs, x, ())


def moving_bn_params(ctx: Context, x: Any) -> list[ParamSpec]:
    p, shape = ctx.param, blob_shape(x)
    require(not p.icnet, "icnet: true is not supported")
    require(0 <= p.momentum <= 1, f"momentum must lie between 0 and 1, not be {p.momentum:g}")
    variance = type(p.slope_filler)(type="constant", value=1)
    learned = [ParamSpec(shape, p.slope_filler), ParamSpec(shape, p.bias_filler)]
    return [*learned, ParamSpec(shape, learnable=False), ParamSpec(shape, variance, learnable=False)]


def moving_bn_backward(
    ctx: Context, blobs: Arrays, x: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[Any, jax.Array]:
    slope, _, mean, variance = blobs
    if _by_batch(ctx):
        (d_slope, d_bias), dx = normalized_diffs(ctx, slope, x, dy, ctx.param.eps)
        return (d_slope, d_bias, None, None), dx
    deviation = jnp.sqrt(promote(channels_of(variance)) + ctx.param.eps)
    dx = promote(dy) * FIRST.along(channels_of(slope) / deviation, x)
    if ctx.param.frozen:
        return (None, None, None, None), dx
    normal = (promote(x) - FIRST.along(channels_of(mean), x)) / FIRST.along(deviation, x)
    d_slope, d_bias = FIRST.sums(promote(dy) * normal), FIRST.sums(promote(dy))
    return (d_slope.reshape(slope.shape), d_bias.reshape(slope.shape), None, None), dx


def _moving_is_affine(ctx: Context, shapes: Sequence[Shape], axis: int, channels: int) -> bool:
    return not _by_batch(ctx) and axis == 1 and shapes[0] == (1, channels, 1, 1)


def moving_factor_and_bias(ctx: Context, blobs: Arrays) -> tuple[jax.Array, jax.Array]:
    slope, bias, mean, variance = (promote(channels_of(b)) for b in blobs)
    factor = slope * rsqrt(variance + ctx.param.eps)
    bias = bias - mean * factor
    return (stop_gradient(factor), stop_gradient(bias)) if ctx.param.frozen else (factor, bias)


def moving_bn_fusible(ctx: Context, x: Any, epilogues: Sequence[Epilogue]) -> int:
    """Count a ReLU right after it, where the batch is normalised by itself."""
    return int(_by_batch(ctx) and epilogues[0].is_relu)


def moving_bn_fused(
    ctx: Context, blobs: Arrays, x: jax.Array, epilogues: Sequence[Epilogue]
) -> tuple[jax.Array, Arrays]:
    """Compute it with what `moving_bn_fusible` counts."""
    slope, bias, mean, variance = map(channels_of, blobs)
    top, *batch = normalized(ctx, x, slope, bias, mean, ctx.param.eps, relu=bool(epilogues))
    momentum = ctx.param.momentum
    new = (momentum * old + (1 - momentum) * now for old, now in zip((mean, variance), batch, strict=True))
    return top, tuple(
        jax.lax.stop_gradient(n).reshape(b.shape).astype(b.dtype) for n, b in zip(new, blobs[2:], strict=True)
    )


PSPNET = LayerType(
    Signature("BN", param="bn_param"),
    Traced(moving_bn, params=moving_bn_params, stateful=True, fusion=Fusion(moving_bn_fusible, moving_bn_fused)),
    Gradient(moving_bn_backward),
    LayerTraits(
        dtype_policy="bottoms",
        spatial_map="same",
        by_channel=ByChannel(_moving_is_affine, moving_factor_and_bias),
        weight_axes=4,
    ),
    docs=LayerDocs(origin="yjxiong/caffe, PSPNet"),
)
FROZEN = replace(
    PSPNET,
    gradient=Gradient(moving_bn_backward, overrides_autodiff=True),
    docs=replace(
        PSPNET.docs, unsupported={"second": "the top depends on slope and bias, of which its gradient takes no notice"}
    ),
)


def _by_batch(ctx: Context) -> bool:
    return ctx.training and not ctx.param.frozen
