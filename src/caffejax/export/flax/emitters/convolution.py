"""Convolution, its depthwise kinds and those over time; Deconvolution."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....errors import require
from ....layers import Context
from ....layers.c3d.convolution3d import volume_correlation
from ....layers.c3d.nd import nd_correlation
from ....layers.convolution import Correlation, correlation
from ....layers.depthwise import by_channels
from ....layers.spatial import convolution_output
from ..building import Emission, writes
from ..program import Shape, Value
from .literals import one_or_all


@writes("Convolution", "DepthwiseConvolution")
def convolution(e: Emission) -> tuple[Value, ...]:
    """Write nnx.Conv."""
    return _convolved(e, _planar(e, e.layer.context))


@writes("ConvolutionDepthwise")
def depthwise(e: Emission) -> tuple[Value, ...]:
    """Write nnx.Conv with a group for each channel."""
    return _convolved(e, _planar(e, by_channels(e.layer.context, e.bottoms[0])))


@writes("Convolution3D")
def convolution3d(e: Emission) -> tuple[Value, ...]:
    """Write nnx.Conv over time and the plane."""
    return _convolved(e, volume_correlation(e.layer.context, e.bottoms[0]))


@writes("NdConvolution")
def nd_convolution(e: Emission) -> tuple[Value, ...]:
    """Write nnx.Conv over any number of axes."""
    return _convolved(e, nd_correlation(e.layer.context, e.bottoms[0]))


def _convolved(e: Emission, c: Correlation) -> tuple[Value, ...]:
    size = c.size(e.bottoms[0])
    weight, *bias = e.arrays
    options = {
        "strides": one_or_all(c.window.stride),
        "padding": _padding(c, size),
        "kernel_dilation": one_or_all(c.window.dilation),
        "feature_group_count": c.group,
        "use_bias": bool(bias),
    }
    if set(c.window.kernel) == {1} and options["padding"] == "VALID":
        del options["padding"]  # which is nothing with nnx.Conv's own padding, too
    defaults = {"strides": 1, "kernel_dilation": 1, "feature_group_count": 1, "use_bias": True}
    part = e.part(
        "nnx.Conv",
        "conv",
        _weights(np.moveaxis(weight, (0, 1), (-1, -2)), bias),
        positional=2,
        in_features=weight.shape[1] * c.group,
        out_features=weight.shape[0],
        kernel_size=c.window.kernel,
        **{name: value for name, value in options.items() if value != defaults.get(name)},
    )
    return _applied(e, part)


@writes("Deconvolution")
def deconvolution(e: Emission) -> tuple[Value, ...]:
    """Write nnx.ConvTranspose, or what it lacks: groups."""
    return _spread(e, _planar(e, e.layer.context))


@writes("Deconvolution3D")
def deconvolution3d(e: Emission) -> tuple[Value, ...]:
    """Write nnx.ConvTranspose over time and the plane."""
    return _spread(e, volume_correlation(e.layer.context, e.bottoms[0]))


def _spread(e: Emission, c: Correlation) -> tuple[Value, ...]:
    weight, *bias = e.arrays
    flipped = np.flip(weight, tuple(range(2, weight.ndim)))
    pads = tuple(
        (extent - 1 - low, extent - 1 - high)
        for extent, (low, high) in zip(c.window.extent, c.window.padding, strict=True)
    )
    options = {
        "strides": one_or_all(c.window.stride),
        "padding": pads,
        "kernel_dilation": one_or_all(c.window.dilation),
    }
    options = {name: value for name, value in options.items() if name != "kernel_dilation" or value != 1}
    features: dict[str, Any] = {"in_features": weight.shape[0], "out_features": weight.shape[1] * c.group}
    if c.group == 1:
        kernel, maker = np.moveaxis(flipped, (0, 1), (-2, -1)), "nnx.ConvTranspose"
        options |= {} if bias else {"use_bias": False}
    else:
        grouped = flipped.reshape(c.group, -1, *weight.shape[1:])
        kernel, maker = np.moveaxis(grouped, (1, 0, 2), (-3, -2, -1)), "GroupedConvTranspose"
        kernel = kernel.reshape(*kernel.shape[:-2], -1)
        options |= {"groups": c.group, "use_bias": bool(bias)}
        e.builder.helpers.add(maker)
    part = e.part(
        maker, "deconv", _weights(kernel, bias), positional=2, **features, kernel_size=c.window.kernel, **options
    )
    return _applied(e, part)


def _planar(e: Emission, context: Context) -> Correlation:
    c = correlation(context, e.bottoms)
    require(c.axis == 1, f"has its channels along axis {c.axis}; only axis 1 is supported")
    require(len(c.window.kernel) > 0, "has no spatial axes; use InnerProduct")
    return c


def _padding(c: Correlation, size: Shape) -> str | int | tuple[tuple[int, int], ...]:
    """Return nnx.Conv's padding: more at the high ends where the kernel does not fit, and Caffe sees zeros."""
    needed = c.window.ending(size, convolution_output(size, c.window)).padding
    pads = tuple((low, max(low, high)) for low, high in needed)
    if all(low == high for low, high in pads):
        found = one_or_all([low for low, _ in pads])
        return "VALID" if found == 0 else found if isinstance(found, int) else pads
    return pads


def _weights(kernel: np.ndarray, bias: list[np.ndarray]) -> dict[str, np.ndarray]:
    return {"kernel": kernel, **({"bias": bias[0].reshape(-1)} if bias else {})}


def _applied(e: Emission, part: Any) -> tuple[Value, ...]:
    tops = zip(e.bottoms, e.layer.tops, e.tops, strict=True)
    return tuple(e.call("{part}({0})", e.last(x), part=part, shape=shape, blob=top) for x, top, shape in tops)
