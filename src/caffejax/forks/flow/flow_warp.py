"""FlowWarp, ChannelNorm and Mean: sampling along a flow, norms over channels, and addition of constants to channels."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.layers.types import SAME_AS_BOTTOMS
from ...core.schema.caffe_pb2 import FlowWarpParameter, MeanParameter

Arrays = tuple[jax.Array, ...]


@register("FlowWarp", bottoms=2, param="flow_warp_param", in_place=False, row_wise=True, origin="FlowNet 2")
def flow_warp(p: FlowWarpParameter, image: jax.Array, flow: jax.Array) -> jax.Array:
    """Sample an image bilinearly at the position of each pixel plus the flow. The top is (N, C, H, W).

    Bottoms: the image (N, C, H, W), and the flow (N, 2, H, W), which contains displacements to the right and down, in
    pixels. Samples outside [0, W) x [0, H) are 0, or NaN if fill_value is NOT_A_NUMBER.
    """
    is_inside, corners, (x_fraction, y_fraction) = _read_corners(image, flow)
    top = _interpolate(corners, x_fraction, y_fraction)
    fill = 0.0 if p.fill_value == p.ZERO else math.nan
    return jnp.where(is_inside, top, fill).reshape(image.shape).astype(image.dtype)


@flow_warp.backward
def flow_warp_backward(
    image: jax.Array, flow: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    is_inside, corners, (x_fraction, y_fraction) = _read_corners(image, flow)
    d_top = jnp.where(is_inside, promote(dy).reshape(*dy.shape[:2], -1), 0)
    d_image = jnp.zeros_like(d_top)
    corner_weights = (
        (1 - x_fraction) * (1 - y_fraction),
        x_fraction * (1 - y_fraction),
        (1 - x_fraction) * y_fraction,
        x_fraction * y_fraction,
    )
    item_index, channel_index = (
        jnp.arange(n)[broadcast]
        for n, broadcast in zip(d_top.shape[:2], (_ITEM_BROADCAST, _CHANNEL_BROADCAST), strict=True)
    )
    for corner_index, weight in zip(_locate_corners(image, flow)[1], corner_weights, strict=True):
        d_image = d_image.at[item_index, channel_index, corner_index].add(weight * d_top)
    top_left, top_right, bottom_left, bottom_right = corners
    x_slope = (1 - y_fraction) * (top_right - top_left) + y_fraction * (bottom_right - bottom_left)
    y_slope = (1 - x_fraction) * (bottom_left - top_left) + x_fraction * (bottom_right - top_right)
    d_flow = jnp.stack([jnp.sum(d_top * slope, axis=1) for slope in (x_slope, y_slope)], axis=1)
    return d_image.reshape(image.shape), d_flow.reshape(flow.shape)


_ITEM_BROADCAST, _CHANNEL_BROADCAST = (slice(None), None, None), (slice(None), None)


def _interpolate(corners: Arrays, x_fraction: jax.Array, y_fraction: jax.Array) -> jax.Array:
    top_left, top_right, bottom_left, bottom_right = corners
    upper = (1 - x_fraction) * top_left + x_fraction * top_right
    lower = (1 - x_fraction) * bottom_left + x_fraction * bottom_right
    return (1 - y_fraction) * upper + y_fraction * lower


def _locate_corners(image: jax.Array, flow: jax.Array) -> tuple[jax.Array, Arrays, Arrays]:
    """Return the mask of samples inside the image, the four pixels around each sample, and its position between them.

    Returns:
        the mask, True for samples inside the image; the flat indices of the pixels: top left, top right, bottom left,
        bottom right; and the distances (x, y) of the sample from the top left pixel. All arrays have shape (N, 1,
        height * width).
    """
    require(len(image.shape) == 4, f"needs an image with 4 axes (number, channels, height, width), not {image.shape}")
    n, _, height, width = image.shape
    require(flow.shape == (n, 2, height, width), f"needs a flow of shape {(n, 2, height, width)}, not {flow.shape}")
    displacement = promote(flow)
    x = (displacement[:, 0] + jnp.arange(width)).reshape(n, 1, -1)
    y = (displacement[:, 1] + jnp.arange(height)[:, None]).reshape(n, 1, -1)
    is_inside = (x >= 0) & (y >= 0) & (x < width) & (y < height)
    x, y = (jnp.where(is_inside, v, 0) for v in (x, y))
    left, above = (jax.lax.stop_gradient(jnp.floor(v)) for v in (x, y))
    columns = left.astype(jnp.int32), jnp.minimum(left.astype(jnp.int32) + 1, width - 1)
    rows = above.astype(jnp.int32), jnp.minimum(above.astype(jnp.int32) + 1, height - 1)
    return is_inside, tuple(row * width + column for row in rows for column in columns), (x - left, y - above)


def _read_corners(image: jax.Array, flow: jax.Array) -> tuple[jax.Array, Arrays, Arrays]:
    """Return the results of `_locate_corners`, with the values of the four pixels instead of their indices.

    The arrays of values have shape (N, C, height * width).
    """
    is_inside, corner_indices, fractions = _locate_corners(image, flow)
    plane = promote(image).reshape(*image.shape[:2], -1)
    return (
        is_inside,
        tuple(jnp.take_along_axis(plane, index, axis=2, mode="clip") for index in corner_indices),
        fractions,
    )


_NORM_EPSILON = 1e-9


@register(
    "ChannelNorm",
    in_place=False,
    overrides_autodiff=True,
    row_wise=True,
    dtype_policy="bottoms",
    spatial_map="same",
    origin="FlowNet 2",
)
def channel_norm(x: jax.Array) -> jax.Array:
    """Compute the L2 norm over the channels: (N, C, H, W) becomes (N, 1, H, W).

    The derivative is x / (norm + 1e-9), and is 0 where all channels are 0.
    """
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (number, channels, height, width), not {x.shape}")
    return jnp.sqrt(jnp.sum(jnp.square(promote(x)), axis=1, keepdims=True)).astype(x.dtype)


@channel_norm.backward
def channel_norm_backward(x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    squares = jnp.sum(jnp.square(promote(x)), axis=1, keepdims=True)
    is_nonzero = squares > 0  # at 0 the derivative of the root is infinite, and second derivatives would be NaN
    return jnp.where(is_nonzero, dy * x / (jnp.sqrt(jnp.where(is_nonzero, squares, 1)) + _NORM_EPSILON), 0)


@register(
    "Mean",
    bottoms=(1, None),
    tops=SAME_AS_BOTTOMS,
    param="mean_param",
    differentiable=False,
    row_wise=True,
    dtype_policy="bottoms",
    spatial_map="same",
    origin="FlowNet 2",
    restrictions="A mean `file` is an error; set values, or mean_file in transform_param.",
)
def mean(p: MeanParameter, *xs: jax.Array) -> tuple[jax.Array, ...]:
    """Compute output_scale * (input_scale * x + mean_scale * value) for each bottom x (N, C, H, W).

    There is a top for each bottom. If `operation` is SUBTRACT, the value is subtracted instead of added. If there are n
    values, channel c uses value c modulo n; n must divide C.
    """
    return tuple(_scale_and_shift(p, x) for x in xs)


def _scale_and_shift(p: Any, x: jax.Array) -> jax.Array:
    require(not p.file, "a mean file is not supported; set value instead")
    require(len(x.shape) == 4, f"needs bottoms with 4 axes (number, channels, height, width), not shape {x.shape}")
    n = len(p.value)
    require(n > 0 and x.shape[1] % n == 0, f"the {x.shape[1]} channels must be a multiple of the {n} values")
    values = jnp.tile(jnp.asarray(list(p.value), promote(x).dtype), x.shape[1] // n)[:, None, None]
    sign = -1 if p.operation == p.SUBTRACT else 1
    return (p.output_scale * (p.input_scale * promote(x) + sign * p.mean_scale * values)).astype(x.dtype)
