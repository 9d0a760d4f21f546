"""Lowerings of layer types: functions that add the operations of a layer to a oneDNN program.

A lowering takes a `LoweringContext` and returns the value of the layer's top, or a list of values for several tops. It
returns None if oneDNN does not support the layer's settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ...core.layers import Context
from ...core.layers.convolution import ConvolutionOp, convolution_output_size, depthwise_settings, make_convolution_op
from ...core.layers.helpers import canonical_axis, permuted_axes
from ...core.layers.indexing import crop_box
from ...core.layers.neuron import ln_base
from ...core.layers.pooling import pad_to_cover, pool_method, window_and_output_size, window_areas
from ...core.layers.shape_ops import concat_axis, slice_points
from ...core.ops.window import Window
from ..kernels.onednn_program import FieldValue
from .program_builder import ProgramBuilder, Value

Tops = Value | Sequence[Value] | None
Lowering = Callable[["LoweringContext"], Tops]


@dataclass(frozen=True)
class LoweringContext:
    """A layer to lower: the argument of a lowering.

    Attributes:
        builder: the builder of the program.
        context: the layer's settings, type and phase.
        blobs: the arrays of the layer's parameters and state.
        bottoms: the values of the bottoms in the program.
        top_shapes: the shapes of the tops.
    """

    builder: ProgramBuilder
    context: Context
    blobs: Sequence[Any]
    bottoms: Sequence[Value]
    top_shapes: Sequence[tuple[int, ...]]

    @property
    def top_shape(self) -> tuple[int, ...]:
        """The shape of the first top."""
        return self.top_shapes[0]

    @property
    def param(self) -> Any:
        """The settings message of the layer's type, such as `convolution_param`."""
        return self.context.param

    @property
    def x(self) -> Value:
        """The value of the first bottom."""
        return self.bottoms[0]

    @property
    def bottom_spec(self) -> jax.ShapeDtypeStruct:
        """The shape and dtype (float32) of the first bottom."""
        return jax.ShapeDtypeStruct(self.x.shape, np.float32)

    def add_weight(self, i: int) -> int:
        """Add blob `i` of the layer to the program's weights, and return its number among the weights."""
        return self.builder.add_weight(self.blobs[i])


LOWERINGS: dict[str, Lowering] = {}


def register_lowering(*types: str) -> Callable[[Lowering], Lowering]:
    """Return a decorator that registers a function as the lowering of the given layer types."""

    def register(lowering: Lowering) -> Lowering:
        LOWERINGS.update(dict.fromkeys(types, lowering))
        return lowering

    return register


@register_lowering("Convolution", "DepthwiseConvolution")
def convolution(ctx: LoweringContext) -> Value | None:
    """Lower a convolution, whose padding at the ends of the axes is adjusted to Caffe's output size."""
    return _lower_convolution(ctx, make_convolution_op(ctx.context.settings, (ctx.bottom_spec,)))


@register_lowering("ConvolutionDepthwise")
def depthwise(ctx: LoweringContext) -> Value | None:
    """Lower the convolution of each channel with a separate kernel."""
    return _lower_convolution(
        ctx, make_convolution_op(depthwise_settings(ctx.context.settings, ctx.bottom_spec), (ctx.bottom_spec,))
    )


def _lower_convolution(ctx: LoweringContext, c: ConvolutionOp) -> Value | None:
    size = c.spatial_shape(ctx.bottom_spec)
    window = c.window.fit_padding(size, convolution_output_size(size, c.window)).drop_negative_padding(size)
    return _add_convolution("convolution", ctx, c, window)


@register_lowering("Deconvolution")
def deconvolution(ctx: LoweringContext) -> Value | None:
    """Lower a transposed convolution."""
    c = make_convolution_op(ctx.context.settings, (ctx.bottom_spec,))
    return _add_convolution("deconvolution", ctx, c, c.window)


def _add_convolution(name: str, ctx: LoweringContext, c: ConvolutionOp, window: Window) -> Value | None:
    if not 1 <= len(window.kernel) <= 3:
        return None
    low, high = zip(*window.padding, strict=True)
    if c.axis != 1 or min(*low, *high) < 0 or len(ctx.bottoms) != 1:
        return None
    x = ctx.x
    if name == "convolution" and _has_wide_padding(window) and x.shape[1] <= ctx.top_shape[1]:
        padded_size = (sum(axis) for axis in zip(low, x.shape[2:], high, strict=True))
        x = ctx.builder.add("pad", [x], (*x.shape[:2], *padded_size), low=low, high=high)
        low = high = (0,) * len(low)
    settings = {"stride": window.stride, "dilation": window.dilation, "low": low, "high": high}
    return ctx.builder.add(name, [x], ctx.top_shape, **_add_blobs(ctx), **settings, groups=c.group)


