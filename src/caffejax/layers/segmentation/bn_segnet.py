"""BN as SegNet has it: always normalised by the batch, or not at all."""

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
from ..tops import first
from ..types import ByChannel, Fusion, Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .bn_shared import blob_shape, channels_of, normalized, normalized_diffs, scaled

Arrays = tuple[jax.Array, ...]

SEGNET_EPS = 1e-9


def segnet_bn(ctx: Context, blobs: Arrays, x: jax.Array) -> object:
    """scale * (x - mean) / sqrt(variance + 1e-9) + shift by the batch's mean and variance, tops 2 and 3 if there are.

    Channel by channel, in TEST too. With bn_mode INFERENCE just scale * x + shift. The further tops, scale and shift
    are all (1, channels, 1, 1).
    """
    if _learns(ctx) or ctx.n_tops > 1:
        return segnet_bn_fused(ctx, blobs, x, ())
    return scaled(ctx, x, *segnet_factor_and_bias(ctx, blobs))


def segnet_bn_params(ctx: Context, x: Any) -> list[ParamSpec]:
    require(_learns(ctx) or ctx.n_tops == 1, "with bn_mode: INFERENCE there are no tops for mean and variance")
    return [ParamSpec(blob_shape(x), ctx.param.scale_filler), ParamSpec(blob_shape(x), ctx.param.shift_filler)]


def segnet_bn_backward(ctx: Context, blobs: Arrays, x: jax.Array, *, y: Any, dy: Any) -> tuple[Any, jax.Array]:
    d_top, scale = first(dy), blobs[0]
    if _learns(ctx):
        return normalized_diffs(ctx, scale, x, d_top, SEGNET_EPS)
    d_scale, d_shift = FIRST.sums(promote(d_top) * x), FIRST.sums(promote(d_top))
    return (d_scale.reshape(scale.shape), d_shift.reshape(scale.shape)), d_top * FIRST.along(channels_of(scale), x)


def _segnet_is_affine(ctx: Context, shapes: Sequence[Shape], axis: int, channels: int) -> bool:
    return not _learns(ctx) and axis == 1 and shapes[0] == (1, channels, 1, 1)


def segnet_factor_and_bias(ctx: Context, blobs: Arrays) -> tuple[jax.Array, jax.Array]:
    return channels_of(blobs[0]), channels_of(blobs[1])


def segnet_bn_fusible(ctx: Context, x: Any, epilogues: Sequence[Epilogue]) -> int:
    """Count a ReLU right after it, where the batch is normalised by itself."""
    return int(_learns(ctx) and epilogues[0].is_relu)


def segnet_bn_fused(ctx: Context, blobs: Arrays, x: jax.Array, epilogues: Sequence[Epilogue]) -> object:
    """Compute it with what `segnet_bn_fusible` counts."""
    scale, shift = map(channels_of, blobs)
    top, *batch = normalized(ctx, x, scale, shift, jnp.zeros_like(shift), SEGNET_EPS, relu=bool(epilogues))
    return (
        top if ctx.n_tops == 1 else (top, *(b.reshape(blob_shape(x)).astype(x.dtype) for b in batch[: ctx.n_tops - 1]))
    )


SEGNET = LayerType(
    Signature("BN", param="bn_param"),
    Traced(segnet_bn, params=segnet_bn_params, fusion=Fusion(segnet_bn_fusible, segnet_bn_fused)),
    Gradient(segnet_bn_backward),
    LayerTraits(
        dtype_policy="bottoms",
        spatial_map="same",
        by_channel=ByChannel(_segnet_is_affine, segnet_factor_and_bias),
        weight_axes=4,
    ),
    docs=LayerDocs(origin="SegNet, DeconvNet"),
)
WITH_STATISTICS = replace(
    SEGNET,
    signature=Signature("BN", tops=(2, 3), param="bn_param"),
    gradient=Gradient(segnet_bn_backward, overrides_autodiff=True),
)


def _learns(ctx: Context) -> bool:
    return bool(ctx.param.bn_mode == ctx.param.LEARN)
