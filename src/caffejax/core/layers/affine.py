"""Layers that scale and shift: Bias, Scale, Axpy and ChannelScale.

Caffe's rules: bias_layer.cpp and scale_layer.cpp.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import require
from ..ops.channel_affine import channel_affine
from ..schema.caffe_pb2 import FillerParameter
from . import cross_replica
from .context import Context, ParamSpec, Shape
from .dtype_policy import promote
from .helpers import array_namespace, as_nchw, canonical_axis, first_top
from .loss_helpers import straight_through
from .registry import define_layer, register
from .types import ChannelAffine, Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced, Variants

Arrays = tuple[jax.Array, ...]


def bias(ctx: Context, blobs: Arrays, *bottoms: jax.Array) -> jax.Array:
    """Add a bias to x. The bias is broadcast: its axes correspond to the axes of x that begin at `axis`.

    The bias is bottom 1 or, with one bottom, a learnable blob that spans `num_axes` axes of x. If num_axes is -1, the
    blob spans all axes from `axis` on; if num_axes is 0, the blob is a single number. The top has the shape of x.
    """
    x, addend = *bottoms, *blobs
    return _apply_steps(ctx, x, [(operator.add, addend)])


def _spans_channels(ctx: Context, shapes: Sequence[Shape], axis: int, channels: int) -> bool:
    return bool(ctx.param.axis == axis and set(shapes) == {(channels,)})


def bias_factor_and_bias(ctx: Context, blobs: Arrays) -> tuple[jax.Array, jax.Array]:
    return array_namespace(blobs[0]).ones_like(blobs[0]), blobs[0]


def bias_params(ctx: Context, *bottoms: Any) -> list[ParamSpec]:
    if len(bottoms) == 2:
        return []
    return [ParamSpec(_spanned_shape(ctx.param, bottoms[0].shape), ctx.param.filler)]


def affine_top_shapes(ctx: Context, *bottoms: Any) -> list[Shape] | None:
    return [bottoms[0].shape] if len(bottoms) == 1 else None


def bias_backward(ctx: Context, blobs: Arrays, *bottoms: jax.Array, y: jax.Array, dy: jax.Array) -> tuple[Any, ...]:
    x, addend = *bottoms, *blobs
    d_addend = _sum_to_blob(dy, addend, x, ctx.param.axis)
    return ((d_addend,), dy) if blobs else ((), dy, d_addend)


define_layer(
    Signature("Bias", bottoms=(1, 2), param="bias_param"),
    Traced(bias, params=bias_params, top_shapes=affine_top_shapes),
    Gradient(bias_backward),
    LayerTraits(
        dtype_policy="bottoms", spatial_map="same", channel_affine=ChannelAffine(_spans_channels, bias_factor_and_bias)
    ),
)


def scale(ctx: Context, blobs: Arrays, *bottoms: jax.Array) -> jax.Array:
    """Multiply x by a factor. The factor is broadcast: its axes correspond to the axes of x that begin at `axis`.

    The factor is bottom 1 or, with one bottom, a learnable blob that spans `num_axes` axes, as in Bias. With
    `bias_term` a learnable bias of the same shape is added; in a layer with two bottoms, this bias is the only blob.
    `min_value` and `max_value` (forks) clamp the factor. The top has the shape of x. With `match_by_count` (OpenCV) the
    factor spans the axes of x from `axis` on that have its number of elements, such as (N, C, 1, 1) with axis 0.
    """
    x, factor, *biases = *bottoms, *blobs
    factor = _clamp_factor(ctx, factor.reshape(_factor_shape(ctx.param, x, factor)))
    return _apply_steps(ctx, x, [(operator.mul, factor), *((operator.add, b) for b in biases)])


def scale_factor_and_bias(ctx: Context, blobs: Arrays) -> tuple[jax.Array, jax.Array]:
    factor, *biases = _clamp_factor(ctx, blobs[0]), *blobs[1:]
    return factor, biases[0] if biases else array_namespace(factor).zeros_like(factor)


def scale_params(ctx: Context, *bottoms: Any) -> list[ParamSpec]:
    p = ctx.param
    shape = _factor_shape(p, *bottoms) if len(bottoms) == 2 else _spanned_shape(p, bottoms[0].shape)
    filler = p.filler if p.HasField("filler") else FillerParameter(type="constant", value=1)
    factor = [ParamSpec(shape, filler)] if len(bottoms) == 1 else []
    return [*factor, ParamSpec(shape, p.bias_filler)] if p.bias_term else factor


def scale_backward(ctx: Context, blobs: Arrays, *bottoms: jax.Array, y: jax.Array, dy: jax.Array) -> tuple[Any, ...]:
    axis = ctx.param.axis
    x, whole_factor, *biases = *bottoms, *blobs
    factor = _clamp_factor(ctx, whole_factor.reshape(_factor_shape(ctx.param, x, whole_factor)))
    dx = dy * _broadcast_blob(factor, x, axis)
    d_factor = _sum_to_blob(promote(dy) * x, factor, x, axis).reshape(whole_factor.shape)
    d_biases = tuple(_sum_to_blob(dy, b, x, axis) for b in biases)
    return ((d_factor, *d_biases), dx) if len(bottoms) == 1 else (d_biases, dx, d_factor)


define_layer(
    Signature("Scale", bottoms=(1, 2), param="scale_param", fork_settings=("min_value", "max_value", "match_by_count")),
    Traced(scale, params=scale_params, top_shapes=affine_top_shapes),
    Gradient(scale_backward),
    LayerTraits(
        dtype_policy="bottoms", spatial_map="same", channel_affine=ChannelAffine(_spans_channels, scale_factor_and_bias)
    ),
)


def _factor_shape(p: Any, x: Any, factor: Any) -> Shape:
    """Return the shape that the factor needs in order to be broadcast."""
    if not p.match_by_count:
        return tuple(factor.shape)
    start = canonical_axis(p.axis, x.shape)
    ends = range(start + 1, len(x.shape) + 1)
    return next((x.shape[start:end] for end in ends if math.prod(x.shape[start:end]) == factor.size), factor.shape)


def _clamp_factor(ctx: Context, factor: Any) -> Any:
    """Clamp a Scale's factor to [`min_value`, `max_value`]; the gradient ignores the clamp."""
    p = ctx.param
    low, high = (getattr(p, f) if p.HasField(f) else None for f in ("min_value", "max_value"))
    if low is None and high is None:
        return factor
    clamped_factor = array_namespace(factor).clip(factor, low, high)
    return clamped_factor if isinstance(clamped_factor, np.ndarray) else straight_through(factor, clamped_factor)


