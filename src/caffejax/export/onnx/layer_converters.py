"""Conversion of layer types to equivalent ONNX operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ...core.layers import Context
from ...core.layers.batch_norm import running_statistics
from ...core.layers.convolution import ConvolutionOp, convolution_output_size, depthwise_settings, make_convolution_op
from ...core.layers.helpers import canonical_axis
from ...core.layers.pooling import pad_to_cover, pool_method, window_and_output_size, window_areas
from ...core.ops.window import Window
from .onnx_builder import OnnxBuilder, OnnxValue, Shape, node_output

Tops: TypeAlias = OnnxValue | Sequence[OnnxValue]
Emitter: TypeAlias = Callable[["ConversionContext"], Tops | None]


@dataclass(frozen=True)
class ConversionContext:
    """A layer to convert to ONNX nodes: the argument of a conversion.

    Attributes:
        builder: the model.
        context: the layer's settings, type and phase.
        blobs: the arrays of the layer's parameters and state, float32.
        bottoms: the layer's bottoms, as values of the model.
        top_shapes: shapes of the layer's tops.
        prefix: prefix for the names of the layer's initializers, which is the layer's key.
    """

    builder: OnnxBuilder
    context: Context
    blobs: Sequence[np.ndarray]
    bottoms: Sequence[OnnxValue]
    top_shapes: Sequence[Shape]
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
    def bottom_spec(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the first bottom."""
        return jax.ShapeDtypeStruct(self.x.shape, self.x.dtype)

    def add_broadcast(self, value: OnnxValue) -> str:
        """Return the name of a value in its full shape; see `OnnxBuilder.add_broadcast`."""
        return self.builder.add_broadcast(value)

    def add_array(self, array: Any, name: str | int) -> str:
        """Add an initializer `prefix/name` with this array; return its name."""
        return self.builder.add_constant(np.asarray(array), f"{self.prefix}/{name}")

    def add_blob(self, i: int) -> str:
        """Add an initializer with the layer's blob `i`; return its name."""
        return self.add_array(self.blobs[i], i)

    def emit(self, op: str, *inputs: str, bottom: int = 0, **attributes: Any) -> OnnxValue:
        """Add a node that reads the bottom with the number `bottom` and `inputs`; return the top with that number."""
        name = self.builder.add_node(op, [self.add_broadcast(self.bottoms[bottom]), *inputs], **attributes)
        return self.make_top(name, bottom)

    def make_top(self, name: str, i: int = 0) -> OnnxValue:
        """Return a value with this name and the shape of top `i`."""
        return node_output(name, self.top_shapes[i], self.x.dtype)


@dataclass(frozen=True)
class MergedAffine:
    """Conversion of a layer together with the next layer, which applies a factor and a bias to each channel.

    Attributes:
        applies: a function `applies(ctx)` that returns whether a layer can be merged with the next layer.
        emit: a function `emit(ctx, factor, bias)` that adds the nodes of both layers and returns the top of the next
            layer. `factor` and `bias` are arrays of shape (channels,).
    """

    applies: Callable[[ConversionContext], bool]
    emit: Callable[[ConversionContext, np.ndarray, np.ndarray], OnnxValue]


@dataclass(frozen=True)
class LayerConversion:
    """Conversion of a layer type.

    Attributes:
        emit: a function `emit(ctx)` that adds nodes and returns the tops. It returns None if the layer's settings
            need the general conversion, which converts the jaxpr of the layer's JAX function.
        operator_names: the names of the operators, for the table in the documentation.
        exceptions: a description of the settings that need the general conversion, for the same table.
        merged_affine: the conversion of the layer together with a factor and a bias for each channel, or None.
    """

    emit: Emitter
    operator_names: str
    exceptions: str = ""
    merged_affine: MergedAffine | None = None


LAYER_CONVERSIONS: dict[str, LayerConversion] = {}


