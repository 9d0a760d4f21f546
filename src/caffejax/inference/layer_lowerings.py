"""Lowerings of layer types: functions that add the operations of a layer to a oneDNN program.

A lowering takes a `Call` and returns the value of the layer's top, or a list of values for several tops. It returns
None if oneDNN does not support the layer's settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ..kernels.onednn_program import FieldValue
from ..kernels.window import Window
from ..layers import Context
from ..layers.convolution import Correlation, convolution_output_size, depthwise_context, make_correlation
from ..layers.helpers import canonical_axis
from ..layers.indexing import crop_box
from ..layers.neuron import log_base
from ..layers.permute import permuted_axes
from ..layers.pooling import pad_to_cover, pool_method, window_and_output_size, window_areas
from ..layers.shape_ops import concat_axis, slice_points
from .program_builder import ProgramBuilder, Value

Tops = Value | Sequence[Value] | None
Lowering = Callable[["Call"], Tops]


@dataclass(frozen=True)
class Call:
    """A layer to lower: the argument of a lowering.

    Attributes:
        builder: the builder of the program.
        context: the layer's settings, type and phase.
        blobs: the arrays of the layer's parameters and state.
        bottoms: the values of the bottoms in the program.
        shapes: the shapes of the tops.
    """

    builder: ProgramBuilder
    context: Context
    blobs: Sequence[Any]
    bottoms: Sequence[Value]
    shapes: Sequence[tuple[int, ...]]

    @property
    def out(self) -> tuple[int, ...]:
        """The shape of the first top."""
        return self.shapes[0]

    @property
    def param(self) -> Any:
        """The settings message of the layer's type, such as `convolution_param`."""
        return self.context.param

    @property
    def x(self) -> Value:
        """The value of the first bottom."""
        return self.bottoms[0]

    @property
    def like(self) -> jax.ShapeDtypeStruct:
        """The shape and dtype (float32) of the first bottom."""
        return jax.ShapeDtypeStruct(self.x.shape, np.float32)

    def weight(self, i: int) -> int:
        """Add blob `i` of the layer to the program's weights, and return its number among the weights."""
        return self.builder.add_weight(self.blobs[i])


LOWERINGS: dict[str, Lowering] = {}


def lowers(*types: str) -> Callable[[Lowering], Lowering]:
    """Return a decorator that registers a function as the lowering of the given layer types."""

    def register(lowering: Lowering) -> Lowering:
        LOWERINGS.update(dict.fromkeys(types, lowering))
        return lowering

    return register


@lowers("Convolution", "DepthwiseConvolution")
def convolution(call: Call) -> Value | None:
    """Lower a convolution, whose padding at the ends of the axes is adjusted to Caffe's output size."""
    return _lower_convolution(call, make_correlation(call.context, (call.like,)))


@lowers("ConvolutionDepthwise")
def depthwise(call: Call) -> Value | None:
    """Lower the convolution of each channel with a separate kernel."""
    return _lower_convolution(call, make_correlation(depthwise_context(call.context, call.like), (call.like,)))


def _lower_convolution(call: Call, c: Correlation) -> Value | None:
    size = c.spatial_shape(call.like)
    window = c.window.fit_padding(size, convolution_output_size(size, c.window)).drop_negative_padding(size)
    return _add_convolution("convolution", call, c, window)


@lowers("Deconvolution")
def deconvolution(call: Call) -> Value | None:
    """Lower a transposed convolution."""
    c = make_correlation(call.context, (call.like,))
    return _add_convolution("deconvolution", call, c, c.window)


def _add_convolution(name: str, call: Call, c: Correlation, window: Window) -> Value | None:
    if not 1 <= len(window.kernel) <= 3:
        return None
    low, high = zip(*window.padding, strict=True)
    if c.axis != 1 or min(*low, *high) < 0 or len(call.bottoms) != 1:
        return None
    steps = {"stride": window.stride, "dilation": window.dilation, "low": low, "high": high}
    return call.builder.add(name, [call.x], call.out, **_blobs(call), **steps, groups=c.group)


@lowers("InnerProduct")
def inner_product(call: Call) -> Value | None:
    """Lower the product of the bottom (N, inputs) and the weight (num_output, inputs), plus a bias."""
    shape = call.x.shape
    if canonical_axis(call.param.axis, shape) != 1 or call.param.transpose or len(call.out) != 2:
        return None
    # in some forks the weight is a bottom, or its rows are normalized; such types have no `fold_scale_bias`
    if call.context.type.traits.fold_scale_bias is None:
        return None
    x = call.x
    if not 2 <= len(shape) <= 5:
        x = call.builder.add("reshape", [x], (shape[0], math.prod(shape[1:])))
    return call.builder.add("dense", [x], call.out, **_blobs(call))


def _blobs(call: Call) -> dict[str, FieldValue]:
    """Add the layer's weight and bias to the program, and return `{"weight": number, "bias": number}`."""
    return dict(zip(("weight", "bias"), map(call.weight, range(len(call.blobs))), strict=False))


