"""Conversion of layer types to equivalent ONNX operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ...kernels.window import Window
from ...layers import Context
from ...layers.batch_norm import stored_statistics
from ...layers.convolution import Correlation, convolution_output_size, depthwise_context, make_correlation
from ...layers.dropout import dropout_is_identity
from ...layers.helpers import canonical_axis
from ...layers.pooling import pad_to_cover, pool_method, window_and_output_size, window_areas
from .builder import OnnxBuilder, OnnxValue, Shape, node_output

Tops: TypeAlias = OnnxValue | Sequence[OnnxValue]
Emitter: TypeAlias = Callable[["Call"], Tops | None]


@dataclass(frozen=True)
class Call:
    """A layer to convert to ONNX nodes: the argument of a conversion.

    Attributes:
        builder: the model.
        context: the layer's settings, type and phase.
        blobs: the arrays of the layer's parameters and state, float32.
        bottoms: the layer's bottoms, as values of the model.
        shapes: shapes of the layer's tops.
        prefix: prefix for the names of the layer's initializers, which is the layer's key.
    """

    builder: OnnxBuilder
    context: Context
    blobs: Sequence[np.ndarray]
    bottoms: Sequence[OnnxValue]
    shapes: Sequence[Shape]
    prefix: str

    @property
    def param(self) -> Any:
        """The settings message of the layer's type, such as `convolution_param`."""
        return self.context.param

    @property
    def x(self) -> OnnxValue:
        """The first bottom, as a value of the model."""
        return self.bottoms[0]

    @property
    def first_bottom_shape(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the first bottom."""
        return jax.ShapeDtypeStruct(self.x.shape, self.x.dtype)

    def name(self, value: OnnxValue) -> str:
        """Return the name of a value in its full shape, after adding an Expand if it is stored in a smaller shape."""
        return self.builder.broadcast_name(value)

    def array(self, array: Any, name: str | int) -> str:
        """Add an initializer `prefix/name` with this array; return its name."""
        return self.builder.add_constant(np.asarray(array), f"{self.prefix}/{name}")

    def blob(self, i: int) -> str:
        """Add an initializer with the layer's blob `i`; return its name."""
        return self.array(self.blobs[i], i)

    def emit(self, op: str, *inputs: str, bottom: int = 0, **attributes: Any) -> OnnxValue:
        """Add a node with the inputs `self.bottoms[bottom]` and `inputs`; return its output as top number `bottom`."""
        name = self.builder.add_node(op, [self.name(self.bottoms[bottom]), *inputs], **attributes)
        return self.top(name, bottom)

    def top(self, name: str, i: int = 0) -> OnnxValue:
        """Return a value with this name and the shape of top `i`."""
        return node_output(name, self.shapes[i], self.x.dtype)


@dataclass(frozen=True)
class MergedAffine:
    """Conversion of a layer together with the next layer, which applies a factor and a bias to each channel.

    Attributes:
        applies: a function `applies(call)` that returns whether a layer can be merged with the next layer.
        emit: a function `emit(call, factor, bias)` that adds the nodes of both layers and returns the top of the next
            layer. `factor` and `bias` are arrays of shape (channels,).
    """

    applies: Callable[[Call], bool]
    emit: Callable[[Call, np.ndarray, np.ndarray], OnnxValue]


@dataclass(frozen=True)
class Operators:
    """Conversion of a layer type.

    Attributes:
        emit: a function `emit(call)` that adds nodes and returns the tops. It returns None if the layer's settings
            need the general conversion, which converts the jaxpr of the layer's JAX function.
        operator_names: the names of the operators, for the table in the documentation.
        exceptions: a description of the settings that need the general conversion, for the same table.
        scaled: the conversion of the layer together with a factor and a bias for each channel, or None.
    """

    emit: Emitter
    operator_names: str
    exceptions: str = ""
    scaled: MergedAffine | None = None


OPERATORS: dict[str, Operators] = {}


def register_operators(
    *types: str, operators: str, exceptions: str = "", scaled: MergedAffine | None = None
) -> Callable[[Emitter], Emitter]:
    """Return a decorator that registers the conversion of layer types.

    Args:
        types: names of the layer types that the function converts.
        operators: the names of the operators, see `Operators.operator_names`.
        exceptions, scaled: see `Operators`.
    """

    def register(emitter: Emitter) -> Emitter:
        OPERATORS.update(dict.fromkeys(types, Operators(emitter, operators, exceptions, scaled)))
        return emitter

    return register


_MAX_AXES = 3  # maximum spatial axes that ONNX engines support
_UNSUPPORTED_CONVOLUTION = "more than 3 spatial axes, or an `axis` other than 1"


@register_operators("Convolution", "DepthwiseConvolution", operators="Conv", exceptions=_UNSUPPORTED_CONVOLUTION)
def convolution(call: Call) -> Tops | None:
    """Convert a convolution to one Conv node for each bottom."""
    return _emit_convolution(call, make_correlation(call.context, (call.first_bottom_shape,)))


@register_operators("ConvolutionDepthwise", operators="Conv", exceptions=_UNSUPPORTED_CONVOLUTION)
def depthwise(call: Call) -> Tops | None:
    """Convert to Conv with as many groups as channels, which convolves each channel separately."""
    context = depthwise_context(call.context, call.first_bottom_shape)
    return _emit_convolution(call, make_correlation(context, (call.first_bottom_shape,)))


def _emit_convolution(call: Call, c: Correlation) -> Tops | None:
    if not _is_supported(c):
        return None
    size = c.spatial_shape(call.first_bottom_shape)
    window = c.window if c.window.output(size) == convolution_output_size(size, c.window) else None
    window = window or c.window.fit_padding(size, convolution_output_size(size, c.window))
    weights = [call.blob(i) for i in range(len(call.blobs))]
    attributes = {"kernel_shape": list(window.kernel), "group": c.group, **_window_attributes(window)}
    return [call.emit("Conv", *weights, bottom=i, **attributes) for i in range(len(call.bottoms))]


@register_operators("Deconvolution", operators="ConvTranspose", exceptions=_UNSUPPORTED_CONVOLUTION)
def deconvolution(call: Call) -> Tops | None:
    """Convert a deconvolution to one ConvTranspose node for each bottom."""
    c = make_correlation(call.context, (call.first_bottom_shape,))
    if not _is_supported(c):
        return None
    weights = [call.blob(i) for i in range(len(call.blobs))]
    attributes = {"kernel_shape": list(c.window.kernel), "group": c.group, **_window_attributes(c.window)}
    return [call.emit("ConvTranspose", *weights, bottom=i, **attributes) for i in range(len(call.bottoms))]


def _is_supported(c: Correlation) -> bool:
    return c.axis == 1 and 0 < len(c.window.kernel) <= _MAX_AXES


def _window_attributes(window: Window) -> dict[str, Any]:
    low, high = zip(*window.padding, strict=True)
    return {"strides": list(window.stride), "pads": [*low, *high], "dilations": list(window.dilation)}


@register_operators(
    "InnerProduct",
    operators="Flatten, Gemm",
    exceptions="an `axis` other than 1, or a fork's form; then Reshape, MatMul, Add",
)
def inner_product(call: Call) -> Tops | None:
    """Convert to Gemm, after flattening a bottom with more than two axes."""
    if canonical_axis(call.param.axis, call.x.shape) != 1 or call.context.type.traits.fold_scale_bias is None:
        return None
    b, rows = call.builder, call.name(call.x)
    if len(call.x.shape) != 2:
        rows = b.add_node("Flatten", [rows], axis=1)
    weights = [call.blob(i) for i in range(len(call.blobs))]
    return call.top(b.add_node("Gemm", [rows, *weights], transB=int(not call.param.transpose)))


@register_operators(
    "Pooling",
    operators="MaxPool, AveragePool (and Mul, where windows reach beyond the padding), GlobalMaxPool, "
    "GlobalAveragePool",
    exceptions="STOCHASTIC, two tops, or windows that leave out much of the plane",
)
def pooling(call: Call) -> Tops | None:
    """Convert to MaxPool or AveragePool, with the extra padding that Caffe's rounding of sizes requires."""
    method = pool_method(call.param)
    if len(call.shapes) != 1 or method == "STOCHASTIC":
        return None
    window, out = window_and_output_size(call.context, call.first_bottom_shape)
    size = call.x.shape[2:]
    if out == (1, 1) and window.kernel == size and not any(window.low):
        return call.emit("GlobalMaxPool" if method == "MAX" else "GlobalAveragePool")
    if method == "AVE":
        name = add_average_pool(call, call.name(call.x), window, out)
        return None if name is None else call.top(name)
    window = pad_to_cover(call.first_bottom_shape, window, out)
    pads = _pads(window)
    return None if pads is None else call.emit("MaxPool", pads=pads, **_pool_attributes(window))


def add_average_pool(call: Call, name: str, window: Window, out: Shape) -> str | None:
    """Add average pooling with Caffe's divisor: the number of cells of each window inside the padded input.

    Args:
        call: the layer.
        name: the name of the bottom in the model.
        window: the pooling window.
        out: the spatial shape of the result.

    Returns:
        The name of the result, or None if no operator supports the padding.
    """
    areas = window_areas(call.x.shape[2:], window, out)
    window = pad_to_cover(call.first_bottom_shape, window, out)
    pads, b = _pads(window), call.builder
    if pads is None:
        return None
    means: str = b.add_node("AveragePool", [name], pads=pads, count_include_pad=1, **_pool_attributes(window))
    cells = np.float32(np.prod(window.kernel))
    if np.all(areas == cells):
        return means
    scaled: str = b.add_node("Mul", [means, call.array(cells / areas, "cells")])
    return scaled


def _pool_attributes(window: Window) -> dict[str, Any]:
    return {"kernel_shape": list(window.kernel), "strides": list(window.stride)}


def _pads(window: Window) -> list[int] | None:
    """Return the padding in ONNX's order (all low ends, all high ends), or None if ONNX does not support it.

    ONNX does not support a padding that is negative or not smaller than the kernel.
    """
    low, high = zip(*window.padding, strict=True)
    fits = all(0 <= pad < kernel for pads in (low, high) for pad, kernel in zip(pads, window.kernel, strict=True))
    return [*low, *high] if fits else None


def uses_stored_statistics(call: Call) -> bool:
    """Return whether a BatchNorm layer uses stored statistics, so that it can be a single BatchNormalization."""
    return call.context.settings.uses_stored_stats and len(call.blobs) == 3


def batch_normalization(call: Call, factor: np.ndarray, bias: np.ndarray) -> OnnxValue:
    """Add a BatchNormalization node with the stored statistics, a factor and a bias (channels,); return the top."""
    mean, variance = map(np.asarray, stored_statistics(tuple(map(jnp.asarray, call.blobs))))
    arrays = (("scale", factor), ("bias", bias), ("mean", mean), ("variance", variance))
    inputs = [call.array(array, name) for name, array in arrays]
    return call.emit("BatchNormalization", *inputs, epsilon=float(call.param.eps))


@register_operators(
    "BatchNorm",
    operators="BatchNormalization, with the Scale that follows",
    exceptions="it normalises by the batch, or has five blobs: then Mul, Add",
    scaled=MergedAffine(uses_stored_statistics, batch_normalization),
)
def batch_norm(call: Call) -> Tops | None:
    """Convert to BatchNormalization with the stored statistics."""
    if not uses_stored_statistics(call):
        return None
    channels = call.x.shape[1]
    return batch_normalization(call, np.ones(channels, np.float32), np.zeros(channels, np.float32))


@register_operators("LRN", operators="LRN; within channels AveragePool, Pow, Div")
def lrn(call: Call) -> Tops | None:
    """Convert normalisation across channels to LRN, and normalisation within channels to pooling of squares."""
    p, b = call.param, call.builder
    if p.norm_region == p.ACROSS_CHANNELS:
        return call.emit("LRN", size=p.local_size, alpha=p.alpha, beta=p.beta, bias=p.k)
    x = call.name(call.x)
    window = Window.symmetric((p.local_size,) * 2, (1, 1), (p.local_size // 2,) * 2)
    means = add_average_pool(call, b.add_node("Mul", [x, x]), window, call.x.shape[2:])
    if means is None:
        return None
    scale = b.add_node("Add", [b.add_node("Mul", [means, _add_scalar(call, p.alpha)]), _add_scalar(call, 1)])
    return call.top(b.add_node("Div", [x, b.add_node("Pow", [scale, _add_scalar(call, p.beta)])]))


def _add_scalar(call: Call, value: float) -> str:
    return call.builder.add_constant(np.float32(value))


@register_operators("Softmax", operators="Softmax")
def softmax(call: Call) -> Tops:
    """Convert to Softmax of x / temperature."""
    axis = canonical_axis(call.param.axis, call.x.shape)
    if call.param.temperature != 1:
        scaled = call.builder.add_node("Div", [call.name(call.x), _add_scalar(call, call.param.temperature)])
        return call.top(call.builder.add_node("Softmax", [scaled], axis=axis))
    return call.emit("Softmax", axis=axis)


@register_operators("ReLU", operators="Relu, LeakyRelu")
def relu(call: Call) -> Tops:
    """Convert to Relu, or to LeakyRelu if negative_slope is set."""
    slope = call.param.negative_slope
    return call.emit("LeakyRelu", alpha=slope) if slope else call.emit("Relu")


@register_operators("PReLU", operators="PRelu")
def prelu(call: Call) -> Tops:
    """Convert to PRelu, with a slope for each channel."""
    slope = call.blobs[0]
    return call.emit("PRelu", call.array(slope.reshape(*slope.shape, *(1,) * (len(call.x.shape) - 2)), 0))


@register_operators("ELU", operators="Elu")
def elu(call: Call) -> Tops:
    """Convert to Elu: x above 0, and alpha * (exp(x) - 1) below 0."""
    return call.emit("Elu", alpha=call.param.alpha)


@register_operators("AbsVal", operators="Abs")
def absval(call: Call) -> Tops:
    """Convert to Abs."""
    return call.emit("Abs")


@register_operators("BNLL", operators="Softplus")
def bnll(call: Call) -> Tops:
    """Convert to Softplus: log(1 + exp(x))."""
    return call.emit("Softplus")


@register_operators("Clip", operators="Clip", exceptions="`min` is more than `max`")
def clip(call: Call) -> Tops | None:
    """Convert to Clip."""
    p = call.param
    return None if p.min > p.max else _emit_clip(call, p.min, p.max)


@register_operators("ReLU6", operators="Clip", exceptions="it has a slope below 0")
def relu6(call: Call) -> Tops | None:
    """Convert to Clip between 0 and 6."""
    return None if call.param.negative_slope else _emit_clip(call, 0, 6)


def _emit_clip(call: Call, low: float, high: float) -> Tops:
    bounds = (call.array(np.float32(low), "min"), call.array(np.float32(high), "max"))
    return call.emit("Clip", *bounds)


@register_operators("HardSigmoid", operators="HardSigmoid")
def hard_sigmoid(call: Call) -> Tops:
    """Convert to HardSigmoid: alpha * x + beta, clipped to [0, 1]."""
    return call.emit("HardSigmoid", alpha=call.param.alpha, beta=call.param.beta)


@register_operators("HardSwish", operators="HardSwish")
def hard_swish(call: Call) -> Tops:
    """Convert to HardSwish: x * HardSigmoid(x)."""
    return call.emit("HardSwish")


@register_operators("Dropout", operators="Dropout", exceptions="it scales or drops in TEST")
def dropout(call: Call) -> Tops | None:
    """Convert to Dropout, which is the identity in inference."""
    return call.emit("Dropout") if dropout_is_identity(call.context) else None


@register_operators("Split", operators="Identity")
def split(call: Call) -> Tops:
    """Return the bottom as each top, without adding a node."""
    return [call.x] * len(call.shapes)


@register_operators("Eltwise", operators="Add, Mul, Max", exceptions="not MAX: then Mul by `coeff`, Add")
def eltwise(call: Call) -> Tops | None:
    """Convert the operation MAX to Max. Other operations use the general conversion; see `Operators`."""
    if call.param.EltwiseOp.Name(call.param.operation) != "MAX":
        return None
    return call.emit("Max", *map(call.name, call.bottoms[1:]))


@register_operators("Flatten", operators="Flatten", exceptions="it keeps axes beside the first: then Reshape")
def flatten(call: Call) -> Tops | None:
    """Convert to Flatten if all axes from the second on are merged."""
    p, rank = call.param, len(call.x.shape)
    return call.emit("Flatten", axis=1) if p.axis % rank == 1 and p.end_axis % rank == rank - 1 else None


@register_operators("Tile", operators="Tile")
def tile(call: Call) -> Tops:
    """Convert to Tile along an axis."""
    times = np.ones(len(call.x.shape), np.int64)
    times[call.param.axis] = call.param.tiles
    return call.emit("Tile", call.array(times, "tiles"))


@register_operators("Interp", operators="Resize", exceptions="it cuts off rows or columns")
def interp(call: Call) -> Tops | None:
    """Convert to bilinear Resize with aligned corners."""
    if call.param.pad_beg or call.param.pad_end:
        return None
    attributes: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    return call.emit("Resize", "", "", call.builder.sizes.shape_vector(call.shapes[0]), **attributes)


@register_operators("Upsample", operators="Resize", exceptions="it places maxima (SegNet's): then ScatterElements")
def upsample(call: Call) -> Tops | None:
    """Convert to nearest Resize along height and width."""
    if len(call.bottoms) > 1:
        return None
    attributes: dict[str, Any] = {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    return call.emit("Resize", "", "", call.builder.sizes.shape_vector(call.shapes[0]), **attributes)
