"""Layers that scale and shift: Bias and Scale.

Caffe's rules: bias_layer.cpp and scale_layer.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array

from ...base.errors import require
from ..ops.channels import channel_affine
from ..schema.caffe_pb2 import BiasParameter, FillerParameter, ScaleParameter
from .context import Arrays, Context, Params, ParamSpec, Shape
from .declaration import register
from .dtype_policy import promote
from .helpers import array_namespace, canonical_axis, is_after_first_axis
from .types import ChannelAffine


def spans_channels(p: Any, shapes: Sequence[Shape], axis: int, channels: int) -> bool:
    """Return whether the blobs of a Bias or Scale layer span exactly the channels; see `ChannelAffine.applies`."""
    return bool(p.axis == axis and set(shapes) == {(channels,)})


@register(
    "Bias",
    bottoms=(1, 2),
    param="bias_param",
    dtype_policy="bottoms",
    spatial_map="same",
    channel_affine=ChannelAffine(spans_channels, lambda blobs: (array_namespace(*blobs).ones_like(*blobs), *blobs)),
)
def bias(params: Params, *bottoms: Array, ctx: Context) -> Array:
    """Add a bias to x. The bias is broadcast: its axes correspond to the axes of x that begin at `axis`.

    The bias is bottom 1 or, with one bottom, a learnable blob that spans `num_axes` axes of x. If num_axes is -1, the
    blob spans all axes from `axis` on; if num_axes is 0, the blob is a single number. The top has the shape of x.
    """
    x, addend = *bottoms, *params.values()
    return _scale_and_shift(ctx, x, None, addend)


@bias.params
def bias_params(p: BiasParameter, *bottoms: Any) -> list[ParamSpec]:
    if len(bottoms) == 2:
        return []
    return [ParamSpec(_spanned_shape(p, bottoms[0].shape), p.filler, name="bias")]


@bias.top_shapes
def affine_top_shapes(*bottoms: Any) -> list[Shape] | None:
    return [bottoms[0].shape] if len(bottoms) == 1 else None


@bias.backward
def bias_backward(p: BiasParameter, params: Params, *bottoms: Array, y: Array, dy: Array) -> tuple[Any, ...]:
    x, addend = *bottoms, *params.values()
    d_addend = _sum_to_blob(dy, addend, x, p.axis)
    return ((d_addend,), dy) if params else ((), dy, d_addend)


@bias.row_wise
def _is_blob_after_first_axis(p: Any, *, ctx: Context) -> bool:
    return len(ctx.layer.bottom) == 1 and is_after_first_axis(p)


def scale_factor_and_bias(blobs: Arrays) -> tuple[Array, Array]:
    factor, *biases = blobs
    return factor, biases[0] if biases else array_namespace(factor).zeros_like(factor)


@register(
    "Scale",
    bottoms=(1, 2),
    param="scale_param",
    top_shapes=affine_top_shapes,
    row_wise=_is_blob_after_first_axis,
    dtype_policy="bottoms",
    spatial_map="same",
    channel_affine=ChannelAffine(spans_channels, scale_factor_and_bias),
    blob_names=("weight", "bias"),
)
def scale(params: Params, *bottoms: Array, ctx: Context) -> Array:
    """Multiply x by a factor. The factor is broadcast: its axes correspond to the axes of x that begin at `axis`.

    The factor is bottom 1 or, with one bottom, a learnable blob that spans `num_axes` axes, as in Bias. With
    `bias_term` a learnable bias of the same shape is added; in a layer with two bottoms, this bias is the only blob.
    The top has the shape of x.
    """
    x, factor, *biases = *bottoms, *params.values()
    return _scale_and_shift(ctx, x, factor, *biases)


@scale.params
def scale_params(p: ScaleParameter, *bottoms: Any) -> list[ParamSpec]:
    shape = bottoms[1].shape if len(bottoms) == 2 else _spanned_shape(p, bottoms[0].shape)
    filler = p.filler if p.HasField("filler") else FillerParameter(type="constant", value=1)
    factor = [ParamSpec(shape, filler, name="weight")] if len(bottoms) == 1 else []
    return [*factor, ParamSpec(shape, p.bias_filler, name="bias")] if p.bias_term else factor


@scale.backward
def scale_backward(p: ScaleParameter, params: Params, *bottoms: Array, y: Array, dy: Array) -> tuple[Any, ...]:
    axis = p.axis
    x, factor, *biases = *bottoms, *params.values()
    dx = dy * _broadcast_blob(factor, x, axis)
    d_factor = _sum_to_blob(promote(dy) * x, factor, x, axis)
    d_biases = tuple(_sum_to_blob(dy, b, x, axis) for b in biases)
    return ((d_factor, *d_biases), dx) if len(bottoms) == 1 else (d_biases, dx, d_factor)


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


def _scale_and_shift(ctx: Context, x: Array, factor: Array | None, bias: Array | None = None) -> Array:
    axis, blobs = ctx.param.axis, [b for b in (factor, bias) if b is not None]
    if ctx.fast and all(b.ndim == 1 and _find_first_axis(b, x, axis) == 1 for b in blobs):
        return channel_affine(x, factor, bias).astype(x.dtype)
    y = x if factor is None else x * _broadcast_blob(factor, x, axis)
    return (y if bias is None else y + _broadcast_blob(bias, x, axis)).astype(x.dtype)


def _broadcast_blob(blob: Array, x: Array, axis: int) -> Array:
    """Append axes of size 1 to `blob`, so that its axis 0 broadcasts along axis `axis` of `x`."""
    return blob.reshape(*blob.shape, *(1,) * (x.ndim - _find_first_axis(blob, x, axis) - blob.ndim))


def _sum_to_blob(d: Array, blob: Array, x: Array, axis: int) -> Array:
    """Sum `d`, which has the shape of `x`, over all axes along which `blob` was broadcast."""
    start = _find_first_axis(blob, x, axis)
    return jnp.sum(promote(d), axis=[k for k in range(x.ndim) if not start <= k < start + blob.ndim])
