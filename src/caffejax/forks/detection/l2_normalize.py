"""Normalize: division by the length of a vector, with a learned scale (SSD) or without (NormFace)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...core.layers.context import Context, Params, ParamSpec
from ...core.layers.declaration import declare, register
from ...core.layers.dtype_policy import promote
from ...core.layers.helpers import as_nchw, as_tuple, pointwise_window
from ...core.layers.types import Variants
from ...core.ops.window import Window
from ...core.schema.caffe_pb2 import FillerParameter, NormalizeParameter
from ..general.settings_checks import reject_fields

# settings of norm_param
_SSD_SETTINGS = ("across_spatial", "scale_filler", "channel_shared", "eps", "add_eps_before_sqrt")
_NORMFACE_EPS = 1e-6


@declare(
    "Normalize",
    param="norm_param",
    overrides_autodiff=True,
    row_wise=True,
    dtype_policy="bottoms",
    spatial_map="same",
    origin="SSD",
    restrictions="add_eps_before_sqrt: false, from another fork, is an error.",
)
def normalize(params: Params, x: jax.Array, *, ctx: Context) -> jax.Array:
    """Divide each image, or each position if `across_spatial` is false, by its length; then multiply by a scale.

    The length is sqrt(sum of squares + eps). Bottom and top: (N, C, H, W). Blob: scale () or, if `channel_shared` is
    false, (C,).
    """
    y, _ = _normalize_with_length(ctx, params, x)
    return y.astype(x.dtype)


@normalize.params
def normalize_params(x: jax.Array, *, ctx: Context) -> list[ParamSpec]:
    p = ctx.layer.norm_param
    _, channels, _, _ = as_nchw(x.shape)
    filler = p.scale_filler if p.HasField("scale_filler") else FillerParameter(value=1)
    return [ParamSpec(shape=() if p.channel_shared else (channels,), filler=filler, name="scale")]


@normalize.backward
def normalize_backward(
    params: Params, x: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context
) -> tuple[tuple[jax.Array], jax.Array]:
    _, length = _normalize_with_length(ctx, params, x)
    scale = params["scale"]
    d_scale = jnp.sum(promote(dy) * promote(x) / length, axis=_scale_reduction_axes(scale, x))
    # the fork removes the part along x before scaling, which is not the derivative if the scale differs by channel
    dx = _broadcast_channels(scale, x) * _division_diff(promote(x), length, promote(dy), _length_axes(ctx, x))
    return (d_scale,), dx.astype(x.dtype)


@normalize.receptive_window
def _receptive_window(bottom: Any, *, ctx: Context) -> Window | None:
    return None if ctx.layer.norm_param.across_spatial else pointwise_window(bottom)


def _normalize_with_length(ctx: Context, params: Params, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the top, in float32 at least, and the lengths by which x is divided."""
    p = ctx.layer.norm_param
    reject_fields(p, ("bp_norm", "normalize_type"), "it belongs to NormFace's normalize_param")
    as_nchw(x.shape)
    require(len(x.shape) >= 2, f"needs a bottom with 2 to 4 axes, not shape {x.shape}")
    require(p.add_eps_before_sqrt, "add_eps_before_sqrt: false is not supported; remove it")
    require(p.eps >= 0, f"eps must not be negative, but is {p.eps}")
    length = _l2_length(promote(x), _length_axes(ctx, x), p.eps)
    return _broadcast_channels(params["scale"], x) * promote(x) / length, length


def _length_axes(ctx: Context, x: jax.Array) -> tuple[int, ...]:
    return tuple(range(1, x.ndim)) if ctx.layer.norm_param.across_spatial else (1,)


def _broadcast_channels(scale: jax.Array, x: jax.Array) -> jax.Array:
    return scale.reshape(-1, *(1,) * (x.ndim - 2)) if scale.ndim else scale


def _scale_reduction_axes(scale: jax.Array, x: jax.Array) -> tuple[int, ...]:
    return tuple(axis for axis in range(x.ndim) if axis != 1 or not scale.ndim)


