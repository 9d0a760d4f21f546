"""DepthwiseConvolution and ConvolutionDepthwise: each channel convolved with a kernel of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax

from ..errors import require
from ..kernels.window import Window
from .context import Context, ParamSpec
from .convolution import (
    CONVOLUTION_TRAITS,
    convolution,
    convolution_backward,
    convolution_fused,
    convolution_fusible,
    convolution_params,
    convolution_top_shapes,
    convolution_window_of,
)
from .epilogue import Epilogue
from .registry import register
from .types import SAME_AS_BOTTOMS, Fusion, Gradient, LayerDocs, LayerType, Signature, Traced

Arrays = tuple[jax.Array, ...]


def depthwise_convolution(ctx: Context, blobs: Arrays, *xs: jax.Array) -> Arrays:
    """What Convolution computes; depthwise if `group` is the number of channels, which has to be given."""
    return convolution(ctx, blobs, *xs)


register(
    LayerType(
        Signature("DepthwiseConvolution", bottoms=(1, None), tops=SAME_AS_BOTTOMS, param="convolution_param"),
        Traced(
            depthwise_convolution,
            params=convolution_params,
            fusion=Fusion(convolution_fusible, convolution_fused),
            top_shapes=convolution_top_shapes,
        ),
        Gradient(convolution_backward),
        CONVOLUTION_TRAITS,
        LayerDocs(
            origin="yonghenglh6/DepthwiseConvolution",
            restrictions="Without `group` every output sees all inputs, as in the fork on a CPU; on a GPU it takes "
            "`group` for the number of channels.",
        ),
    )
)


def convolution_depthwise(ctx: Context, blobs: Arrays, x: jax.Array) -> Arrays:
    """Cross-correlation of each channel with a kernel of its own; weight (channels, 1, *kernel).

    There are as many outputs as inputs, whatever `num_output` and `group` say.
    """
    return convolution(by_channels(ctx, x), blobs, x)


def convolution_depthwise_params(ctx: Context, x: Any) -> list[ParamSpec]:
    return convolution_params(by_channels(ctx, x), x)


def convolution_depthwise_backward(ctx: Context, blobs: Arrays, x: jax.Array, *, y: Any, dy: Any) -> tuple[Any, ...]:
    return convolution_backward(by_channels(ctx, x), blobs, x, y=y, dy=dy)


def convolution_depthwise_fusible(ctx: Context, x: Any, epilogues: Sequence[Epilogue]) -> int:
    """Count what Convolution would."""
    return convolution_fusible(by_channels(ctx, x), x, epilogues)


def convolution_depthwise_fused(ctx: Context, blobs: Arrays, x: jax.Array, epilogues: Sequence[Epilogue]) -> jax.Array:
    """Compute it with what `convolution_depthwise_fusible` counts."""
    return convolution_fused(by_channels(ctx, x), blobs, x, epilogues)


def convolution_depthwise_window(ctx: Context, x: Any) -> Window:
    """Return the window over the axes of space."""
    return convolution_window_of(by_channels(ctx, x), x)


register(
    LayerType(
        Signature("ConvolutionDepthwise", param="convolution_param"),
        Traced(
            convolution_depthwise,
            params=convolution_depthwise_params,
            fusion=Fusion(convolution_depthwise_fusible, convolution_depthwise_fused),
        ),
        Gradient(convolution_depthwise_backward),
        replace(CONVOLUTION_TRAITS, row_wise=True, window=convolution_depthwise_window),
        LayerDocs(origin="Tiny-DSOD, ShuffleNet"),
    )
)


def by_channels(ctx: Context, x: Any) -> Context:
    """Return the context of the Convolution that it is: one group, with one output, for each channel."""
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not {x.shape}")
    layer = type(ctx.layer)()
    layer.CopyFrom(ctx.layer)
    p = layer.convolution_param
    p.num_output = p.group = x.shape[1]
    p.axis = 1
    return replace(ctx, layer=layer)
