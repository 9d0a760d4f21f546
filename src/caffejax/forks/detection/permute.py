"""Layers that reorder axes, or the elements along an axis: Permute, Transpose, Reverse, Flip, ShuffleChannel."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...core.layers.context import Shape
from ...core.layers.declaration import register
from ...core.layers.helpers import canonical_axis, permuted_axes, pointwise_window
from ...core.ops.window import Window
from ...core.schema.caffe_pb2 import (
    FlipParameter,
    PermuteParameter,
    ReverseParameter,
    ShuffleChannelParameter,
    TransposeParameter,
)


@register(
    "Permute",
    param="permute_param",
    in_place=False,
    top_shapes=lambda p, x: [tuple(x.shape[i] for i in permuted_axes(p, x.shape))],
    data_movement="all",
    dtype_policy="bottoms",
    accepts_integers=True,
    receptive_window=lambda p, bottom: _make_permuted_window(bottom, permuted_axes(p, bottom.shape)),
    origin="SSD",
)
def permute(p: PermuteParameter, x: jax.Array) -> jax.Array:
    """Permute the axes of the bottom to the order in `order`. Axes that are not listed follow in their old order."""
    return jnp.transpose(x, permuted_axes(p, x.shape))


@permute.backward
def permute_backward(p: PermuteParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return _invert_transpose(dy, permuted_axes(p, x.shape))


@permute.row_wise
def permutes_within_rows(p: PermuteParameter) -> bool:
    return not p.order or p.order[0] == 0


@register(
    "Transpose",
    param="transpose_param",
    in_place=False,
    data_movement="all",
    dtype_policy="bottoms",
    accepts_integers=True,
    receptive_window=lambda p, bottom: _make_permuted_window(bottom, transposed_axes(p, bottom.shape)),
    origin="CTPN",
)
def transpose(p: TransposeParameter, x: jax.Array) -> jax.Array:
    """Permute the axes of the bottom to the order in `dim`, which lists all axes. Negative axes count from the end."""
    return jnp.transpose(x, transposed_axes(p, x.shape))


@transpose.backward
def transpose_backward(p: TransposeParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return _invert_transpose(dy, transposed_axes(p, x.shape))


@transpose.row_wise
def transposes_within_rows(p: TransposeParameter) -> bool:
    return bool(p.dim) and p.dim[0] == 0


def transposed_axes(p: TransposeParameter, shape: Shape) -> tuple[int, ...]:
    """Return the order in which a Transpose layer takes the axes of its bottom, in the form of `permuted_axes`."""
    axes = tuple(canonical_axis(axis, shape, name="dim") for axis in p.dim)
    require(
        sorted(axes) == list(range(len(shape))),
        f"transpose_param's dim must list each axis of the bottom, shape {shape}, once, not {list(p.dim)}",
    )
    return axes


def _make_permuted_window(bottom: Any, axes: Shape) -> Window | None:
    """Return the window of one pixel if height and width keep their positions among the axes, else None."""
    return pointwise_window(bottom) if axes[2:] == tuple(range(2, len(axes))) else None


def _invert_transpose(dy: jax.Array, order: tuple[int, ...]) -> jax.Array:
    return jnp.transpose(dy, [order.index(axis) for axis in range(len(order))])


@register(
    "Reverse",
    param="reverse_param",
    in_place=False,
    data_movement="all",
    dtype_policy="bottoms",
    accepts_integers=True,
    origin="CTPN",
)
def reverse(p: ReverseParameter, x: jax.Array) -> jax.Array:
    """Reverse the bottom along each axis that `axis` lists. Default: axis 0, which is time in CTPN."""
    return jnp.flip(x, reversed_axes(p, x.shape))


@reverse.backward
def reverse_backward(p: ReverseParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return jnp.flip(dy, reversed_axes(p, x.shape))


@reverse.row_wise
def reverses_within_rows(p: ReverseParameter) -> bool:
    return bool(p.axis) and all(axis > 0 for axis in p.axis)


def reversed_axes(p: ReverseParameter, shape: Shape) -> tuple[int, ...]:
    """Return the axes along which Reverse reverses the elements."""
    axes = tuple(canonical_axis(axis, shape) for axis in p.axis) or (canonical_axis(0, shape),)
    require(len(set(axes)) == len(axes), f"reverse_param must list each axis at most once, not {list(p.axis)}")
    return axes


@register(
    "Flip",
    param="flip_param",
    in_place=False,
    row_wise=True,
    data_movement="all",
    dtype_policy="bottoms",
    accepts_integers=True,
    origin="caffe-windows",
)
def flip(p: FlipParameter, x: jax.Array) -> jax.Array:
    """Flip images (N, C, H, W) left to right, if flip_width is not false, and upside down, if flip_height is true."""
    return jnp.flip(x, flipped_axes(p, x.shape))


@flip.backward
def flip_backward(p: FlipParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return jnp.flip(dy, flipped_axes(p, x.shape))


def flipped_axes(p: FlipParameter, shape: Shape) -> tuple[int, ...]:
    """Return the axes along which Flip reverses the elements."""
    require(len(shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not shape {shape}")
    return tuple(axis for axis, is_flipped in ((2, p.flip_height), (3, p.flip_width)) if is_flipped)


@register(
    "ShuffleChannel",
    param="shuffle_channel_param",
    row_wise=True,
    data_movement="all",
    dtype_policy="bottoms",
    accepts_integers=True,
    spatial_map="same",
    origin="ShuffleNet",
)
def shuffle_channel(p: ShuffleChannelParameter, x: jax.Array) -> jax.Array:
    """View the channels of (N, C, ...) as (group, C / group) and transpose them to (C / group, group)."""
    return _swap_groups(x, *_group_sizes(p, x))


@shuffle_channel.backward
def shuffle_channel_backward(p: ShuffleChannelParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    groups, channels = _group_sizes(p, x)
    return _swap_groups(dy, channels, groups)


def _group_sizes(p: ShuffleChannelParameter, x: jax.Array) -> tuple[int, int]:
    require(len(x.shape) >= 2, f"needs a bottom with a channel axis (axis 1), not shape {x.shape}")
    group, channels = p.group, x.shape[1]
    require(group > 0, f"group must be positive, not {group}")
    require(channels % group == 0, f"the number of channels, {channels}, must be a multiple of group {group}")
    return group, channels // group


def _swap_groups(x: jax.Array, outer: int, inner: int) -> jax.Array:
    return x.reshape(x.shape[0], outer, inner, *x.shape[2:]).swapaxes(1, 2).reshape(x.shape)
