"""The target `ONEDNN`: rules by layer type, which add the operations of a layer to a oneDNN program."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...core.layers.context import Epilogue
from ...core.layers.convolution import ConvolutionOp, convolution_output_size, depthwise_settings, make_convolution_op
from ...core.layers.helpers import canonical_axis, permuted_axes
from ...core.layers.indexing import crop_box
from ...core.layers.neuron import ln_base
from ...core.layers.pooling import pad_to_cover, pool_method, window_and_output_size, window_areas
from ...core.layers.shape_ops import concat_axis, slice_points
from ...core.ops.window import Window
from ...core.program.targets import LayerCall, Target
from ..kernels.onednn_program import FieldValue
from .program_builder import ProgramBuilder, Value


@dataclass
class OnednnCall(LayerCall[Value]):
    """A layer to lower: the argument of a lowering.

    Attributes:
        builder: the builder of the program.
    """

    builder: ProgramBuilder

    def add_weight(self, i: int) -> int:
        """Add array `i` of the layer to the program's weights, and return its number among the weights."""
        return self.builder.add_weight(self.arrays[i])


ONEDNN = Target[OnednnCall, Value]()

_ELEMENTWISE = {  # the function of oneDNN, and the names of the settings that are its numbers
    "AbsVal": ("abs",),
    "ELU": ("elu", "alpha"),
    "ReLU": ("relu", "negative_slope"),
    "Sigmoid": ("logistic",),
    "Swish": ("swish", "beta"),
    "TanH": ("tanh",),
}


def _make_elementwise_lowering(function: str, *settings: str) -> Callable[[OnednnCall], Value]:
    return lambda call: call.builder.apply(call.x, function, *(getattr(call.param, name) for name in settings))


for _type, _words in _ELEMENTWISE.items():
    ONEDNN.rule(_type)(_make_elementwise_lowering(*_words))


@ONEDNN.rule("Convolution", "DepthwiseConvolution")
def convolution(call: OnednnCall) -> Value | None:
    """Lower a convolution, whose padding at the ends of the axes is adjusted to Caffe's output size."""
    return _lower_convolution(call, make_convolution_op(call.context.settings, (call.bottom_spec,)))


@ONEDNN.rule("ConvolutionDepthwise")
def depthwise(call: OnednnCall) -> Value | None:
    """Lower the convolution of each channel with a separate kernel."""
    return _lower_convolution(
        call, make_convolution_op(depthwise_settings(call.context.settings, call.bottom_spec), (call.bottom_spec,))
    )


def _lower_convolution(call: OnednnCall, c: ConvolutionOp) -> Value | None:
    size = c.spatial_shape(call.bottom_spec)
    window = c.window.fit_padding(size, convolution_output_size(size, c.window)).drop_negative_padding(size)
    return _add_convolution("convolution", call, c, window)


@ONEDNN.rule("Deconvolution")
def deconvolution(call: OnednnCall) -> Value | None:
    """Lower a transposed convolution."""
    c = make_convolution_op(call.context.settings, (call.bottom_spec,))
    return _add_convolution("deconvolution", call, c, c.window)


def _add_convolution(name: str, call: OnednnCall, c: ConvolutionOp, window: Window) -> Value | None:
    if not 1 <= len(window.kernel) <= 3:
        return None
    low, high = zip(*window.padding, strict=True)
    if c.axis != 1 or min(*low, *high) < 0 or len(call.bottoms) != 1:
        return None
    x = call.x
    if name == "convolution" and _has_wide_padding(window) and x.shape[1] <= call.top_shape[1]:
        padded_size = (sum(axis) for axis in zip(low, x.shape[2:], high, strict=True))
        x = call.builder.add("pad", [x], (*x.shape[:2], *padded_size), low=low, high=high)
        low = high = (0,) * len(low)
    settings = {"stride": window.stride, "dilation": window.dilation, "low": low, "high": high}
    return call.builder.add(name, [x], call.top_shape, **_add_blobs(call), **settings, groups=c.group)


def _has_wide_padding(window: Window) -> bool:
    """Return whether a window can be all padding, such as FCN-8s's padding of 100: oneDNN computes that slowly."""
    return any(max(pads) >= extent for pads, extent in zip(window.padding, window.extent, strict=True))


@ONEDNN.rule("InnerProduct")
def inner_product(call: OnednnCall) -> Value | None:
    """Lower the product of the bottom (N, inputs) and the weight (num_output, inputs), plus a bias."""
    shape = call.x.shape
    if canonical_axis(call.param.axis, shape) != 1 or call.param.transpose or len(call.top_shape) != 2:
        return None
    # in some forks the weight is a bottom, or its rows are normalized; such types have no `fold_scale_bias`
    if call.context.type.traits.fold_scale_bias is None:
        return None
    x = call.x
    if not 2 <= len(shape) <= 5:
        x = call.builder.add("reshape", [x], (shape[0], math.prod(shape[1:])))
    return call.builder.add("dense", [x], call.top_shape, **_add_blobs(call))


