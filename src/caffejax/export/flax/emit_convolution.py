"""Emitters for convolution and deconvolution layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.errors import require
from ...core.layers.convolution import (
    ConvolutionOp,
    convolution_output_size,
    depthwise_settings,
    make_convolution_op,
)
from ...core.schema.caffe_pb2 import ConvolutionParameter
from ...forks.c3d.c3d_layers import volume_convolution_op
from ...forks.c3d.nd_layers import nd_convolution_op
from .emit_context import FLAX, FlaxCall, collapse_equal
from .ir import ModuleSpec, Shape, Value


@FLAX.rule("Convolution", "DepthwiseConvolution")
def convolution(e: FlaxCall) -> tuple[Value, ...]:
    """Emit nnx.Conv over height and width."""
    return _emit_convolution(e, _planar_convolution_op(e, e.context.settings))


@FLAX.rule("ConvolutionDepthwise")
def depthwise(e: FlaxCall) -> tuple[Value, ...]:
    """Emit nnx.Conv over height and width, which convolves each channel separately."""
    return _emit_convolution(e, _planar_convolution_op(e, depthwise_settings(e.context.settings, e.bottoms[0])))


@FLAX.rule("Convolution3D")
def convolution3d(e: FlaxCall) -> tuple[Value, ...]:
    """Emit nnx.Conv over time, height and width."""
    return _emit_convolution(e, volume_convolution_op(e.context, e.bottoms[0]))


@FLAX.rule("NdConvolution")
def nd_convolution(e: FlaxCall) -> tuple[Value, ...]:
    """Emit nnx.Conv over any number of spatial axes."""
    return _emit_convolution(e, nd_convolution_op(e.context, e.bottoms[0]))


def _emit_convolution(e: FlaxCall, c: ConvolutionOp) -> tuple[Value, ...]:
    size = c.spatial_shape(e.bottoms[0])
    weight, *bias = e.arrays
    options: dict[str, Any] = {
        "strides": collapse_equal(c.window.stride),
        "padding": _conv_padding(c, size),
        "kernel_dilation": collapse_equal(c.window.dilation),
        "feature_group_count": c.group,
        "use_bias": bool(bias),
    }
    if set(c.window.kernel) == {1} and options["padding"] == "VALID":
        del options["padding"]  # the default of nnx.Conv adds no padding for 1x1 kernels either
    defaults = {"strides": 1, "kernel_dilation": 1, "feature_group_count": 1, "use_bias": True}
    module = e.make_module(
        "nnx.Conv",
        "conv",
        _name_weights(np.moveaxis(weight, (0, 1), (-1, -2)), bias),
        num_positional=2,
        in_features=weight.shape[1] * c.group,
        out_features=weight.shape[0],
        kernel_size=c.window.kernel,
        **{name: value for name, value in options.items() if value != defaults.get(name)},
    )
    return _apply_to_bottoms(e, module)


@FLAX.rule("Deconvolution")
def deconvolution(e: FlaxCall) -> tuple[Value, ...]:
    """Emit nnx.ConvTranspose over height and width, or a helper function if the layer has groups."""
    return _emit_deconvolution(e, _planar_convolution_op(e, e.context.settings))


@FLAX.rule("Deconvolution3D")
def deconvolution3d(e: FlaxCall) -> tuple[Value, ...]:
    """Emit nnx.ConvTranspose over time, height and width."""
    return _emit_deconvolution(e, volume_convolution_op(e.context, e.bottoms[0]))


def _emit_deconvolution(e: FlaxCall, c: ConvolutionOp) -> tuple[Value, ...]:
    weight, *bias = e.arrays
    flipped_weight = np.flip(weight, tuple(range(2, weight.ndim)))
    pads = tuple(
        (extent - 1 - low, extent - 1 - high)
        for extent, (low, high) in zip(c.window.extent, c.window.padding, strict=True)
    )
    options: dict[str, Any] = {
        "strides": collapse_equal(c.window.stride),
        "padding": pads,
        "kernel_dilation": collapse_equal(c.window.dilation),
    }
    options = {name: value for name, value in options.items() if name != "kernel_dilation" or value != 1}
    features: dict[str, Any] = {"in_features": weight.shape[0], "out_features": weight.shape[1] * c.group}
    if c.group == 1:
        kernel, constructor = np.moveaxis(flipped_weight, (0, 1), (-2, -1)), "nnx.ConvTranspose"
        options |= {} if bias else {"use_bias": False}
    else:
        grouped_weight = flipped_weight.reshape(c.group, -1, *weight.shape[1:])
        kernel, constructor = np.moveaxis(grouped_weight, (1, 0, 2), (-3, -2, -1)), "GroupedConvTranspose"
        kernel = kernel.reshape(*kernel.shape[:-2], -1)
        options |= {"groups": c.group, "use_bias": bool(bias)}
        e.builder.helpers.add(constructor)
    module = e.make_module(
        constructor,
        "deconv",
        _name_weights(kernel, bias),
        num_positional=2,
        **features,
        kernel_size=c.window.kernel,
        **options,
    )
    return _apply_to_bottoms(e, module)


def _planar_convolution_op(e: FlaxCall, settings: ConvolutionParameter) -> ConvolutionOp:
    c = make_convolution_op(settings, e.bottoms)
    require(c.axis == 1, f"has its channels along axis {c.axis}; only axis 1 is supported")
    require(len(c.window.kernel) > 0, "has no spatial axes; use InnerProduct")
    return c


def _conv_padding(c: ConvolutionOp, size: Shape) -> str | int | tuple[tuple[int, int], ...]:
    """Return the padding for nnx.Conv, with more padding at the end of an axis if Caffe's output size requires it."""
    fitted_padding = c.window.fit_padding(size, convolution_output_size(size, c.window)).padding
    pads = tuple((low, max(low, high)) for low, high in fitted_padding)
    if all(low == high for low, high in pads):
        pad = collapse_equal([low for low, _ in pads])
        return "VALID" if pad == 0 else pad if isinstance(pad, int) else pads
    return pads


def _name_weights(kernel: np.ndarray, bias: list[np.ndarray]) -> dict[str, np.ndarray]:
    return {"kernel": kernel, **({"bias": bias[0].reshape(-1)} if bias else {})}


def _apply_to_bottoms(e: FlaxCall, module: ModuleSpec) -> tuple[Value, ...]:
    tops = zip(e.bottoms, e.layer.tops, e.top_shapes, strict=True)
    return tuple(
        e.add_step("{module}({0})", e.to_channels_last(x), module=module, shape=shape, blob=top)
        for x, top, shape in tops
    )