def _spanned_shape(p: Any, shape: Shape) -> Shape:
    """Return the shape of the learnable blob: the sizes of the axes of the bottom that the blob spans.

    `shape` is the shape of the bottom.
    """
    start = canonical_axis(p.axis, shape)
    require(p.num_axes >= -1, f"num_axes must be -1 (all axes from `axis` on), 0 or more, not {p.num_axes}")
    if p.num_axes == -1:
        return shape[start:]
    require(
        start + p.num_axes <= len(shape),
        f"the blob extends past the bottom: shape {shape} does not have {p.num_axes} axes from axis {start} on",
    )
    return shape[start : start + p.num_axes]


def _find_first_axis(blob: Any, x: Any, axis: int) -> int:
    """Return the index of the axis of `x` to which axis 0 of `blob` corresponds, or 0 if `blob` has no axes."""
    start = canonical_axis(axis, x.shape) if blob.shape else 0
    shape, spanned_shape = tuple(blob.shape), tuple(x.shape[start : start + len(blob.shape)])
    num_axes = len(shape) - next((i for i, n in enumerate(reversed(shape)) if n != 1), len(shape))
    is_flat = shape[:num_axes] == spanned_shape[:num_axes]
    advice = f"; Flatten the second bottom to {shape[:num_axes]}" if is_flat and num_axes else ""
    require(
        spanned_shape == shape,
        f"dimension mismatch: shape {shape} does not match the bottom's shape {x.shape} from axis {start} on{advice}",
    )
    return start


