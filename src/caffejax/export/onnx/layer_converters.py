"""The target `ONNX`: rules by layer type, which convert layers to equivalent ONNX operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np

from ...core.layers.context import Epilogue
from ...core.layers.convolution import ConvolutionOp, convolution_output_size, depthwise_settings, make_convolution_op
from ...core.layers.helpers import canonical_axis
from ...core.layers.pooling import pad_to_cover, pool_method, window_and_output_size, window_areas
from ...core.ops.window import Window
from ...core.program.targets import LayerCall, Target
from .onnx_builder import OnnxBuilder, OnnxValue, Shape, node_output

Tops: TypeAlias = OnnxValue | Sequence[OnnxValue]


@dataclass
class OnnxCall(LayerCall[OnnxValue]):
    """A layer to convert to ONNX nodes: the argument of a rule. Its arrays are float32.

    Attributes:
        builder: the model.
        affine: the only reader of the top, if it applies just a factor and a bias to each channel; otherwise None. A
            rule that converts it too, and returns its top, sets `merges`.
        merges: whether the rule has converted `affine`.
    """

    builder: OnnxBuilder
    affine: Epilogue | None
    merges: bool = False

    def add_broadcast(self, value: OnnxValue) -> str:
        """Return the name of a value in its full shape; see `OnnxBuilder.add_broadcast`."""
        return self.builder.add_broadcast(value)

    def add_array(self, array: Any, name: str | int) -> str:
        """Add an initializer `layer/name` with this array; return its name."""
        return self.builder.add_constant(np.asarray(array), f"{self.layer.key}/{name}")

    def add_weights(self) -> list[str]:
        """Add initializers with the layer's arrays; return their names."""
        return [self.add_array(array, i) for i, array in enumerate(self.arrays)]

    def emit(self, op: str, *inputs: str, bottom: int = 0, **attributes: Any) -> OnnxValue:
        """Add a node that reads the bottom with the number `bottom` and `inputs`; return the top with that number."""
        name = self.builder.add_node(op, [self.add_broadcast(self.bottoms[bottom]), *inputs], **attributes)
        return self.make_top(name, bottom)

    def make_top(self, name: str, i: int = 0) -> OnnxValue:
        """Return a value with this name and the shape of top `i`."""
        return node_output(name, self.top_shapes[i], self.x.dtype)


ONNX = Target[OnnxCall, OnnxValue]()
OPERATORS: dict[str, tuple[str, str]] = {}  # for the documentation, see `convert`


def convert(*types: str, operators: str, exceptions: str = "") -> Callable[[Any], Any]:
    """Return a decorator that adds a function to the table as the rule of layer types.

    Args:
        types: names of the layer types.
        operators: the names of the operators.
        exceptions: a description of the settings for which the rule returns None, so that the jaxpr of the layer's JAX
            function is converted.
    """
    OPERATORS.update(dict.fromkeys(types, (operators, exceptions)))
    return ONNX.rule(*types)


_ELEMENTWISE: dict[str, tuple[str, dict[str, str]]] = {  # the operator, and its attributes with the settings' names
    "AbsVal": ("Abs", {}),
    "BNLL": ("Softplus", {}),
    "ELU": ("Elu", {"alpha": "alpha"}),
    "HardSigmoid": ("HardSigmoid", {"alpha": "alpha", "beta": "beta"}),
    "HardSwish": ("HardSwish", {}),
}


def _make_elementwise_rule(op: str, attributes: dict[str, str]) -> Callable[[OnnxCall], OnnxValue]:
    return lambda call: call.emit(op, **{name: getattr(call.param, field) for name, field in attributes.items()})


for _type, (_op, _attributes) in _ELEMENTWISE.items():
    convert(_type, operators=_op)(_make_elementwise_rule(_op, _attributes))

_MAX_AXES = 3  # maximum spatial axes that ONNX engines support
_UNSUPPORTED_CONVOLUTION = "more than 3 spatial axes, or an `axis` other than 1"


