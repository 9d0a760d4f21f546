"""Emitters for convolution, deconvolution, pooling, inner product and embedding layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import require
from ...kernels.window import Window
from ...layers import Context
from ...layers.c3d.c3d_layers import volume_correlation, volume_windows
from ...layers.c3d.nd_layers import nd_correlation, nd_windows
from ...layers.convolution import Correlation, convolution_output_size, depthwise_context, make_correlation
from ...layers.helpers import canonical_axis
from ...layers.pooling import pool_method, read_height_width
from .emit_context import EmitContext, collapse_equal, register_emitter
from .emit_shape_ops import Zeros, flatten_from
from .ir import ModuleSpec, Shape, Value


@register_emitter("Convolution", "DepthwiseConvolution")
def convolution(e: EmitContext) -> tuple[Value, ...]:
    """Emit nnx.Conv over height and width."""
    return _write_convolution(e, _planar(e, e.layer.context))


@register_emitter("ConvolutionDepthwise")
def depthwise(e: EmitContext) -> tuple[Value, ...]:
    """Emit nnx.Conv over height and width, which convolves each channel separately."""
    return _write_convolution(e, _planar(e, depthwise_context(e.layer.context, e.bottoms[0])))


@register_emitter("Convolution3D")
def convolution3d(e: EmitContext) -> tuple[Value, ...]:
    """Emit nnx.Conv over time, height and width."""
    return _write_convolution(e, volume_correlation(e.layer.context, e.bottoms[0]))


@register_emitter("NdConvolution")
def nd_convolution(e: EmitContext) -> tuple[Value, ...]:
    """Emit nnx.Conv over any number of spatial axes."""
    return _write_convolution(e, nd_correlation(e.layer.context, e.bottoms[0]))


def _write_convolution(e: EmitContext, c: Correlation) -> tuple[Value, ...]:
    size = c.spatial_shape(e.bottoms[0])
    weight, *bias = e.arrays
    options: dict[str, Any] = {
        "strides": collapse_equal(c.window.stride),
        "padding": _padding(c, size),
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
        _weights(np.moveaxis(weight, (0, 1), (-1, -2)), bias),
        positional=2,
        in_features=weight.shape[1] * c.group,
        out_features=weight.shape[0],
        kernel_size=c.window.kernel,
        **{name: value for name, value in options.items() if value != defaults.get(name)},
    )
    return _apply_to_bottoms(e, module)


@register_emitter("Deconvolution")
def deconvolution(e: EmitContext) -> tuple[Value, ...]:
    """Emit nnx.ConvTranspose over height and width, or a helper function if the layer has groups."""
    return _write_deconvolution(e, _planar(e, e.layer.context))


@register_emitter("Deconvolution3D")
def deconvolution3d(e: EmitContext) -> tuple[Value, ...]:
    """Emit nnx.ConvTranspose over time, height and width."""
    return _write_deconvolution(e, volume_correlation(e.layer.context, e.bottoms[0]))


def _write_deconvolution(e: EmitContext, c: Correlation) -> tuple[Value, ...]:
    weight, *bias = e.arrays
    flipped = np.flip(weight, tuple(range(2, weight.ndim)))
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
        kernel, constructor = np.moveaxis(flipped, (0, 1), (-2, -1)), "nnx.ConvTranspose"
        options |= {} if bias else {"use_bias": False}
    else:
        grouped = flipped.reshape(c.group, -1, *weight.shape[1:])
        kernel, constructor = np.moveaxis(grouped, (1, 0, 2), (-3, -2, -1)), "GroupedConvTranspose"
        kernel = kernel.reshape(*kernel.shape[:-2], -1)
        options |= {"groups": c.group, "use_bias": bool(bias)}
        e.builder.helpers.add(constructor)
    module = e.make_module(
        constructor, "deconv", _weights(kernel, bias), positional=2, **features, kernel_size=c.window.kernel, **options
    )
    return _apply_to_bottoms(e, module)


def _planar(e: EmitContext, context: Context) -> Correlation:
    c = make_correlation(context, e.bottoms)
    require(c.axis == 1, f"has its channels along axis {c.axis}; only axis 1 is supported")
    require(len(c.window.kernel) > 0, "has no spatial axes; use InnerProduct")
    return c


def _padding(c: Correlation, size: Shape) -> str | int | tuple[tuple[int, int], ...]:
    """Return the padding for nnx.Conv, with more padding at the end of an axis if Caffe's output size requires it."""
    needed = c.window.fit_padding(size, convolution_output_size(size, c.window)).padding
    pads = tuple((low, max(low, high)) for low, high in needed)
    if all(low == high for low, high in pads):
        pad = collapse_equal([low for low, _ in pads])
        return "VALID" if pad == 0 else pad if isinstance(pad, int) else pads
    return pads