@declare(
    "Normalize",
    tops=(1, 2),
    param="normalize_param",
    deviation="The gradient of the lengths is ignored if bp_norm is false.",
    row_wise=True,
    dtype_policy="bottoms",
    spatial_map="same",
    origin="NormFace",
    restrictions="fix_gradient has no effect, as in the fork on a CPU.",
)
def normalize_positions(p: NormalizeParameter, x: jax.Array, *, num_tops: int) -> object:
    """Divide the vector of channels at each position of (N, C, H, W) by its length.

    The length is sqrt(sum of squares + 1e-6), or with normalize_type "L1" the sum of absolute values + 1e-6. The
    optional second top holds the lengths, (N, 1, H, W). The gradient of this top is ignored if bp_norm is false.
    """
    y, length = _normalize_positions_with_length(p, x)
    if num_tops == 1:
        return y.astype(x.dtype)
    return y.astype(x.dtype), (length if p.bp_norm else jax.lax.stop_gradient(length)).astype(x.dtype)


@normalize_positions.backward
def normalize_positions_backward(p: NormalizeParameter, x: jax.Array, *, y: Any, dy: Any) -> jax.Array:
    top, length = _normalize_positions_with_length(p, x)
    d_top, *d_length = map(promote, as_tuple(dy))
    slope = jnp.sign(top) if p.normalize_type == "L1" else top  # the derivative of the length
    dx = (d_top - jnp.sum(d_top * top, axis=1, keepdims=True) * slope) / length
    if p.bp_norm:
        dx += sum(d_length) * slope
    return dx.reshape(x.shape).astype(x.dtype)


def _normalize_positions_with_length(p: NormalizeParameter, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the normalized positions (N, C, H, W) and their lengths (N, 1, H, W), in float32 at least."""
    reject_fields(p, _SSD_SETTINGS, "it belongs to SSD's norm_param")
    norm_type, images = p.normalize_type, promote(x).reshape(as_nchw(x.shape))
    require(norm_type in ("L1", "L2"), f'normalize_type must be "L1" or "L2", not "{norm_type}"')
    if norm_type == "L1":
        # the gradient of jnp.abs is 1 at 0, where the fork has 0
        length = jnp.sum(images * jnp.sign(images), axis=1, keepdims=True) + _NORMFACE_EPS
    else:
        length = _l2_length(images, (1,), _NORMFACE_EPS)
    return images / length, length


def _l2_length(x: jax.Array, axes: tuple[int, ...], eps: float) -> jax.Array:
    return jnp.sqrt(jnp.sum(jnp.square(x), axis=axes, keepdims=True) + eps)


def _division_diff(x: jax.Array, length: jax.Array, dy: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """Return the gradient of x, given the gradient `dy` of x / length."""
    projection = jnp.sum(dy * x, axis=axes, keepdims=True) / jnp.square(length)
    return (dy - projection * x) / length


def select_normalize_variant(layer: Any) -> str:
    return "SSD" if layer.HasField("norm_param") or layer.blobs or layer.param else "NormFace"


def resolve_normalize_variant(layer: Any, shapes: Sequence[Any], layers: Any, siblings: Any) -> Any:
    """Return the layer, with an empty `norm_param` if it has no settings and its images have several positions.

    An empty `norm_param` selects the SSD fork's variant.
    """
    has_settings = layer.HasField("normalize_param") or select_normalize_variant(layer) == "SSD" or len(layer.top) > 1
    (shape,) = shapes
    if not has_settings and shape is not None and math.prod(shape[2:]) > 1:
        layer.norm_param.SetInParent()
    return layer


register(
    "Normalize",
    Variants(
        select_normalize_variant,
        {"SSD": normalize.type, "NormFace": normalize_positions.type},
        selection_doc="With norm_param, `param` or `blobs` it is the SSD fork's; with normalize_param or two tops "
        "it is NormFace's. Otherwise it is the SSD fork's for maps and NormFace's for features (1 x 1).",
        resolve=resolve_normalize_variant,
    ),
    tops=(1, 2),
    aliases=("Normalization2",),
    origin="SSD, NormFace",
)