def _add_blobs(call: OnednnCall) -> dict[str, FieldValue]:
    """Add the layer's weight and bias to the program, and return `{"weight": number, "bias": number}`."""
    return dict(zip(("weight", "bias"), map(call.add_weight, range(len(call.arrays))), strict=False))


@ONEDNN.rule("Pooling")
def pooling(call: OnednnCall) -> Value | None:
    """Lower maximum pooling, or mean pooling if oneDNN can divide the sums of windows by the same numbers as Caffe."""
    method = pool_method(call.param)
    if method == "STOCHASTIC":
        return None
    window, output_size = window_and_output_size(call.context.settings, call.bottom_spec)
    covering_window = pad_to_cover(call.bottom_spec, window, output_size)
    low, high = zip(*covering_window.padding, strict=True)
    if any(not 0 <= pad < kernel for pads in (low, high) for pad, kernel in zip(pads, window.kernel, strict=True)):
        return None
    name = "max" if method == "MAX" else _mean_operation(call.x.shape[2:], window, covering_window, output_size)
    if name is None:
        return None
    return call.builder.add(
        name, [call.x], call.top_shape, kernel=window.kernel, stride=window.stride, low=low, high=high
    )


def _mean_operation(
    size: tuple[int, ...], window: Window, covering_window: Window, output_size: tuple[int, ...]
) -> str | None:
    """Return the name of the operation that divides the sums by the same numbers as Caffe, or None.

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


@ONEDNN.rule("ReLU6")
def relu6(call: OnednnCall) -> Value | None:
    """Lower clipping of x to the range from 0 to 6."""
    return None if call.param.negative_slope else call.builder.apply(call.x, "clip", 0, 6)


@ONEDNN.rule("Clip")
def clip(call: OnednnCall) -> Value | None:
    """Lower clipping of x to the range from `min` to `max`."""
    p = call.param
    return None if p.min > p.max else call.builder.apply(call.x, "clip", p.min, p.max)


@ONEDNN.rule("Power")
def power(call: OnednnCall) -> Value | None:
    """Lower scale * x + shift. Powers other than 1 are not supported."""
    p = call.param
    return call.builder.apply(call.x, "linear", p.scale, p.shift) if p.power == 1 and p.scale else None


@ONEDNN.rule("Exp")
def exp(call: OnednnCall) -> Value:
    """Lower base ** (scale * x + shift)."""
    p, log_of_base = call.param, ln_base(call.param)
    return call.builder.apply(call.builder.apply(call.x, "linear", log_of_base * p.scale, log_of_base * p.shift), "exp")


@ONEDNN.rule("Log")
def log(call: OnednnCall) -> Value:
    """Lower the logarithm of scale * x + shift to the base `base`."""
    p = call.param
    x = call.builder.apply(call.builder.apply(call.x, "linear", p.scale, p.shift), "log")
    return call.builder.apply(x, "linear", 1 / ln_base(p))


@ONEDNN.rule("PReLU")
def prelu(call: OnednnCall) -> Value | None:
    """Lower a leaky ReLU with learned slopes: one slope for each channel, or one slope for all channels."""
    slope = np.asarray(call.arrays[0], np.float32)
    if slope.ndim == 0:
        return call.builder.apply(call.x, "relu", float(slope))
    return call.builder.apply_per_channel(call.x, "prelu", slope) if len(call.x.shape) == 4 else None


@ONEDNN.rule("Axpy")
def axpy(call: OnednnCall) -> Value | None:
    """Lower a * x + y, with a factor `a` for each channel of each image."""
    factor, x, y = call.bottoms
    if len(x.shape) < 3:
        return None
    broadcast_factor = call.builder.add("reshape", [factor], (*x.shape[:2], *(1,) * (len(x.shape) - 2)))
    return call.builder.combine("plus", call.builder.combine("times", x, broadcast_factor), y)


@ONEDNN.rule("Eltwise")
def eltwise(call: OnednnCall) -> Value | None:
    """Lower an elementwise sum, product or maximum of all bottoms. Coefficients other than 1 are not supported."""
    p, operation = call.param, call.param.EltwiseOp.Name(call.param.operation)
    if any(c != 1 for c in p.coeff):
        return None
    name = {"SUM": "plus", "PROD": "times", "MAX": "maximum"}[operation]
    total = call.x
    for bottom in call.bottoms[1:]:
        total = call.builder.combine(name, total, bottom)
    return total


@ONEDNN.rule("LRN")
def lrn(call: OnednnCall) -> Value | None:
    """Lower local response normalization: x * (k + alpha / n * the sum of squares of n values) ** -beta."""
    p = call.param
    is_within_channel = p.norm_region == p.WITHIN_CHANNEL
    if p.local_size > 2 * min(call.x.shape[1:]):
        return None
    settings = {"alpha": float(p.alpha), "beta": float(p.beta), "k": 1.0 if is_within_channel else float(p.k)}
    return call.builder.add(
        "lrn", [call.x], call.top_shape, within=int(is_within_channel), size=p.local_size, **settings
    )


@ONEDNN.rule("Softmax")
def softmax(call: OnednnCall) -> Value | None:
    """Lower a softmax along an axis."""
    axis = canonical_axis(call.param.axis, call.x.shape)
    if call.param.temperature != 1:
        return None
    return call.builder.add("softmax", [call.x], call.top_shape, axis=axis) if axis else None


@ONEDNN.rule("Normalize")
def normalize(call: OnednnCall) -> Value | None:
    """Lower SSD's Normalize: divide the channel vector at each position by its L2 norm, and scale each channel."""
    p, b, shape = call.context.layer.norm_param, call.builder, call.x.shape
    if not call.arrays or p.across_spatial or len(shape) != 4:
        return None
    b.mark_shared(call.x)  # x has two readers
    weight = b.add_weight(np.ones((1, shape[1], 1, 1), np.float32))
    ones, zeros = (1, 1), (0, 0)
    settings: dict[str, FieldValue] = {"stride": ones, "dilation": ones, "low": zeros, "high": zeros, "groups": 1}
    total = b.add("convolution", [b.apply(call.x, "square")], (shape[0], 1, *shape[2:]), weight=weight, **settings)
    inverse_norm = b.apply(b.apply(total, "linear", 1, p.eps), "power", 1, -0.5)
    scale = np.broadcast_to(np.asarray(call.arrays[0], np.float32), shape[1])
    return b.apply_per_channel(b.combine("times", call.x, inverse_norm), "times", scale)