def _has_wide_padding(window: Window) -> bool:
    """Return whether a window can be all padding, such as FCN-8s's padding of 100: oneDNN computes that slowly."""
    return any(max(pads) >= extent for pads, extent in zip(window.padding, window.extent, strict=True))


@register_lowering("InnerProduct")
def inner_product(ctx: LoweringContext) -> Value | None:
    """Lower the product of the bottom (N, inputs) and the weight (num_output, inputs), plus a bias."""
    shape = ctx.x.shape
    if canonical_axis(ctx.param.axis, shape) != 1 or ctx.param.transpose or len(ctx.top_shape) != 2:
        return None
    # in some forks the weight is a bottom, or its rows are normalized; such types have no `fold_scale_bias`
    if ctx.context.type.traits.fold_scale_bias is None:
        return None
    x = ctx.x
    if not 2 <= len(shape) <= 5:
        x = ctx.builder.add("reshape", [x], (shape[0], math.prod(shape[1:])))
    return ctx.builder.add("dense", [x], ctx.top_shape, **_add_blobs(ctx))


def _add_blobs(ctx: LoweringContext) -> dict[str, FieldValue]:
    """Add the layer's weight and bias to the program, and return `{"weight": number, "bias": number}`."""
    return dict(zip(("weight", "bias"), map(ctx.add_weight, range(len(ctx.blobs))), strict=False))


@register_lowering("Pooling")
def pooling(ctx: LoweringContext) -> Value | None:
    """Lower maximum pooling, or mean pooling if oneDNN can divide the sums of windows by the same numbers as Caffe."""
    method = pool_method(ctx.param)
    if method == "STOCHASTIC":
        return None
    window, output_size = window_and_output_size(ctx.context.settings, ctx.bottom_spec)
    covering_window = pad_to_cover(ctx.bottom_spec, window, output_size)
    low, high = zip(*covering_window.padding, strict=True)
    if any(not 0 <= pad < kernel for pads in (low, high) for pad, kernel in zip(pads, window.kernel, strict=True)):
        return None
    name = "max" if method == "MAX" else _mean_operation(ctx.x.shape[2:], window, covering_window, output_size)
    if name is None:
        return None
    return ctx.builder.add(name, [ctx.x], ctx.top_shape, kernel=window.kernel, stride=window.stride, low=low, high=high)


def _mean_operation(
    size: tuple[int, ...], window: Window, covering_window: Window, output_size: tuple[int, ...]
) -> str | None:
    """Return the name of the operation that divides the sums by the same numbers as Caffe, or None if there is none.

    "padded_mean" divides by the number of cells of a window, and "mean" by the number of its cells inside the input.
    """
    areas = window_areas(size, window, output_size)
    if np.all(areas == np.prod(window.kernel)):
        return "padded_mean"
    ranges = []
    for n, kernel, stride, low, o in zip(
        size, window.kernel, window.stride, covering_window.low, output_size, strict=True
    ):
        start = np.arange(o) * stride - low
        ranges.append(np.minimum(start + kernel, n) - np.maximum(start, 0))
    return "mean" if np.array_equal(np.outer(*ranges), areas) else None


@register_lowering("ReLU")
def relu(ctx: LoweringContext) -> Value:
    """Lower max(x, 0) + negative_slope * min(x, 0)."""
    return ctx.builder.apply(ctx.x, "relu", ctx.param.negative_slope)


@register_lowering("ReLU6")
def relu6(ctx: LoweringContext) -> Value | None:
    """Lower clipping of x to the range from 0 to 6."""
    return None if ctx.param.negative_slope else ctx.builder.apply(ctx.x, "clip", 0, 6)


@register_lowering("ELU")
def elu(ctx: LoweringContext) -> Value:
    """Lower ELU: x for x > 0, otherwise alpha * (exp(x) - 1)."""
    return ctx.builder.apply(ctx.x, "elu", ctx.param.alpha)


