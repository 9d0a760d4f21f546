"""Emitters for normalisation layers (BatchNorm, BN, LRN, MVN, Normalize), Scale and Bias."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ...base.errors import require
from ...core.layers.helpers import canonical_axis
from ...forks.segmentation.bn import SEGNET_EPS, select_bn
from .emit_context import FLAX, FlaxCall, shorten_float32
from .ir import Shape, Value


@FLAX.rule("BatchNorm")
def batch_norm(e: FlaxCall) -> Value:
    """Emit nnx.BatchNorm, with scale and bias if the layer has them. A Scale layer after it is merged into it later."""
    stats_batch_size, n = e.param.stats_batch_size, e.bottoms[0].shape[0]
    require(
        not 0 < stats_batch_size < n,
        f"computes statistics from {stats_batch_size} of {n} images (stats_batch_size), which is not supported",
    )
    arrays = tuple(map(jnp.asarray, e.arrays[:3]))
    mean, variance = map(np.asarray, e.context.settings.running_statistics(arrays))
    weights = {"mean": mean, "var": variance}
    has_scale = len(e.arrays) > 3
    if has_scale:
        weights |= {"scale": e.arrays[3], "bias": e.arrays[4] if len(e.arrays) > 4 else np.zeros_like(e.arrays[3])}
    return _emit_batch_norm(
        e, weights, e.context.settings.eps, e.param.moving_average_fraction, _uses_running_average(e)
    )


@FLAX.rule("BN")
def bn(e: FlaxCall) -> Value:
    """Emit nnx.BatchNorm for PSPNet's BN. For SegNet's BN, which has no running statistics, emit helper functions."""
    require(len(e.layer.tops) == 1, "has tops for the mean and the variance, which is not supported")
    if select_bn(e.layer.definition.layer).startswith("SegNet"):
        return _segnet_bn(e)
    scale, bias, mean, variance = (array.reshape(-1) for array in e.arrays)
    weights = {"mean": mean, "var": variance, "scale": scale, "bias": bias}
    return _emit_batch_norm(e, weights, e.param.eps, e.param.momentum, True if e.param.frozen else None)


def _segnet_bn(e: FlaxCall) -> Value:
    x = e.to_channels_last(e.bottoms[0])
    if e.param.bn_mode == e.param.LEARN:
        x = e.add_step(f"normalize_by_batch({{0}}, eps={SEGNET_EPS})", x, helpers=["normalize_by_batch"])
    scale, bias = (array.reshape(-1) for array in e.arrays)
    weights = {"scale": scale, "bias": bias}
    module = e.make_module("Scale", "bn", weights, num_positional=1, needs_rngs=False, shape=scale.shape)
    return e.add_elementwise_step("{module}({0})", x, module=module, helpers=["Scale"])


def _uses_running_average(e: FlaxCall) -> bool | None:
    """Return the layer's setting use_global_stats, or None if it is unset, so that the phase decides."""
    return bool(e.param.use_global_stats) if e.param.HasField("use_global_stats") else None


def _emit_batch_norm(
    e: FlaxCall, weights: dict[str, np.ndarray], eps: float, momentum: float, use_running_average: bool | None
) -> Value:
    x = e.to_channels_last(e.bottoms[0])
    options: dict[str, Any] = {}
    if "scale" not in weights:
        options = {"use_bias": False, "use_scale": False}
    module = e.make_module(
        "nnx.BatchNorm",
        "bn",
        weights,
        num_positional=1,
        num_features=weights["mean"].size,
        momentum=shorten_float32(momentum),
        epsilon=shorten_float32(eps),
        **options,
    )
    text = (
        "{module}({0})"
        if use_running_average is None
        else f"{{module}}({{0}}, use_running_average={use_running_average})"
    )
    return e.add_elementwise_step(text, x, module=module)


@FLAX.rule("LRN")
def lrn(e: FlaxCall) -> Value:
    """Emit local response normalisation, across channels or within channels."""
    x = e.to_channels_last(e.bottoms[0])
    p = e.param
    settings = f"size={p.local_size}, alpha={shorten_float32(p.alpha)}, beta={shorten_float32(p.beta)}"
    if p.norm_region == p.WITHIN_CHANNEL:
        return e.add_step(f"local_contrast_norm({{0}}, {settings})", x, helpers=["local_contrast_norm"])
    text = f"local_response_norm({{0}}, {settings}, k={shorten_float32(p.k)})"
    return e.add_step(text, x, helpers=["local_response_norm"])


@FLAX.rule("MVN")
def mvn(e: FlaxCall) -> Value:
    """Emit a normalisation of each image, or of each channel of each image, to mean 0 and, if set, variance 1."""
    x = e.to_channels_last(e.bottoms[0])
    require(len(x.shape) == 4, f"needs a bottom with 4 axes, not {x.shape}")
    axes = (1, 2, 3) if e.param.across_channels else (1, 2)
    if not e.param.normalize_variance:
        return e.add_step(f"{{0}} - jnp.mean({{0}}, axis={axes}, keepdims=True)", x)
    return e.add_step(
        f"standardize({{0}}, axis={axes}, eps={shorten_float32(e.param.eps)})", x, helpers=["standardize"]
    )