@lowers("Pooling")
def pooling(call: Call) -> Value | None:
    """Lower maximum pooling, or mean pooling if oneDNN can divide the sums of windows by the same numbers as Caffe."""
    method = pool_method(call.param)
    if method == "STOCHASTIC":
        return None
    window, out = window_and_output_size(call.context, call.like)
    covering = pad_to_cover(call.like, window, out)
    low, high = zip(*covering.padding, strict=True)
    if any(not 0 <= pad < kernel for pads in (low, high) for pad, kernel in zip(pads, window.kernel, strict=True)):
        return None
    name = "max" if method == "MAX" else _mean_operation(call.x.shape[2:], window, covering, out)
    if name is None:
        return None
    return call.builder.add(name, [call.x], call.out, kernel=window.kernel, stride=window.stride, low=low, high=high)


def _mean_operation(size: tuple[int, ...], window: Window, covering: Window, out: tuple[int, ...]) -> str | None:
    """Return the name of the operation that divides the sums by the same numbers as Caffe, or None if there is none.

    "padded_mean" divides by the number of cells of a window, and "mean" by the number of its cells inside the input.
    """
    areas = window_areas(size, window, out)
    if np.all(areas == np.prod(window.kernel)):
        return "padded_mean"
    ranges = []
    for n, kernel, stride, low, o in zip(size, window.kernel, window.stride, covering.low, out, strict=True):
        start = np.arange(o) * stride - low
        ranges.append(np.minimum(start + kernel, n) - np.maximum(start, 0))
    return "mean" if np.array_equal(np.outer(*ranges), areas) else None


@lowers("ReLU")
def relu(call: Call) -> Value:
    """Lower max(x, 0) + negative_slope * min(x, 0)."""
    return call.builder.apply(call.x, "relu", call.param.negative_slope)


@lowers("ReLU6")
def relu6(call: Call) -> Value | None:
    """Lower clipping of x to the range from 0 to 6."""
    return None if call.param.negative_slope else call.builder.apply(call.x, "clip", 0, 6)


@lowers("ELU")
def elu(call: Call) -> Value:
    """Lower ELU: x for x > 0, otherwise alpha * (exp(x) - 1)."""
    return call.builder.apply(call.x, "elu", call.param.alpha)


@lowers("Sigmoid")
def sigmoid(call: Call) -> Value:
    """Lower 1 / (1 + exp(-x))."""
    return call.builder.apply(call.x, "logistic")


@lowers("TanH")
def tanh(call: Call) -> Value:
    """Lower the hyperbolic tangent."""
    return call.builder.apply(call.x, "tanh")


@lowers("Swish")
def swish(call: Call) -> Value:
    """Lower x * sigmoid(beta * x)."""
    return call.builder.apply(call.x, "swish", call.param.beta)


@lowers("AbsVal")
def absval(call: Call) -> Value:
    """Lower |x|."""
    return call.builder.apply(call.x, "abs")


@lowers("Clip")
def clip(call: Call) -> Value | None:
    """Lower clipping of x to the range from `min` to `max`."""
    p = call.param
    return None if p.min > p.max else call.builder.apply(call.x, "clip", p.min, p.max)


@lowers("Power")
def power(call: Call) -> Value | None:
    """Lower scale * x + shift. Powers other than 1 are not supported."""
    p = call.param
    return call.builder.apply(call.x, "linear", p.scale, p.shift) if p.power == 1 and p.scale else None


@lowers("Exp")
def exp(call: Call) -> Value:
    """Lower base ** (scale * x + shift)."""
    p, base = call.param, log_base(call.param)
    return call.builder.apply(call.builder.apply(call.x, "linear", base * p.scale, base * p.shift), "exp")


@lowers("Log")
def log(call: Call) -> Value:
    """Lower the logarithm of scale * x + shift to the base `base`."""
    p = call.param
    x = call.builder.apply(call.builder.apply(call.x, "linear", p.scale, p.shift), "log")
    return call.builder.apply(x, "linear", 1 / log_base(p))


@lowers("PReLU")
def prelu(call: Call) -> Value | None:
    """Lower a leaky ReLU with learned slopes: one slope for each channel, or one slope for all channels."""
    slope = np.asarray(call.blobs[0], np.float32)
    if slope.ndim == 0:
        return call.builder.apply(call.x, "relu", float(slope))
    return call.builder.apply_by_channel(call.x, "prelu", slope) if len(call.x.shape) == 4 else None


@lowers("Axpy")
def axpy(call: Call) -> Value | None:
    """Lower a * x + y, with a factor `a` for each channel of each image."""
    factors, x, y = call.bottoms
    if len(x.shape) < 3:
        return None
    scales = call.builder.add("reshape", [factors], (*x.shape[:2], *(1,) * (len(x.shape) - 2)))
    return call.builder.combine("plus", call.builder.combine("times", x, scales), y)