@convert("Convolution", "DepthwiseConvolution", operators="Conv", exceptions=_UNSUPPORTED_CONVOLUTION)
def convolution(call: OnnxCall) -> Tops | None:
    """Convert a convolution to one Conv node for each bottom."""
    return _emit_convolution(call, make_convolution_op(call.context.settings, (call.bottom_spec,)))


@convert("ConvolutionDepthwise", operators="Conv", exceptions=_UNSUPPORTED_CONVOLUTION)
def depthwise(call: OnnxCall) -> Tops | None:
    """Convert to Conv with a group for each channel."""
    settings = depthwise_settings(call.context.settings, call.bottom_spec)
    return _emit_convolution(call, make_convolution_op(settings, (call.bottom_spec,)))


def _emit_convolution(call: OnnxCall, c: ConvolutionOp) -> Tops | None:
    if not _is_supported(c):
        return None
    size = c.spatial_shape(call.bottom_spec)
    window = c.window if c.window.output_size(size) == convolution_output_size(size, c.window) else None
    window = window or c.window.fit_padding(size, convolution_output_size(size, c.window))
    weight_names = call.add_weights()
    attributes = {"kernel_shape": list(window.kernel), "group": c.group, **_window_attributes(window)}
    names = [call.add_broadcast(bottom) for bottom in call.bottoms]
    if not call.builder.engine.pads_pointwise and set(window.kernel) == {1} and any(map(any, window.padding)):
        low, high = zip(*window.padding, strict=True)
        widths = call.builder.add_int64_vector([0, 0, *low, 0, 0, *high])
        names = [call.builder.add_node("Pad", [name, widths]) for name in names]
        attributes["pads"] = [0] * (2 * len(window.kernel))
    return [
        call.make_top(call.builder.add_node("Conv", [name, *weight_names], **attributes), i)
        for i, name in enumerate(names)
    ]


@convert("Deconvolution", operators="ConvTranspose", exceptions=_UNSUPPORTED_CONVOLUTION)
def deconvolution(call: OnnxCall) -> Tops | None:
    """Convert a deconvolution to one ConvTranspose node for each bottom."""
    c = make_convolution_op(call.context.settings, (call.bottom_spec,))
    if not _is_supported(c):
        return None
    weight_names = call.add_weights()
    attributes = {"kernel_shape": list(c.window.kernel), "group": c.group, **_window_attributes(c.window)}
    return [call.emit("ConvTranspose", *weight_names, bottom=i, **attributes) for i in range(len(call.bottoms))]


def _is_supported(c: ConvolutionOp) -> bool:
    return c.axis == 1 and 0 < len(c.window.kernel) <= _MAX_AXES


def _window_attributes(window: Window) -> dict[str, Any]:
    low, high = zip(*window.padding, strict=True)
    return {"strides": list(window.stride), "pads": [*low, *high], "dilations": list(window.dilation)}


@convert(
    "InnerProduct",
    operators="Flatten, Gemm",
    exceptions="an `axis` other than 1, or a fork's form; then Reshape, MatMul, Add",
)
def inner_product(call: OnnxCall) -> Tops | None:
    """Convert to Gemm, after flattening a bottom with more than two axes."""
    if canonical_axis(call.param.axis, call.x.shape) != 1 or call.context.type.traits.fold_scale_bias is None:
        return None
    b, rows_name = call.builder, call.add_broadcast(call.x)
    if len(call.x.shape) != 2:
        rows_name = b.add_node("Flatten", [rows_name], axis=1)
    weight_names = call.add_weights()
    return call.make_top(b.add_node("Gemm", [rows_name, *weight_names], transB=int(not call.param.transpose)))