def register_conversion(
    *types: str, operators: str, exceptions: str = "", merged_affine: MergedAffine | None = None
) -> Callable[[Emitter], Emitter]:
    """Return a decorator that registers the conversion of layer types.

    Args:
        types: names of the layer types that the function converts.
        operators: the names of the operators, see `LayerConversion.operator_names`.
        exceptions, merged_affine: see `LayerConversion`.
    """

    def register(emitter: Emitter) -> Emitter:
        LAYER_CONVERSIONS.update(dict.fromkeys(types, LayerConversion(emitter, operators, exceptions, merged_affine)))
        return emitter

    return register


_MAX_AXES = 3  # maximum spatial axes that ONNX engines support
_UNSUPPORTED_CONVOLUTION = "more than 3 spatial axes, or an `axis` other than 1"


@register_conversion("Convolution", "DepthwiseConvolution", operators="Conv", exceptions=_UNSUPPORTED_CONVOLUTION)
def convolution(ctx: ConversionContext) -> Tops | None:
    """Convert a convolution to one Conv node for each bottom."""
    return _emit_convolution(ctx, make_convolution_op(ctx.context.settings, (ctx.bottom_spec,)))


@register_conversion("ConvolutionDepthwise", operators="Conv", exceptions=_UNSUPPORTED_CONVOLUTION)
def depthwise(ctx: ConversionContext) -> Tops | None:
    """Convert to Conv with as many groups as channels, which convolves each channel separately."""
    settings = depthwise_settings(ctx.context.settings, ctx.bottom_spec)
    return _emit_convolution(ctx, make_convolution_op(settings, (ctx.bottom_spec,)))


def _emit_convolution(ctx: ConversionContext, c: ConvolutionOp) -> Tops | None:
    if not _is_supported(c):
        return None
    size = c.spatial_shape(ctx.bottom_spec)
    window = c.window if c.window.output_size(size) == convolution_output_size(size, c.window) else None
    window = window or c.window.fit_padding(size, convolution_output_size(size, c.window))
    weight_names = [ctx.add_blob(i) for i in range(len(ctx.blobs))]
    attributes = {"kernel_shape": list(window.kernel), "group": c.group, **_window_attributes(window)}
    return [ctx.emit("Conv", *weight_names, bottom=i, **attributes) for i in range(len(ctx.bottoms))]


@register_conversion("Deconvolution", operators="ConvTranspose", exceptions=_UNSUPPORTED_CONVOLUTION)
def deconvolution(ctx: ConversionContext) -> Tops | None:
    """Convert a deconvolution to one ConvTranspose node for each bottom."""
    c = make_convolution_op(ctx.context.settings, (ctx.bottom_spec,))
    if not _is_supported(c):
        return None
    weight_names = [ctx.add_blob(i) for i in range(len(ctx.blobs))]
    attributes = {"kernel_shape": list(c.window.kernel), "group": c.group, **_window_attributes(c.window)}
    return [ctx.emit("ConvTranspose", *weight_names, bottom=i, **attributes) for i in range(len(ctx.bottoms))]


def _is_supported(c: ConvolutionOp) -> bool:
    return c.axis == 1 and 0 < len(c.window.kernel) <= _MAX_AXES


def _window_attributes(window: Window) -> dict[str, Any]:
    low, high = zip(*window.padding, strict=True)
    return {"strides": list(window.stride), "pads": [*low, *high], "dilations": list(window.dilation)}


@register_conversion(
    "InnerProduct",
    operators="Flatten, Gemm",
    exceptions="an `axis` other than 1, or a fork's form; then Reshape, MatMul, Add",
)
def inner_product(ctx: ConversionContext) -> Tops | None:
    """Convert to Gemm, after flattening a bottom with more than two axes."""
    if canonical_axis(ctx.param.axis, ctx.x.shape) != 1 or ctx.context.type.traits.fold_scale_bias is None:
        return None
    b, rows_name = ctx.builder, ctx.add_broadcast(ctx.x)
    if len(ctx.x.shape) != 2:
        rows_name = b.add_node("Flatten", [rows_name], axis=1)
    weight_names = [ctx.add_blob(i) for i in range(len(ctx.blobs))]
    return ctx.make_top(b.add_node("Gemm", [rows_name, *weight_names], transB=int(not ctx.param.transpose)))