def _apply_steps(ctx: Context, x: jax.Array, steps: Sequence[tuple[Callable[..., Any], jax.Array]]) -> jax.Array:
    """Apply `steps`, pairs (operation, blob), to `x` in order; return an array with the shape and dtype of `x`."""
    if ctx.fast and all(b.ndim == 1 and _find_first_axis(b, x, ctx.param.axis) == 1 for _, b in steps):
        operands = dict(steps)
        return channel_affine(x, operands.get(operator.mul), operands.get(operator.add)).astype(x.dtype)
    y = x
    for operation, blob in steps:
        y = operation(y, _broadcast_blob(blob, x, ctx.param.axis))
    return y.astype(x.dtype)


def _broadcast_blob(blob: jax.Array, x: jax.Array, axis: int) -> jax.Array:
    """Append axes of size 1 to `blob`, so that its axis 0 broadcasts along axis `axis` of `x`."""
    return blob.reshape(*blob.shape, *(1,) * (x.ndim - _find_first_axis(blob, x, axis) - blob.ndim))


def _sum_to_blob(d: jax.Array, blob: jax.Array, x: jax.Array, axis: int) -> jax.Array:
    """Sum `d`, which has the shape of `x`, over all axes along which `blob` was broadcast."""
    start = _find_first_axis(blob, x, axis)
    return jnp.sum(promote(d), axis=[k for k in range(x.ndim) if not start <= k < start + blob.ndim])