@convert(
    "Pooling",
    operators="MaxPool, AveragePool (and Mul, where windows reach beyond the padding), GlobalMaxPool, "
    "GlobalAveragePool",
    exceptions="STOCHASTIC, two tops, or windows that leave out much of the plane",
)
def pooling(call: OnnxCall) -> Tops | None:
    """Convert to MaxPool or AveragePool, with the extra padding that Caffe's rounding of sizes requires."""
    method = pool_method(call.param)
    if len(call.top_shapes) != 1 or method == "STOCHASTIC":
        return None
    window, output_size = window_and_output_size(call.context.settings, call.bottom_spec)
    size = call.x.shape[2:]
    if output_size == (1, 1) and window.kernel == size and not any(window.low):
        return call.emit("GlobalMaxPool" if method == "MAX" else "GlobalAveragePool")
    if method == "AVE":
        name = add_average_pool(call, call.add_broadcast(call.x), window, output_size)
        return None if name is None else call.make_top(name)
    window = pad_to_cover(call.bottom_spec, window, output_size)
    pads = _onnx_pads(window)
    return None if pads is None else call.emit("MaxPool", pads=pads, **_pool_attributes(window))


def add_average_pool(call: OnnxCall, name: str, window: Window, output_size: Shape) -> str | None:
    """Add average pooling with Caffe's divisor: the number of cells of each window inside the padded input.

    Args:
        call: the layer.
        name: the name of the bottom in the model.
        window: the pooling window.
        output_size: the spatial shape of the result.

    Returns:
        The name of the result, or None if no operator supports the padding.
    """
    areas = window_areas(call.x.shape[2:], window, output_size)
    window = pad_to_cover(call.bottom_spec, window, output_size)
    pads, b = _onnx_pads(window), call.builder
    if pads is None:
        return None
    means: str = b.add_node("AveragePool", [name], pads=pads, count_include_pad=1, **_pool_attributes(window))
    num_cells = np.float32(np.prod(window.kernel))
    if np.all(areas == num_cells):
        return means
    scaled_means: str = b.add_node("Mul", [means, call.add_array(num_cells / areas, "cells")])
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


@convert(
    "BatchNorm",
    operators="BatchNormalization, with the Scale that follows",
    exceptions="it normalises by the batch, or has five blobs: then Mul, Add",
)
def batch_norm(call: OnnxCall) -> Tops | None:
    """Convert to BatchNormalization with the stored statistics, and the factor and bias of the next layer."""
    if not call.context.settings.uses_running_stats or len(call.arrays) != 3:
        return None
    channels, call.merges = call.x.shape[1], call.affine is not None
    ones_and_zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    factor, bias = ones_and_zeros if call.affine is None else call.affine.factor_and_bias()
    statistics = call.context.settings.running_statistics(tuple(map(jnp.asarray, call.arrays)))
    mean, variance = map(np.asarray, statistics)
    named_arrays = (("scale", factor), ("bias", bias), ("mean", mean), ("variance", variance))
    inputs = [call.add_array(array, name) for name, array in named_arrays]
    return call.emit("BatchNormalization", *inputs, epsilon=float(call.param.eps))


