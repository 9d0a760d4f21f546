"""Depthwise convolutions under names of their own: DepthwiseConvolution and ConvolutionDepthwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax

from ...core.layers.context import Context, call_with
from ...core.layers.convolution import (
    CONVOLUTION_TRAITS,
    ConvolutionSettings,
    convolution,
    convolution_backward,
    convolution_fused,
    convolution_params,
    convolution_top_shapes,
    convolution_window,
    count_fusible,
    depthwise_settings,
    read_convolution,
)
from ...core.layers.layer_kinds import Function
from ...core.layers.registry import define_layer
from ...core.layers.types import SAME_AS_BOTTOMS, Fusion, Gradient, LayerDocs, Signature, Traced

Arrays = tuple[jax.Array, ...]


def depthwise_convolution(p: ConvolutionSettings, blobs: Arrays, *xs: jax.Array, fast: bool) -> Arrays:
    """Compute a Convolution. It is depthwise only if `group` is set to the number of channels."""
    return convolution(p, blobs, *xs, fast=fast)


define_layer(
    Signature("DepthwiseConvolution", bottoms=(1, None), tops=SAME_AS_BOTTOMS, param="convolution_param"),
    Traced(
        depthwise_convolution,
        params=convolution_params,
        fusion=Fusion(count_fusible, convolution_fused),
        top_shapes=convolution_top_shapes,
    ),
    Gradient(convolution_backward),
    CONVOLUTION_TRAITS,
    LayerDocs(
        origin="yonghenglh6/DepthwiseConvolution",
        restrictions="Without `group` each output depends on all inputs, as in the fork on a CPU; on a GPU "
        "the fork uses the number of channels as `group`.",
    ),
    settings=read_convolution,
)


def convolution_depthwise(p: ConvolutionSettings, blobs: Arrays, x: jax.Array, *, fast: bool) -> Arrays:
    """Cross-correlate each channel with a separate kernel: (N, C, H, W) to (N, C, *output size).

    Blobs: weight (C, 1, *kernel), bias (C,). `num_output` and `group` are ignored. Sizes are rounded as in Convolution.
    """
    return convolution(depthwise_settings(p, x), blobs, x, fast=fast)


def _adapt_to_depthwise(function: Function, bottom: int = 0) -> Function:
    """Adapt a function of Convolution to ConvolutionDepthwise.

    `bottom` is the index of the bottom among the arguments after the settings.
    """

    def depthwise_function(p: ConvolutionSettings, *arguments: Any, ctx: Context, **tops: Any) -> Any:
        return call_with(function, depthwise_settings(p, arguments[bottom]), ctx, *arguments, **tops)

    return depthwise_function


define_layer(
    Signature("ConvolutionDepthwise", param="convolution_param"),
    Traced(
        convolution_depthwise,
        params=_adapt_to_depthwise(convolution_params),
        fusion=Fusion(_adapt_to_depthwise(count_fusible), _adapt_to_depthwise(convolution_fused, 1)),
    ),
    Gradient(_adapt_to_depthwise(convolution_backward, 1)),
    replace(CONVOLUTION_TRAITS, row_wise=True, window=_adapt_to_depthwise(convolution_window)),
    LayerDocs(origin="Tiny-DSOD, ShuffleNet"),
    settings=read_convolution,
)