@lowers("Eltwise")
def eltwise(call: Call) -> Value | None:
    """Lower an elementwise sum, product or maximum of all bottoms. Coefficients other than 1 are not supported."""
    p, operation = call.param, call.param.EltwiseOp.Name(call.param.operation)
    if any(c != 1 for c in p.coeff):
        return None
    name = {"SUM": "plus", "PROD": "times", "MAX": "maximum"}[operation]
    total = call.x
    for bottom in call.bottoms[1:]:
        total = call.builder.combine(name, total, bottom)
    return total


@lowers("LRN")
def lrn(call: Call) -> Value | None:
    """Lower local response normalization: x * (k + alpha / n * the sum of squares of n values) ** -beta."""
    p = call.param
    within = p.norm_region == p.WITHIN_CHANNEL
    if p.local_size > 2 * min(call.x.shape[1:]):
        return None
    numbers = {"alpha": float(p.alpha), "beta": float(p.beta), "k": 1.0 if within else float(p.k)}
    return call.builder.add("lrn", [call.x], call.out, within=int(within), size=p.local_size, **numbers)


@lowers("Softmax")
def softmax(call: Call) -> Value | None:
    """Lower a softmax along an axis."""
    axis = canonical_axis(call.param.axis, call.x.shape)
    if call.param.temperature != 1:
        return None
    return call.builder.add("softmax", [call.x], call.out, axis=axis) if axis else None


@lowers("Normalize")
def normalize(call: Call) -> Value | None:
    """Lower SSD's Normalize: divide the channel vector at each position by its L2 norm, and scale each channel."""
    p, w, shape = call.context.layer.norm_param, call.builder, call.x.shape
    if not call.blobs or p.across_spatial or len(shape) != 4:
        return None
    w.mark_shared(call.x)  # x has two readers
    weight = w.add_weight(np.ones((1, shape[1], 1, 1), np.float32))
    unit, zero = (1, 1), (0, 0)
    steps: dict[str, FieldValue] = {"stride": unit, "dilation": unit, "low": zero, "high": zero, "groups": 1}
    total = w.add("convolution", [w.apply(call.x, "square")], (shape[0], 1, *shape[2:]), weight=weight, **steps)
    inverse_norm = w.apply(w.apply(total, "linear", 1, p.eps), "power", 1, -0.5)
    scale = np.broadcast_to(np.asarray(call.blobs[0], np.float32), shape[1])
    return w.apply_by_channel(w.combine("times", call.x, inverse_norm), "times", scale)


@lowers("BatchNorm", "Scale", "Bias", "BN")
def by_channel(call: Call) -> Value | None:
    """Lower a layer that applies a factor and a bias to each channel, and that could not be folded into weights."""
    affine = call.context.type.traits.by_channel
    shapes = [np.shape(b) for b in call.blobs]
    if affine is None or len(call.bottoms) != 1 or len(call.x.shape) < 2:
        return None
    if not call.blobs or not affine.applies(call.context, shapes, 1, call.x.shape[1]):
        return None
    factor, bias = (
        np.asarray(a, np.float32) for a in affine.factor_and_bias(call.context, tuple(map(np.asarray, call.blobs)))
    )
    x = call.x
    if np.any(factor != 1):
        x = call.builder.apply_by_channel(x, "times", factor)
    return call.builder.apply_by_channel(x, "plus", bias) if np.any(bias) else x


@lowers("Concat")
def concat(call: Call) -> Value | None:
    """Lower a concatenation along an axis."""
    axis = concat_axis(call.context, call.bottoms)
    return call.builder.add("concat", call.bottoms, call.out, axis=axis)


@lowers("Flatten", "Reshape")
def reshape(call: Call) -> Value:
    """Lower a reshape to the shape of the top."""
    return call.builder.add("reshape", [call.x], call.out)


@lowers("Slice")
def slice_(call: Call) -> list[Value]:
    """Lower a split of the bottom along an axis into the tops."""
    axis, points = slice_points(call.context, call.x.shape)
    parts = []
    for start, shape in zip([0, *points], call.shapes, strict=True):
        begin = [start if k == axis else 0 for k in range(len(shape))]
        parts.append(call.builder.add("slice", [call.x], shape, **{"from": begin}))
    return parts


@lowers("Crop")
def crop(call: Call) -> Value:
    """Lower a crop of the first bottom to the size of the second bottom."""
    begin, _ = crop_box(call.context, call.x.shape, call.bottoms[1].shape)
    return call.builder.add("slice", [call.x], call.out, **{"from": begin})


@lowers("Permute")
def permute(call: Call) -> Value:
    """Lower a permutation of the axes."""
    return call.builder.add("permute", [call.x], call.out, order=permuted_axes(call.context, call.x.shape))


@lowers("ShuffleChannel")
def shuffle_channel(call: Call) -> Value:
    """Lower a channel shuffle: interleave the channels of all groups."""
    return call.builder.add("shuffle", [call.x], call.out, size=call.x.shape[1] // call.param.group)