@register_lowering("Sigmoid")
def sigmoid(ctx: LoweringContext) -> Value:
    """Lower 1 / (1 + exp(-x))."""
    return ctx.builder.apply(ctx.x, "logistic")


@register_lowering("TanH")
def tanh(ctx: LoweringContext) -> Value:
    """Lower the hyperbolic tangent."""
    return ctx.builder.apply(ctx.x, "tanh")


@register_lowering("Swish")
def swish(ctx: LoweringContext) -> Value:
    """Lower x * sigmoid(beta * x)."""
    return ctx.builder.apply(ctx.x, "swish", ctx.param.beta)


@register_lowering("AbsVal")
def absval(ctx: LoweringContext) -> Value:
    """Lower |x|."""
    return ctx.builder.apply(ctx.x, "abs")


@register_lowering("Clip")
def clip(ctx: LoweringContext) -> Value | None:
    """Lower clipping of x to the range from `min` to `max`."""
    p = ctx.param
    return None if p.min > p.max else ctx.builder.apply(ctx.x, "clip", p.min, p.max)


@register_lowering("Power")
def power(ctx: LoweringContext) -> Value | None:
    """Lower scale * x + shift. Powers other than 1 are not supported."""
    p = ctx.param
    return ctx.builder.apply(ctx.x, "linear", p.scale, p.shift) if p.power == 1 and p.scale else None


@register_lowering("Exp")
def exp(ctx: LoweringContext) -> Value:
    """Lower base ** (scale * x + shift)."""
    p, log_of_base = ctx.param, ln_base(ctx.param)
    return ctx.builder.apply(ctx.builder.apply(ctx.x, "linear", log_of_base * p.scale, log_of_base * p.shift), "exp")


@register_lowering("Log")
def log(ctx: LoweringContext) -> Value:
    """Lower the logarithm of scale * x + shift to the base `base`."""
    p = ctx.param
    x = ctx.builder.apply(ctx.builder.apply(ctx.x, "linear", p.scale, p.shift), "log")
    return ctx.builder.apply(x, "linear", 1 / ln_base(p))


@register_lowering("PReLU")
def prelu(ctx: LoweringContext) -> Value | None:
    """Lower a leaky ReLU with learned slopes: one slope for each channel, or one slope for all channels."""
    slope = np.asarray(ctx.blobs[0], np.float32)
    if slope.ndim == 0:
        return ctx.builder.apply(ctx.x, "relu", float(slope))
    return ctx.builder.apply_per_channel(ctx.x, "prelu", slope) if len(ctx.x.shape) == 4 else None


@register_lowering("Axpy")
def axpy(ctx: LoweringContext) -> Value | None:
    """Lower a * x + y, with a factor `a` for each channel of each image."""
    factor, x, y = ctx.bottoms
    if len(x.shape) < 3:
        return None
    broadcast_factor = ctx.builder.add("reshape", [factor], (*x.shape[:2], *(1,) * (len(x.shape) - 2)))
    return ctx.builder.combine("plus", ctx.builder.combine("times", x, broadcast_factor), y)


@register_lowering("Eltwise")
def eltwise(ctx: LoweringContext) -> Value | None:
    """Lower an elementwise sum, product or maximum of all bottoms. Coefficients other than 1 are not supported."""
    p, operation = ctx.param, ctx.param.EltwiseOp.Name(ctx.param.operation)
    if any(c != 1 for c in p.coeff):
        return None
    name = {"SUM": "plus", "PROD": "times", "MAX": "maximum"}[operation]
    total = ctx.x
    for bottom in ctx.bottoms[1:]:
        total = ctx.builder.combine(name, total, bottom)
    return total


@register_lowering("LRN")
def lrn(ctx: LoweringContext) -> Value | None:
    """Lower local response normalization: x * (k + alpha / n * the sum of squares of n values) ** -beta."""
    p = ctx.param
    is_within_channel = p.norm_region == p.WITHIN_CHANNEL
    if p.local_size > 2 * min(ctx.x.shape[1:]):
        return None
    settings = {"alpha": float(p.alpha), "beta": float(p.beta), "k": 1.0 if is_within_channel else float(p.k)}
    return ctx.builder.add("lrn", [ctx.x], ctx.top_shape, within=int(is_within_channel), size=p.local_size, **settings)