def axpy(ctx: Context, a: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """Return a * x + y, where `a` is a factor for each channel of each item (SENet's axpy_layer.cpp).

    Bottoms: `a` (N, C) or (N, C, 1, 1), x (N, C, ...) and y with the shape of x. The top has the shape of x.
    """
    return (_broadcast_factors(a, x, y) * x + y).astype(x.dtype)


def axpy_backward(
    ctx: Context, a: jax.Array, x: jax.Array, addend: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    da = jnp.sum(promote(dy) * x, axis=tuple(range(2, x.ndim)))
    return da.reshape(a.shape), _broadcast_factors(a, x, addend) * dy, dy


define_layer(
    Signature("Axpy", bottoms=3),
    Traced(axpy),
    Gradient(axpy_backward),
    LayerTraits(row_wise=True, dtype_policy="bottoms", spatial_map="same"),
    docs=LayerDocs(origin="SENet"),
)


def _broadcast_factors(a: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    require(len(x.shape) >= 2, f"bottom 1 needs a channel axis (axis 1), but has shape {x.shape}")
    require(x.shape == y.shape, f"bottoms 1 and 2 must have equal shapes, not {x.shape} and {y.shape}")
    require(
        a.shape[:2] == x.shape[:2] and all(n == 1 for n in a.shape[2:]),
        f"bottom 0 must hold a factor for each channel, {x.shape[:2]}, but has shape {a.shape}",
    )
    return a.reshape(*x.shape[:2], *(1,) * (x.ndim - 2))


def channel_scale(ctx: Context, x: jax.Array, scale: jax.Array) -> jax.Array:
    """Multiply each channel of x (N, C, H, W) by bottom 1, (N, 1, H, W). The top has the shape of x."""
    require(ctx.n_tops == 1, "must not have a second top without global_scale: true")
    return (x * _broadcast_scale(x, scale)).astype(x.dtype)


def channel_scale_backward(
    ctx: Context, x: jax.Array, scale: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    return dy * _broadcast_scale(x, scale), _sum_scale_diff(x, scale, dy)


def configurable_channel_scale(
    ctx: Context, blobs: tuple[jax.Array, ...], x: jax.Array, scale: jax.Array
) -> tuple[Any, tuple[jax.Array, ...]]:
    """Apply ChannelScale with `global_scale`, or with the product omitted in the forward or the backward pass.

    With `global_scale`, x is multiplied by one number, which is the blob (1,) and the optional second top. In TRAIN the
    blob is first moved by 1 % towards the mean absolute value of bottom 1 (or set to this mean if the blob is
    negative), and then clamped to [min_global_scale, max_global_scale]. Without `do_forward` the top is x. The
    gradients are the gradients of the product with bottom 1, with two exceptions: without `do_backward_feature` the
    gradient of x is the gradient of the top, and without `do_backward_scale` the gradient of bottom 1 is 0.
    """
    p, factors = ctx.param, _broadcast_scale(x, scale)
    require(ctx.n_tops == 1 or p.global_scale, "must not have a second top without global_scale: true")
    if blobs and ctx.training and p.do_forward:
        mean_magnitude = cross_replica.pmean(ctx, jnp.mean(jnp.abs(promote(scale))))
        new_scale = jnp.where(blobs[0] < 0, mean_magnitude, 0.99 * blobs[0] + 0.01 * mean_magnitude)
        blobs = (jax.lax.stop_gradient(jnp.clip(new_scale, p.min_global_scale, p.max_global_scale)),)
    top = (x * (blobs[0][0] if blobs else factors) if p.do_forward else x).astype(x.dtype)
    return (top if ctx.n_tops == 1 else (top, *blobs)), blobs


def configurable_channel_scale_params(ctx: Context, x: Any, scale: Any) -> list[ParamSpec]:
    p = ctx.param
    require(
        p.min_global_scale <= p.max_global_scale,
        f"min_global_scale {p.min_global_scale:g} must be at most max_global_scale {p.max_global_scale:g}",
    )
    return [ParamSpec((1,), learnable=False, value=np.array([-1], np.float32))] if p.global_scale else []


def configurable_channel_scale_backward(
    ctx: Context, blobs: tuple[jax.Array, ...], x: jax.Array, scale: jax.Array, *, y: Any, dy: Any
) -> tuple[Any, ...]:
    p, d_top = ctx.param, first_top(dy)
    dx = d_top * _broadcast_scale(x, scale) if p.do_backward_feature else d_top
    d_scale = _sum_scale_diff(x, scale, d_top) if p.do_backward_scale else jnp.zeros_like(scale)
    return tuple(None for _ in blobs), dx, d_scale


def _channel_scale_variant(layer: Any) -> str:
    p = layer.channel_scale_param
    is_product = p.do_forward and p.do_backward_feature and p.do_backward_scale and not p.global_scale
    return "product" if is_product else "by settings"


_CHANNEL_SCALE = LayerType(  # registered below, with its variant
    Signature("ChannelScale", bottoms=2, tops=(1, 2), param="channel_scale_param"),
    Traced(channel_scale),
    Gradient(channel_scale_backward),
    LayerTraits(row_wise=True, dtype_policy="bottoms", spatial_map="same"),
    docs=LayerDocs(origin="caffe-windows", restrictions="init_global_scale is ignored, as in the fork."),
)
register(
    replace(
        _CHANNEL_SCALE,
        implementation=Variants(
            _channel_scale_variant,
            {
                "product": _CHANNEL_SCALE,
                "by settings": replace(
                    _CHANNEL_SCALE,
                    implementation=Traced(
                        configurable_channel_scale, params=configurable_channel_scale_params, stateful=True
                    ),
                    gradient=Gradient(
                        configurable_channel_scale_backward,
                        overrides_autodiff=True,
                        deviation="Gradients are computed for the product with bottom 1, whatever the top is.",
                    ),
                    traits=LayerTraits(dtype_policy="bottoms", spatial_map="same"),
                ),
            },
            "Settings that differ from the defaults select the second variant.",
        ),
    )
)


def _broadcast_scale(x: jax.Array, scale: jax.Array) -> jax.Array:
    num, _, height, width = as_nchw(x.shape)
    require(
        as_nchw(scale.shape, "bottom 1") == (num, 1, height, width),
        f"bottom 1 must have shape {(num, 1, height, width)} to match bottom 0, {x.shape}, not {scale.shape}",
    )
    return scale.reshape(x.shape[0], *(1,) * (x.ndim > 1), *x.shape[2:])


def _sum_scale_diff(x: jax.Array, scale: jax.Array, dy: jax.Array) -> jax.Array:
    return jnp.sum(promote(dy) * x, axis=1).reshape(scale.shape)