@convert("LRN", operators="LRN; within channels AveragePool, Pow, Div")
def lrn(call: OnnxCall) -> Tops | None:
    """Convert normalisation across channels to LRN, and normalisation within channels to pooling of squares."""
    p, b = call.param, call.builder
    if p.norm_region == p.ACROSS_CHANNELS:
        return call.emit("LRN", size=p.local_size, alpha=p.alpha, beta=p.beta, bias=p.k)
    x = call.add_broadcast(call.x)
    window = Window.symmetric((p.local_size,) * 2, (1, 1), (p.local_size // 2,) * 2)
    means = add_average_pool(call, b.add_node("Mul", [x, x]), window, call.x.shape[2:])
    if means is None:
        return None
    scale_name = b.add_node("Add", [b.add_node("Mul", [means, _add_scalar(call, p.alpha)]), _add_scalar(call, 1)])
    return call.make_top(b.add_node("Div", [x, b.add_node("Pow", [scale_name, _add_scalar(call, p.beta)])]))


def _add_scalar(call: OnnxCall, value: float) -> str:
    return call.builder.add_constant(np.float32(value))


@convert("Softmax", operators="Softmax")
def softmax(call: OnnxCall) -> Tops:
    """Convert to Softmax of x / temperature."""
    axis = canonical_axis(call.param.axis, call.x.shape)
    if call.param.temperature != 1:
        scaled_name = call.builder.add_node(
            "Div", [call.add_broadcast(call.x), _add_scalar(call, call.param.temperature)]
        )
        return call.make_top(call.builder.add_node("Softmax", [scaled_name], axis=axis))
    return call.emit("Softmax", axis=axis)


@convert("ReLU", operators="Relu, LeakyRelu")
def relu(call: OnnxCall) -> Tops:
    """Convert to Relu, or to LeakyRelu if negative_slope is set."""
    slope = call.param.negative_slope
    return call.emit("LeakyRelu", alpha=slope) if slope else call.emit("Relu")


@convert("PReLU", operators="PRelu")
def prelu(call: OnnxCall) -> Tops:
    """Convert to PRelu, with a slope for each channel, or one for all."""
    slope = call.arrays[0]
    return call.emit("PRelu", call.add_array(slope.reshape((*slope.shape, *(1,) * (len(call.x.shape) - 2))), 0))


@convert("Clip", operators="Clip", exceptions="`min` is more than `max`")
def clip(call: OnnxCall) -> Tops | None:
    """Convert to Clip."""
    p = call.param
    return None if p.min > p.max else _emit_clip(call, p.min, p.max)


@convert("ReLU6", operators="Clip", exceptions="it has a slope below 0")
def relu6(call: OnnxCall) -> Tops | None:
    """Convert to Clip between 0 and 6."""
    return None if call.param.negative_slope else _emit_clip(call, 0, 6)


def _emit_clip(call: OnnxCall, low: float, high: float) -> Tops:
    bounds = (call.add_array(np.float32(low), "min"), call.add_array(np.float32(high), "max"))
    return call.emit("Clip", *bounds)


@convert("Dropout", operators="Dropout", exceptions="it scales or drops in TEST")
def dropout(call: OnnxCall) -> Tops | None:
    """Convert to Dropout, which is the identity in inference."""
    return call.emit("Dropout") if call.context.evaluate(call.context.type.traits.is_identity) else None


@convert("Split", operators="Identity")
def split(call: OnnxCall) -> Tops:
    """Return the bottom as each top, without adding a node."""
    return [call.x] * len(call.top_shapes)


@convert("Eltwise", operators="Add, Mul, Max", exceptions="not MAX: then Mul by `coeff`, Add")
def eltwise(call: OnnxCall) -> Tops | None:
    """Convert the operation MAX to Max. Other operations use the general conversion; see `LayerConversion`."""
    if call.param.EltwiseOp.Name(call.param.operation) != "MAX":
        return None
    return call.emit("Max", *map(call.add_broadcast, call.bottoms[1:]))


@convert("Flatten", operators="Flatten", exceptions="it keeps axes beside the first: then Reshape")
def flatten(call: OnnxCall) -> Tops | None:
    """Convert to Flatten if all axes from the second on are merged."""
    p, rank = call.param, len(call.x.shape)
    return call.emit("Flatten", axis=1) if p.axis % rank == 1 and p.end_axis % rank == rank - 1 else None


@convert("Tile", operators="Tile")
def tile(call: OnnxCall) -> Tops:
    """Convert to Tile along an axis."""
    repeats = np.ones(len(call.x.shape), np.int64)
    repeats[call.param.axis] = call.param.tiles
    return call.emit("Tile", call.add_array(repeats, "tiles"))


@convert("Interp", operators="Resize", exceptions="it cuts off rows or columns")
def interp(call: OnnxCall) -> Tops | None:
    """Convert to bilinear Resize with aligned corners."""
    if call.param.pad_beg or call.param.pad_end:
        return None
    attributes: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    return call.emit("Resize", "", "", call.builder.sizes.add_shape_vector(call.top_shapes[0]), **attributes)


@convert("Upsample", operators="Resize", exceptions="it places maxima (SegNet's): then ScatterElements")
def upsample(call: OnnxCall) -> Tops | None:
    """Convert to nearest Resize along height and width."""
    if len(call.bottoms) > 1:
        return None
    attributes: dict[str, Any] = {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    return call.emit("Resize", "", "", call.builder.sizes.add_shape_vector(call.top_shapes[0]), **attributes)
