"""Depthwise convolutions under names of their own: DepthwiseConvolution and ConvolutionDepthwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from ...core.layers.context import Epilogue, Params
from ...core.layers.convolution import (
    convolution,
    convolution_backward,
    convolution_fused,
    convolution_params,
    convolution_top_shapes,
    convolution_window,
    count_fusible,
    depthwise_settings,
)
from ...core.layers.declaration import register
from ...core.layers.helpers import is_after_first_axis
from ...core.layers.types import SAME_AS_BOTTOMS
from ...core.layers.weight_and_bias import fold_scale_bias
from ...core.schema.caffe_pb2 import ConvolutionParameter

Arrays = tuple[jax.Array, ...]


@register(
    "DepthwiseConvolution",
    param="convolution_param",
    dtype_policy="products",
    weight_axes=4,
    blob_names=("weight", "bias"),
    spatial_map="windows",
    fold_scale_bias=fold_scale_bias,
    bottoms=(1, None),
    tops=SAME_AS_BOTTOMS,
    params=convolution_params,
    count_fusible=count_fusible,
    fused=convolution_fused,
    top_shapes=convolution_top_shapes,
    backward=convolution_backward,
    row_wise=is_after_first_axis,
    window=convolution_window,
    origin="yonghenglh6/DepthwiseConvolution",
    restrictions="Without `group` each output depends on all inputs, as in the fork on a CPU; on a GPU "
    "the fork uses the number of channels as `group`.",
)
def depthwise_convolution(p: ConvolutionParameter, params: Params, *xs: jax.Array, fast: bool) -> Arrays:
    """Compute a Convolution. It is depthwise only if `group` is set to the number of channels."""
    return convolution(p, params, *xs, fast=fast)


@register(
    "ConvolutionDepthwise",
    param="convolution_param",
    dtype_policy="products",
    weight_axes=4,
    blob_names=("weight", "bias"),
    spatial_map="windows",
    fold_scale_bias=fold_scale_bias,
    params=lambda p, x: convolution_params(depthwise_settings(p, x), x),
    count_fusible=lambda p, x, epilogues: count_fusible(depthwise_settings(p, x), x, epilogues),
    row_wise=True,
    window=lambda p, x: convolution_window(depthwise_settings(p, x), x),
    origin="Tiny-DSOD, ShuffleNet",
)
def convolution_depthwise(p: ConvolutionParameter, params: Params, x: jax.Array, *, fast: bool) -> Arrays:
    """Cross-correlate each channel with a separate kernel: (N, C, H, W) to (N, C, *output size).

    Blobs: weight (C, 1, *kernel), bias (C,). `num_output` and `group` are ignored. Sizes are rounded as in Convolution.
    """
    return convolution(depthwise_settings(p, x), params, x, fast=fast)


@convolution_depthwise.fused
def convolution_depthwise_fused(
    p: ConvolutionParameter, params: Params, x: jax.Array, epilogues: Sequence[Epilogue], *, fast: bool
) -> jax.Array:
    return convolution_fused(depthwise_settings(p, x), params, x, epilogues, fast=fast)


@convolution_depthwise.backward
def convolution_depthwise_backward(
    p: ConvolutionParameter, params: Params, x: jax.Array, *, y: Any, dy: Any
) -> tuple[Any, ...]:
    return convolution_backward(depthwise_settings(p, x), params, x, y=y, dy=dy)