@register_lowering("Softmax")
def softmax(ctx: LoweringContext) -> Value | None:
    """Lower a softmax along an axis."""
    axis = canonical_axis(ctx.param.axis, ctx.x.shape)
    if ctx.param.temperature != 1:
        return None
    return ctx.builder.add("softmax", [ctx.x], ctx.top_shape, axis=axis) if axis else None


@register_lowering("Normalize")
def normalize(ctx: LoweringContext) -> Value | None:
    """Lower SSD's Normalize: divide the channel vector at each position by its L2 norm, and scale each channel."""
    p, b, shape = ctx.context.layer.norm_param, ctx.builder, ctx.x.shape
    if not ctx.blobs or p.across_spatial or len(shape) != 4:
        return None
    b.mark_shared(ctx.x)  # x has two readers
    weight = b.add_weight(np.ones((1, shape[1], 1, 1), np.float32))
    ones, zeros = (1, 1), (0, 0)
    settings: dict[str, FieldValue] = {"stride": ones, "dilation": ones, "low": zeros, "high": zeros, "groups": 1}
    total = b.add("convolution", [b.apply(ctx.x, "square")], (shape[0], 1, *shape[2:]), weight=weight, **settings)
    inverse_norm = b.apply(b.apply(total, "linear", 1, p.eps), "power", 1, -0.5)
    scale = np.broadcast_to(np.asarray(ctx.blobs[0], np.float32), shape[1])
    return b.apply_per_channel(b.combine("times", ctx.x, inverse_norm), "times", scale)


@register_lowering("BatchNorm", "Scale", "Bias", "BN")
def lower_channel_affine(ctx: LoweringContext) -> Value | None:
    """Lower a layer that applies a factor and a bias to each channel, and that could not be folded into weights."""
    channel_affine = ctx.context.type.traits.channel_affine
    blob_shapes = [np.shape(b) for b in ctx.blobs]
    if channel_affine is None or len(ctx.bottoms) != 1 or len(ctx.x.shape) < 2:
        return None
    if not ctx.blobs or not ctx.context.call(channel_affine.applies, blob_shapes, 1, ctx.x.shape[1]):
        return None
    factor, bias = (
        np.asarray(a, np.float32)
        for a in ctx.context.call(channel_affine.factor_and_bias, blobs=tuple(map(np.asarray, ctx.blobs)))
    )
    x = ctx.x
    if np.any(factor != 1):
        x = ctx.builder.apply_per_channel(x, "times", factor)
    return ctx.builder.apply_per_channel(x, "plus", bias) if np.any(bias) else x


@register_lowering("Concat")
def concat(ctx: LoweringContext) -> Value | None:
    """Lower a concatenation along an axis."""
    axis = concat_axis(ctx.context.param, ctx.bottoms)
    return ctx.builder.add("concat", ctx.bottoms, ctx.top_shape, axis=axis)


@register_lowering("Flatten", "Reshape")
def reshape(ctx: LoweringContext) -> Value:
    """Lower a reshape to the shape of the top."""
    return ctx.builder.add("reshape", [ctx.x], ctx.top_shape)


@register_lowering("Slice")
def slice_(ctx: LoweringContext) -> list[Value]:
    """Lower a split of the bottom along an axis into the tops."""
    axis, points = slice_points(ctx.context, ctx.x.shape)
    parts = []
    for start, shape in zip([0, *points], ctx.top_shapes, strict=True):
        begin = [start if k == axis else 0 for k in range(len(shape))]
        parts.append(ctx.builder.add("slice", [ctx.x], shape, **{"from": begin}))
    return parts


@register_lowering("Crop")
def crop(ctx: LoweringContext) -> Value:
    """Lower a crop of the first bottom to the size of the second bottom."""
    begin, _ = crop_box(ctx.context.param, ctx.x.shape, ctx.bottoms[1].shape)
    return ctx.builder.add("slice", [ctx.x], ctx.top_shape, **{"from": begin})


@register_lowering("Permute")
def permute(ctx: LoweringContext) -> Value:
    """Lower a permutation of the axes."""
    return ctx.builder.add("permute", [ctx.x], ctx.top_shape, order=permuted_axes(ctx.context.param, ctx.x.shape))


@register_lowering("ShuffleChannel")
def shuffle_channel(ctx: LoweringContext) -> Value:
    """Lower a channel shuffle: interleave the channels of all groups."""
    return ctx.builder.add("shuffle", [ctx.x], ctx.top_shape, size=ctx.x.shape[1] // ctx.param.group)