def _weights(kernel: np.ndarray, bias: list[np.ndarray]) -> dict[str, np.ndarray]:
    return {"kernel": kernel, **({"bias": bias[0].reshape(-1)} if bias else {})}


def _apply_to_bottoms(e: EmitContext, module: ModuleSpec) -> tuple[Value, ...]:
    tops = zip(e.bottoms, e.layer.tops, e.tops, strict=True)
    return tuple(
        e.add_step("{module}({0})", e.to_channels_last(x), module=module, shape=shape, blob=top)
        for x, top, shape in tops
    )


@register_emitter("Pooling")
def pooling(e: EmitContext) -> Value | tuple[Value, ...]:
    """Emit nnx.max_pool or nnx.avg_pool, with the padding that Caffe's rounding of sizes requires.

    If the layer has a second top, which receives the positions of maxima, emit the helper max_pool_with_indices.
    """
    method = pool_method(e.param)
    require(method != "STOCHASTIC", "has the pooling method STOCHASTIC, which flax does not support; use MAX or AVE")
    x, has_positions = e.to_channels_last(e.bottoms[0]), len(e.layer.tops) > 1
    if e.param.global_pooling:
        require(
            not has_positions, "has global_pooling and a second top for the positions of maxima, which is not supported"
        )
        return _global_pooling(e, method, x)
    window = Window.symmetric(
        read_height_width(e.param, "kernel_size", "kernel_h", "kernel_w"),
        read_height_width(e.param, "stride", "stride_h", "stride_w"),
        read_height_width(e.param, "pad", "pad_h", "pad_w"),
    )
    return _max_pool_with_indices(e, x, window) if has_positions else _write_pooling(e, method, x, window)


def _max_pool_with_indices(e: EmitContext, x: Value, window: Window) -> tuple[Value, ...]:
    out = e.tops[0][2:]
    require(
        not _has_window_of_padding(x, window, out),
        "has windows that contain only padding, so their maxima have no positions; this is not supported",
    )
    settings = _settings(window, compute_padding(window, tuple(x.shape[2:]), out))
    helper = "max_pool_with_indices"
    return e.add_multi_output_step(f"{helper}({{0}}, {settings})", x, e.tops, helpers=[helper])


@register_emitter("Pooling3D")
def pooling3d(e: EmitContext) -> Value:
    """Emit pooling over time, height and width."""
    return _pool_symmetric(e, *volume_windows(e.layer.context, e.bottoms[0]))


@register_emitter("NdPooling")
def nd_pooling(e: EmitContext) -> Value:
    """Emit pooling over any number of spatial axes."""
    return _pool_symmetric(e, *nd_windows(e.layer.context, e.bottoms[0]))


def _pool_symmetric(e: EmitContext, method: str, end_padded: Window, _: Shape) -> Value:
    return _write_pooling(
        e,
        method,
        e.to_channels_last(e.bottoms[0]),
        Window.symmetric(end_padded.kernel, end_padded.stride, end_padded.low),
    )