@register_conversion(
    "Pooling",
    operators="MaxPool, AveragePool (and Mul, where windows reach beyond the padding), GlobalMaxPool, "
    "GlobalAveragePool",
    exceptions="STOCHASTIC, two tops, or windows that leave out much of the plane",
)
def pooling(ctx: ConversionContext) -> Tops | None:
    """Convert to MaxPool or AveragePool, with the extra padding that Caffe's rounding of sizes requires."""
    method = pool_method(ctx.param)
    if len(ctx.top_shapes) != 1 or method == "STOCHASTIC":
        return None
    window, output_size = window_and_output_size(ctx.context.settings, ctx.bottom_spec)
    size = ctx.x.shape[2:]
    if output_size == (1, 1) and window.kernel == size and not any(window.low):
        return ctx.emit("GlobalMaxPool" if method == "MAX" else "GlobalAveragePool")
    if method == "AVE":
        name = add_average_pool(ctx, ctx.add_broadcast(ctx.x), window, output_size)
        return None if name is None else ctx.make_top(name)
    window = pad_to_cover(ctx.bottom_spec, window, output_size)
    pads = _onnx_pads(window)
    return None if pads is None else ctx.emit("MaxPool", pads=pads, **_pool_attributes(window))


def add_average_pool(ctx: ConversionContext, name: str, window: Window, output_size: Shape) -> str | None:
    """Add average pooling with Caffe's divisor: the number of cells of each window inside the padded input.

    Args:
        ctx: the layer.
        name: the name of the bottom in the model.
        window: the pooling window.
        output_size: the spatial shape of the result.

    Returns:
        The name of the result, or None if no operator supports the padding.
    """
    areas = window_areas(ctx.x.shape[2:], window, output_size)
    window = pad_to_cover(ctx.bottom_spec, window, output_size)
    pads, b = _onnx_pads(window), ctx.builder
    if pads is None:
        return None
    means: str = b.add_node("AveragePool", [name], pads=pads, count_include_pad=1, **_pool_attributes(window))
    num_cells = np.float32(np.prod(window.kernel))
    if np.all(areas == num_cells):
        return means
    scaled_means: str = b.add_node("Mul", [means, ctx.add_array(num_cells / areas, "cells")])
    return scaled_means


def _pool_attributes(window: Window) -> dict[str, Any]:
    return {"kernel_shape": list(window.kernel), "strides": list(window.stride)}


def _onnx_pads(window: Window) -> list[int] | None:
    """Return the padding in ONNX's order (all low ends, all high ends), or None if ONNX does not support it.

    ONNX does not support a padding that is negative or not smaller than the kernel.
    """
    low, high = zip(*window.padding, strict=True)
    fits = all(0 <= pad < kernel for pads in (low, high) for pad, kernel in zip(pads, window.kernel, strict=True))
    return [*low, *high] if fits else None


def uses_stored_statistics(ctx: ConversionContext) -> bool:
    """Return whether a BatchNorm layer uses stored statistics, so that it can be a single BatchNormalization."""
    return ctx.context.settings.uses_running_stats and len(ctx.blobs) == 3


def add_batch_normalization(ctx: ConversionContext, factor: np.ndarray, bias: np.ndarray) -> OnnxValue:
    """Add a BatchNormalization node with the stored statistics, a factor and a bias (channels,); return the top."""
    mean, variance = map(np.asarray, running_statistics(ctx.context, tuple(map(jnp.asarray, ctx.blobs))))
    named_arrays = (("scale", factor), ("bias", bias), ("mean", mean), ("variance", variance))
    inputs = [ctx.add_array(array, name) for name, array in named_arrays]
    return ctx.emit("BatchNormalization", *inputs, epsilon=float(ctx.param.eps))


