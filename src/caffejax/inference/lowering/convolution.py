"""Convolution, Deconvolution, InnerProduct."""

from __future__ import annotations

import math

from ...kernels.window import Window
from ...layers.axes import canonical_axis
from ...layers.convolution import Correlation, by_channels, convolution_output, correlation
from ..operation import Numbers
from ..program import Value
from .registry import Call, lowers


@lowers("Convolution", "DepthwiseConvolution")
def convolution(call: Call) -> Value | None:
    """Convolve, with what its padding becomes where sizes are rounded."""
    return _convolved(call, correlation(call.context, (call.like,)))


@lowers("ConvolutionDepthwise")
def depthwise(call: Call) -> Value | None:
    """Convolve each channel with a kernel of its own."""
    return _convolved(call, correlation(by_channels(call.context, call.like), (call.like,)))


def _convolved(call: Call, c: Correlation) -> Value | None:
    size = c.size(call.like)
    window = c.window.ending(size, convolution_output(size, c.window)).without_rest(size)
    return _weighted("convolution", call, c, window)


@lowers("Deconvolution")
def deconvolution(call: Call) -> Value | None:
    """Spread each number times the kernel."""
    c = correlation(call.context, (call.like,))
    return _weighted("deconvolution", call, c, c.window)


def _weighted(word: str, call: Call, c: Correlation, window: Window) -> Value | None:
    if not 1 <= len(window.kernel) <= 3:
        return None
    low, high = zip(*window.padding, strict=True)
    if c.axis != 1 or min(*low, *high) < 0 or len(call.bottoms) != 1:
        return None
    steps = {"stride": window.stride, "dilation": window.dilation, "low": low, "high": high}
    return call.writer.add(word, [call.x], call.out, **_blobs(call), **steps, groups=c.group)


@lowers("InnerProduct")
def inner_product(call: Call) -> Value | None:
    """Multiply rows by the weight."""
    shape = call.x.shape
    if canonical_axis(call.param.axis, shape) != 1 or call.param.transpose or len(call.out) != 2:
        return None
    if (
        call.context.type.traits.fold_scale_bias is None
    ):  # another form: the weight is a bottom, or its rows are divided first
        return None
    x = call.x
    if not 2 <= len(shape) <= 5:
        x = call.writer.add("reshape", [x], (shape[0], math.prod(shape[1:])))
    return call.writer.add("dense", [x], call.out, **_blobs(call))


def _blobs(call: Call) -> dict[str, Numbers]:
    """Put weight and bias, if there is one, into the program."""
    return dict(zip(("weight", "bias"), map(call.weight, range(len(call.blobs))), strict=False))