def _write_pooling(e: EmitContext, method: str, x: Value, window: Window) -> Value:
    out = e.tops[0][2:]
    if window.kernel == tuple(x.shape[2:]) and not any(window.low) and set(out) == {1}:
        return _global_pooling(e, method, x)
    if method == "MAX":
        return _maxima(e, x, window, out)
    return _averages(e, x, window, out)


def _global_pooling(e: EmitContext, method: str, x: Value) -> Value:
    function, axes = "jnp.max" if method == "MAX" else "jnp.mean", tuple(range(1, len(x.shape) - 1))
    return e.add_step(f"{function}({{0}}, axis={axes}, keepdims=True)", x, shape=e.tops[0], order=x.order)


def _maxima(e: EmitContext, x: Value, window: Window, out: Shape) -> Value:
    padding = compute_padding(window, tuple(x.shape[2:]), out)
    text = f"nnx.max_pool({{0}}, {_settings(window, padding)})"
    if _has_window_of_padding(x, window, out):
        text = f"jnp.maximum({text}, jnp.finfo({{0}}.dtype).min)"
    return e.add_step(text, x, shape=e.tops[0], order=x.order)


def _has_window_of_padding(x: Value, window: Window, out: Shape) -> bool:
    """Return whether, along any axis, the last pooling window contains only padding."""
    ends = zip(x.shape[2:], window.low, window.stride, out, strict=True)
    return any((o - 1) * stride - low >= n for n, low, stride, o in ends)


def _averages(e: EmitContext, x: Value, window: Window, out: Shape) -> Value:
    """Emit average pooling with Caffe's divisor: the number of cells of each window inside the padded input."""
    size = tuple(x.shape[2:])
    padding = compute_padding(window, size, out)
    is_asymmetric = any(high > low for low, high in padding)
    if is_asymmetric and any(window.low):
        widths = ", ".join(str((low, low)) for low in window.low)
        padded_size = tuple(n + 2 * low for n, low in zip(size, window.low, strict=True))
        x = e.add_step(
            f"jnp.pad({{0}}, ((0, 0), {widths}, (0, 0)))",
            x,
            shape=(*x.shape[:2], *padded_size),
            order=x.order,
            blob=x.blob,
        )
        padding = tuple((0, high - low) for low, high in padding)
    padding_flag = ", count_include_pad=False" if is_asymmetric else ""
    text = f"nnx.avg_pool({{0}}, {_settings(window, padding)}{padding_flag})"
    return e.add_step(text, x, shape=e.tops[0], order=x.order)


def compute_padding(window: Window, size: Shape, out: Shape) -> tuple[tuple[int, int], ...]:
    """Return the padding (low, high) of each spatial axis for pooling in flax.

    It is Caffe's symmetric padding (low, low) if flax then computes the same output size as Caffe. Otherwise `high` is
    the padding that Caffe's output size requires.
    """
    needed = window.fit_padding(size, out).padding
    fits = (a == b for a, b in zip(window.output(size), out, strict=True))
    return tuple((low, low) if is_equal else (low, high) for (low, high), is_equal in zip(needed, fits, strict=True))


def _settings(window: Window, padding: tuple[tuple[int, int], ...]) -> str:
    strides = "" if set(window.stride) == {1} else f", strides={window.stride}"
    padded = f", padding={padding}" if any(map(any, padding)) else ""
    return f"{window.kernel}{strides}{padded}"


@register_emitter("InnerProduct")
def inner_product(e: EmitContext) -> Value:
    """Emit nnx.Linear, with the rows of its kernel in the order in which the bottom's features are stored."""
    x, *other_bottoms = e.bottoms
    axis = canonical_axis(e.param.axis, x.shape)
    require(axis > 0, "has axis 0, which makes the batch a single example; this is not supported")
    if other_bottoms:
        return _product_of_bottoms(e, axis)
    require(not e.param.normalize, "normalizes the rows of its weight (normalize), which is not supported")
    weight, *bias = e.arrays[: 1 + e.param.bias_term]  # without MyCaffe's deviations, which are used only in training
    kernel = weight if e.param.transpose else weight.T
    x = flatten_from(e, x, axis)
    if x.flattened_from is not None:
        kernel = _to_stored(kernel, *x.flattened_from)
    weights = {"kernel": kernel, **({"bias": bias[0]} if bias else {})}
    options = {} if bias else {"use_bias": False}
    module = e.make_module(
        "nnx.Linear",
        "fc",
        weights,
        positional=2,
        in_features=kernel.shape[0],
        out_features=kernel.shape[1],
        **options,
    )
    return e.add_step("{module}({0})", x, module=module, shape=e.tops[0], order=tuple(range(len(e.tops[0]))))


