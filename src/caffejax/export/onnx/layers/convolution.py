"""Convolution, Deconvolution, InnerProduct."""

from __future__ import annotations

from typing import Any

from ....kernels.window import Window
from ....layers.axes import canonical_axis
from ....layers.convolution import Correlation, correlation
from ....layers.depthwise import by_channels
from ....layers.spatial import convolution_output
from .registry import Call, Tops, emits

_MOST_AXES = 3  # of space, that engines take
_UNLESS = "more than 3 axes of space, or an `axis` other than 1"


@emits("Convolution", "DepthwiseConvolution", operators="Conv", unless=_UNLESS)
def convolution(call: Call) -> Tops | None:
    """Conv, once for each bottom."""
    return _convolved(call, correlation(call.context, (call.like,)))


@emits("ConvolutionDepthwise", operators="Conv", unless=_UNLESS)
def depthwise(call: Call) -> Tops | None:
    """Conv with a group for each channel."""
    context = by_channels(call.context, call.like)
    return _convolved(call, correlation(context, (call.like,)))


def _convolved(call: Call, c: Correlation) -> Tops | None:
    if not _usual(c):
        return None
    size = c.size(call.like)
    window = c.window if c.window.output(size) == convolution_output(size, c.window) else None
    window = window or c.window.ending(size, convolution_output(size, c.window))
    weights = [call.blob(i) for i in range(len(call.blobs))]
    attributes = {"kernel_shape": list(window.kernel), "group": c.group, **_steps(window)}
    return [call.emit("Conv", *weights, bottom=i, **attributes) for i in range(len(call.bottoms))]


@emits("Deconvolution", operators="ConvTranspose", unless=_UNLESS)
def deconvolution(call: Call) -> Tops | None:
    """ConvTranspose, once for each bottom."""
    c = correlation(call.context, (call.like,))
    if not _usual(c):
        return None
    weights = [call.blob(i) for i in range(len(call.blobs))]
    attributes = {"kernel_shape": list(c.window.kernel), "group": c.group, **_steps(c.window)}
    return [call.emit("ConvTranspose", *weights, bottom=i, **attributes) for i in range(len(call.bottoms))]


def _usual(c: Correlation) -> bool:
    return c.axis == 1 and 0 < len(c.window.kernel) <= _MOST_AXES


def _steps(window: Window) -> dict[str, Any]:
    low, high = zip(*window.padding, strict=True)
    return {"strides": list(window.stride), "pads": [*low, *high], "dilations": list(window.dilation)}


@emits(
    "InnerProduct",
    operators="Flatten, Gemm",
    unless="an `axis` other than 1, or a fork's form; then Reshape, MatMul, Add",
)
def inner_product(call: Call) -> Tops | None:
    """Gemm of rows, flattened unless they are vectors."""
    if canonical_axis(call.param.axis, call.x.shape) != 1 or call.context.type.facts.takes is None:
        return None
    b, rows = call.builder, call.name(call.x)
    if len(call.x.shape) != 2:
        rows = b.node("Flatten", [rows], axis=1)
    weights = [call.blob(i) for i in range(len(call.blobs))]
    return call.top(b.node("Gemm", [rows, *weights], transB=int(not call.param.transpose)))