@ONEDNN.rule("BatchNorm", "Scale", "Bias", "BN")
def lower_channel_affine(call: OnednnCall) -> Value | None:
    """Lower a layer that applies a factor and a bias to each channel, and that could not be folded into weights."""
    x, affine = call.x, Epilogue(call.context, tuple(map(np.asarray, call.arrays)))
    if len(call.bottoms) != 1 or len(x.shape) < 2 or not affine.is_channel_affine(1, x.shape[1]):
        return None
    factor, bias = (np.asarray(a, np.float32) for a in affine.factor_and_bias())
    if np.any(factor != 1):
        x = call.builder.apply_per_channel(x, "times", factor)
    return call.builder.apply_per_channel(x, "plus", bias) if np.any(bias) else x


@ONEDNN.rule("Concat")
def concat(call: OnednnCall) -> Value | None:
    """Lower a concatenation along an axis."""
    axis = concat_axis(call.context.param, call.bottoms)
    return call.builder.add("concat", call.bottoms, call.top_shape, axis=axis)


@ONEDNN.rule("Flatten", "Reshape")
def reshape(call: OnednnCall) -> Value:
    """Lower a reshape to the shape of the top."""
    return call.builder.add("reshape", [call.x], call.top_shape)


@ONEDNN.rule("Slice")
def slice_(call: OnednnCall) -> list[Value]:
    """Lower a split of the bottom along an axis into the tops."""
    axis, points = slice_points(call.context, call.x.shape)
    parts = []
    for start, shape in zip([0, *points], call.top_shapes, strict=True):
        begin = [start if k == axis else 0 for k in range(len(shape))]
        parts.append(call.builder.add("slice", [call.x], shape, **{"from": begin}))
    return parts


@ONEDNN.rule("Crop")
def crop(call: OnednnCall) -> Value:
    """Lower a crop of the first bottom to the size of the second bottom."""
    begin, _ = crop_box(call.context.param, call.x.shape, call.bottoms[1].shape)
    return call.builder.add("slice", [call.x], call.top_shape, **{"from": begin})


@ONEDNN.rule("Permute")
def permute(call: OnednnCall) -> Value:
    """Lower a permutation of the axes."""
    return call.builder.add("permute", [call.x], call.top_shape, order=permuted_axes(call.context.param, call.x.shape))


@ONEDNN.rule("ShuffleChannel")
def shuffle_channel(call: OnednnCall) -> Value:
    """Lower a channel shuffle: interleave the channels of all groups."""
    return call.builder.add("shuffle", [call.x], call.top_shape, size=call.x.shape[1] // call.param.group)