@FLAX.rule("Normalize")
def normalize(e: FlaxCall) -> Value:
    """Emit a division by the L2 norm, followed by a multiplication by SSD's learned scale."""
    x = e.to_channels_last(e.bottoms[0])
    if not e.arrays:
        require(len(e.layer.tops) == 1, "has a second top, which is not supported")
        require(len(x.shape) in (2, 4), f"needs a bottom with 2 or 4 axes, not {x.shape}")
        new_axes = "[:, None, None]" if len(x.shape) == 2 else ""
        text = f"unit_length({{0}}, axis=-1, eps=1e-06){new_axes}"
        return e.add_step(text, x, shape=e.top_shape, helpers=["unit_length"])
    p = e.context.layer.norm_param
    axes = tuple(range(1, len(x.shape))) if p.across_spatial else -1
    y = e.add_step(f"unit_length({{0}}, axis={axes}, eps={shorten_float32(p.eps)})", x, helpers=["unit_length"])
    shape = e.arrays[0].shape
    module = e.make_module(
        "Scale", "scale", {"scale": e.arrays[0]}, num_positional=1, needs_rngs=False, shape=shape, use_bias=False
    )
    return e.add_elementwise_step("{module}({0})", y, module=module, helpers=["Scale"])


@FLAX.rule("Scale")
def scale(e: FlaxCall) -> Value:
    """Emit a multiplication by the learned factor or the second bottom, and the addition of a bias if there is one."""
    x = e.to_channels_last(e.bottoms[0])
    has_bounds = e.param.HasField("min_value") or e.param.HasField("max_value")
    require(not has_bounds, "limits its factor (min_value, max_value), which is not supported")
    require(not e.param.match_by_count, "matches its factor by count, which is not supported")
    if len(e.bottoms) == 2:
        y = e.add_step("{0} * {1}", x, _emit_broadcast(e, e.bottoms[1], x))
        return _emit_bias(e, y) if e.arrays else y
    factor, *bias = (_reshape_for_broadcast(array, x, e.param.axis) for array in e.arrays)
    weights = {"scale": factor, **({"bias": bias[0]} if bias else {})}
    options = {} if bias else {"use_bias": False}
    module = e.make_module("Scale", "scale", weights, num_positional=1, needs_rngs=False, shape=factor.shape, **options)
    return e.add_elementwise_step("{module}({0})", x, module=module, helpers=["Scale"])


@FLAX.rule("Bias")
def bias(e: FlaxCall) -> Value:
    """Emit the addition of a learned bias or of the second bottom."""
    x = e.to_channels_last(e.bottoms[0])
    return e.add_step("{0} + {1}", x, _emit_broadcast(e, e.bottoms[1], x)) if len(e.bottoms) == 2 else _emit_bias(e, x)


def _emit_bias(e: FlaxCall, x: Value) -> Value:
    array = _reshape_for_broadcast(e.arrays[-1], x, e.param.axis)
    module = e.make_module("Bias", "bias", {"bias": array}, num_positional=1, needs_rngs=False, shape=array.shape)
    return e.add_elementwise_step("{module}({0})", x, module=module, helpers=["Bias"])


def _reshape_for_broadcast(array: np.ndarray, x: Value, axis: int) -> np.ndarray:
    """Return an array, transposed and reshaped to broadcast with `x` in its stored axis order.

    In Caffe's order, the axes of the array are the axes of `x` from `axis` on.
    """
    start = canonical_axis(axis, x.shape) if array.ndim else 0
    expanded_array = array.reshape((1,) * start + array.shape + (1,) * (len(x.shape) - start - array.ndim))
    expanded_array = expanded_array.transpose(x.order)
    first_axis = next((k for k, n in enumerate(expanded_array.shape) if n != 1), expanded_array.ndim)
    return expanded_array.reshape(expanded_array.shape[first_axis:])


def _emit_broadcast(e: FlaxCall, factor: Value, x: Value) -> Value:
    """Reshape the bottom `factor`, whose axis 0 is the axis `e.param.axis` of `x`, so that it broadcasts with `x`."""
    start = canonical_axis(e.param.axis, x.shape) if factor.shape else 0
    shape: Shape = (1,) * start + factor.shape + (1,) * (len(x.shape) - start - len(factor.shape))
    if shape == factor.shape:
        return e.reorder(factor, x.order)
    factor = e.to_caffe_order(factor)
    if start == 0:  # for example (images, channels), which gets axes for height and width
        sizes = [shape[axis] for axis in x.order]
        if [axis for axis in x.order if shape[axis] != 1] == sorted(k for k in x.order if shape[k] != 1):
            text = ", ".join(map(str, ("{0}.shape[0]", *sizes[1:])))
            return e.add_step(f"{{0}}.reshape({text})", factor, shape=shape, order=x.order, blob=factor.blob)
        text = ", ".join(map(str, ("{0}.shape[0]", *shape[1:])))
    else:
        text = ", ".join(map(str, shape))
    reshaped_factor = e.add_step(
        f"{{0}}.reshape({text})", factor, shape=shape, order=tuple(range(len(shape))), blob=factor.blob
    )
    return e.reorder(reshaped_factor, x.order)