def _product_of_bottoms(e: EmitContext, axis: int) -> Value:
    """Emit an InnerProduct whose weight is the second bottom. The bias is the third bottom or a learned array."""
    require(axis == 1, "has a bottom as its weight and an axis other than 1, which is not supported")
    x, weight, *bias = (_rows(e, bottom) for bottom in e.bottoms)
    text = "{0} @ {1}" if e.param.transpose else "{0} @ {1}.T"
    if not e.arrays:
        return e.add_step(f"{text} + {{2}}" if bias else text, x, weight, *bias, shape=e.tops[0])
    return e.add_step(f"{text} + {{module}}[...]", x, weight, module=_param(e, "bias"), shape=e.tops[0])


def _param(e: EmitContext, kind: str) -> ModuleSpec:
    """Return a module `nnx.Param` that holds the layer's first array."""
    array = e.arrays[0]
    return e.make_module("nnx.Param", kind, {"": array}, positional=1, needs_rngs=False, value=Zeros(array.shape))


def _to_stored(kernel: np.ndarray, shape: Shape, order: Shape) -> np.ndarray:
    """Return a kernel with its inputs reordered from Caffe's order to the order in which they are stored.

    Args:
        kernel: the kernel, of shape (inputs, outputs).
        shape: the shape of the inputs in Caffe's order.
        order: the order in which the axes of the inputs are stored.
    """
    inputs = kernel.reshape(*shape, -1).transpose(*order, len(shape))
    return inputs.reshape(math.prod(shape), -1)


@register_emitter("InnerDistance")
def inner_distance(e: EmitContext) -> Value:
    """Emit the distances of the bottom's rows to the rows of the second bottom or of a learned array."""
    normalizes = bool(e.arrays) and e.param.normalize
    require(not normalizes, "normalizes the rows of its weight (normalize), which is not supported")
    require(canonical_axis(e.param.axis, e.bottoms[0].shape) == 1, "has an axis other than 1, which is not supported")
    x, *centers = (_rows(e, bottom) for bottom in e.bottoms)
    distance = (
        f"jnp.sum({'jnp.abs' if e.param.distance_type == 'L1' else 'jnp.square'}({{0}}[:, None] - {{1}}), axis=-1)"
    )
    if centers:
        return e.add_step(distance, x, *centers, shape=e.tops[0])
    return e.add_step(distance.replace("{1}", "{module}[...]"), x, module=_param(e, "centers"), shape=e.tops[0])


def _rows(e: EmitContext, x: Value) -> Value:
    x = e.to_caffe_order(x)
    if len(x.shape) <= 2:
        return x
    shape = (x.shape[0], math.prod(x.shape[1:]))
    return e.add_step("{0}.reshape({0}.shape[0], -1)", x, shape=shape, order=(0, 1), blob=x.blob)


@register_emitter("Embed")
def embed(e: EmitContext) -> Value:
    """Emit nnx.Embed."""
    weight, *bias = e.arrays
    x = e.to_caffe_order(e.bottoms[0])
    require(not bias, "has a bias_term, which nnx.Embed does not support")
    module = e.make_module(
        "nnx.Embed",
        "embed",
        {"embedding": weight},
        positional=2,
        num_embeddings=weight.shape[0],
        features=weight.shape[1],
    )
    order = tuple(range(len(e.tops[0])))
    return e.add_step("{module}({0}.astype(int))", x, module=module, shape=e.tops[0], order=order)