@register_conversion(
    "BatchNorm",
    operators="BatchNormalization, with the Scale that follows",
    exceptions="it normalises by the batch, or has five blobs: then Mul, Add",
    merged_affine=MergedAffine(uses_stored_statistics, add_batch_normalization),
)
def batch_norm(ctx: ConversionContext) -> Tops | None:
    """Convert to BatchNormalization with the stored statistics."""
    if not uses_stored_statistics(ctx):
        return None
    channels = ctx.x.shape[1]
    return add_batch_normalization(ctx, np.ones(channels, np.float32), np.zeros(channels, np.float32))


@register_conversion("LRN", operators="LRN; within channels AveragePool, Pow, Div")
def lrn(ctx: ConversionContext) -> Tops | None:
    """Convert normalisation across channels to LRN, and normalisation within channels to pooling of squares."""
    p, b = ctx.param, ctx.builder
    if p.norm_region == p.ACROSS_CHANNELS:
        return ctx.emit("LRN", size=p.local_size, alpha=p.alpha, beta=p.beta, bias=p.k)
    x = ctx.add_broadcast(ctx.x)
    window = Window.symmetric((p.local_size,) * 2, (1, 1), (p.local_size // 2,) * 2)
    means = add_average_pool(ctx, b.add_node("Mul", [x, x]), window, ctx.x.shape[2:])
    if means is None:
        return None
    scale_name = b.add_node("Add", [b.add_node("Mul", [means, _add_scalar(ctx, p.alpha)]), _add_scalar(ctx, 1)])
    return ctx.make_top(b.add_node("Div", [x, b.add_node("Pow", [scale_name, _add_scalar(ctx, p.beta)])]))


def _add_scalar(ctx: ConversionContext, value: float) -> str:
    return ctx.builder.add_constant(np.float32(value))


@register_conversion("Softmax", operators="Softmax")
def softmax(ctx: ConversionContext) -> Tops:
    """Convert to Softmax of x / temperature."""
    axis = canonical_axis(ctx.param.axis, ctx.x.shape)
    if ctx.param.temperature != 1:
        scaled_name = ctx.builder.add_node("Div", [ctx.add_broadcast(ctx.x), _add_scalar(ctx, ctx.param.temperature)])
        return ctx.make_top(ctx.builder.add_node("Softmax", [scaled_name], axis=axis))
    return ctx.emit("Softmax", axis=axis)


@register_conversion("ReLU", operators="Relu, LeakyRelu")
def relu(ctx: ConversionContext) -> Tops:
    """Convert to Relu, or to LeakyRelu if negative_slope is set."""
    slope = ctx.param.negative_slope
    return ctx.emit("LeakyRelu", alpha=slope) if slope else ctx.emit("Relu")


@register_conversion("PReLU", operators="PRelu")
def prelu(ctx: ConversionContext) -> Tops:
    """Convert to PRelu, with a slope for each channel."""
    slope = ctx.blobs[0]
    return ctx.emit("PRelu", ctx.add_array(slope.reshape(*slope.shape, *(1,) * (len(ctx.x.shape) - 2)), 0))


@register_conversion("ELU", operators="Elu")
def elu(ctx: ConversionContext) -> Tops:
    """Convert to Elu: x above 0, and alpha * (exp(x) - 1) below 0."""
    return ctx.emit("Elu", alpha=ctx.param.alpha)


@register_conversion("AbsVal", operators="Abs")
def absval(ctx: ConversionContext) -> Tops:
    """Convert to Abs."""
    return ctx.emit("Abs")


@register_conversion("BNLL", operators="Softplus")
def bnll(ctx: ConversionContext) -> Tops:
    """Convert to Softplus: log(1 + exp(x))."""
    return ctx.emit("Softplus")


@register_conversion("Clip", operators="Clip", exceptions="`min` is more than `max`")
def clip(ctx: ConversionContext) -> Tops | None:
    """Convert to Clip."""
    p = ctx.param
    return None if p.min > p.max else _emit_clip(ctx, p.min, p.max)


@register_conversion("ReLU6", operators="Clip", exceptions="it has a slope below 0")
def relu6(ctx: ConversionContext) -> Tops | None:
    """Convert to Clip between 0 and 6."""
    return None if ctx.param.negative_slope else _emit_clip(ctx, 0, 6)


def _emit_clip(ctx: ConversionContext, low: float, high: float) -> Tops:
    bounds = (ctx.add_array(np.float32(low), "min"), ctx.add_array(np.float32(high), "max"))
    return ctx.emit("Clip", *bounds)


@register_conversion("HardSigmoid", operators="HardSigmoid")
def hard_sigmoid(ctx: ConversionContext) -> Tops:
    """Convert to HardSigmoid: alpha * x + beta, clipped to [0, 1]."""
    return ctx.emit("HardSigmoid", alpha=ctx.param.alpha, beta=ctx.param.beta)


@register_conversion("HardSwish", operators="HardSwish")
def hard_swish(ctx: ConversionContext) -> Tops:
    """Convert to HardSwish: x * HardSigmoid(x)."""
    return ctx.emit("HardSwish")


@register_conversion("Dropout", operators="Dropout", exceptions="it scales or drops in TEST")
def dropout(ctx: ConversionContext) -> Tops | None:
    """Convert to Dropout, which is the identity in inference."""
    return ctx.emit("Dropout") if ctx.context.evaluate(ctx.context.type.traits.is_identity) else None


@register_conversion("Split", operators="Identity")
def split(ctx: ConversionContext) -> Tops:
    """Return the bottom as each top, without adding a node."""
    return [ctx.x] * len(ctx.top_shapes)


@register_conversion("Eltwise", operators="Add, Mul, Max", exceptions="not MAX: then Mul by `coeff`, Add")
def eltwise(ctx: ConversionContext) -> Tops | None:
    """Convert the operation MAX to Max. Other operations use the general conversion; see `LayerConversion`."""
    if ctx.param.EltwiseOp.Name(ctx.param.operation) != "MAX":
        return None
    return ctx.emit("Max", *map(ctx.add_broadcast, ctx.bottoms[1:]))


@register_conversion("Flatten", operators="Flatten", exceptions="it keeps axes beside the first: then Reshape")
def flatten(ctx: ConversionContext) -> Tops | None:
    """Convert to Flatten if all axes from the second on are merged."""
    p, rank = ctx.param, len(ctx.x.shape)
    return ctx.emit("Flatten", axis=1) if p.axis % rank == 1 and p.end_axis % rank == rank - 1 else None


@register_conversion("Tile", operators="Tile")
def tile(ctx: ConversionContext) -> Tops:
    """Convert to Tile along an axis."""
    repeats = np.ones(len(ctx.x.shape), np.int64)
    repeats[ctx.param.axis] = ctx.param.tiles
    return ctx.emit("Tile", ctx.add_array(repeats, "tiles"))


@register_conversion("Interp", operators="Resize", exceptions="it cuts off rows or columns")
def interp(ctx: ConversionContext) -> Tops | None:
    """Convert to bilinear Resize with aligned corners."""
    if ctx.param.pad_beg or ctx.param.pad_end:
        return None
    attributes: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    return ctx.emit("Resize", "", "", ctx.builder.sizes.add_shape_vector(ctx.top_shapes[0]), **attributes)


@register_conversion("Upsample", operators="Resize", exceptions="it places maxima (SegNet's): then ScatterElements")
def upsample(ctx: ConversionContext) -> Tops | None:
    """Convert to nearest Resize along height and width."""
    if len(ctx.bottoms) > 1:
        return None
    attributes: dict[str, Any] = {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    return ctx.emit("Resize", "", "", ctx.builder.sizes.add_shape_vector(ctx.top_shapes[0]), **attributes)
