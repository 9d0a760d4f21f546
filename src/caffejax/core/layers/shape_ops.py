"""Layers that only move values: concatenation, slicing, copies and changes of shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ...base.errors import require
from ...base.human_readable import format_count
from ..ops.elementwise import concatenate_channels
from ..schema.caffe_pb2 import ConcatParameter, FlattenParameter, ReshapeParameter, TileParameter
from .context import Arrays, Context, Shape
from .declaration import register
from .dtype_policy import promote
from .helpers import as_tuple, canonical_axis, is_after_first_axis, no_gradient, pointwise_window


@register(
    "Concat",
    bottoms=(1, None),
    param="concat_param",
    row_wise=lambda p: (p.concat_dim if p.HasField("concat_dim") else p.axis) > 0,
    data_movement="all",
    dtype_policy="bottoms",
    accepts_integers=True,
)
def concat(p: ConcatParameter, *xs: Array, fast: bool) -> Array:
    """Concatenate the bottoms along `axis` (old name: `concat_dim`). Their other axes must be equal.

    Caffe's rule: concat_layer.cpp.
    """
    concat_top_shapes(p, *xs)  # which checks the shapes
    axis = concat_axis(p, xs)
    if fast and axis == 1 < xs[0].ndim - 1:
        return concatenate_channels(xs)
    return jnp.concatenate(xs, axis)


@concat.top_shapes
def concat_top_shapes(p: ConcatParameter, *xs: Any) -> list[Shape]:
    axis, first_shape = concat_axis(p, xs), xs[0].shape
    for i, x in enumerate(xs):
        has_equal_axes = len(x.shape) == len(first_shape) and all(
            a == b for k, (a, b) in enumerate(zip(x.shape, first_shape, strict=True)) if k != axis
        )
        require(
            has_equal_axes,
            f"bottom {i} has shape {x.shape}, but bottom 0 has {first_shape}: they may differ only along axis {axis}",
        )
    return [(*first_shape[:axis], sum(x.shape[axis] for x in xs), *first_shape[axis + 1 :])]


@concat.backward
def concat_backward(p: ConcatParameter, *xs: Array, y: Array, dy: Array) -> tuple[Array, ...]:
    axis = concat_axis(p, xs)
    ends = np.cumsum([x.shape[axis] for x in xs])
    return tuple(jax.lax.slice_in_dim(dy, end - x.shape[axis], end, axis=axis) for x, end in zip(xs, ends, strict=True))


def concat_axis(p: ConcatParameter, xs: Sequence[Any]) -> int:
    """Return the axis along which the bottoms, which have `.shape`, are concatenated."""
    require(not (p.HasField("axis") and p.HasField("concat_dim")), "give either axis or concat_dim, not both")
    return canonical_axis(p.concat_dim if p.HasField("concat_dim") else p.axis, xs[0].shape)


@register(
    "Split",
    tops=(1, None),
    in_place=False,
    top_shapes=lambda x, *, num_tops: [x.shape] * num_tops,
    backward=lambda x, *, y, dy: jnp.sum(jnp.stack(as_tuple(dy)), axis=0),
    data_movement="all",
    elementwise=True,
    dtype_policy="bottoms",
    accepts_integers=True,
)
def split(x: Array, *, num_tops: int) -> tuple[Array, ...]:
    """Return a copy of the bottom for each top. Split layers are inserted where several layers read a blob."""
    return (x,) * num_tops


@register(
    "Slice",
    tops=(1, None),
    param="slice_param",
    row_wise=lambda p: (p.slice_dim if p.HasField("slice_dim") else p.axis) > 0,
    data_movement="some",
    dtype_policy="bottoms",
    accepts_integers=True,
)
def slice_(x: Array, *, ctx: Context) -> Arrays:
    """Split the bottom along `axis` (old name: `slice_dim`) at each slice_point, by default into equal parts.

    Caffe's rule: slice_layer.cpp.
    """
    axis, points = slice_points(ctx, x.shape)
    return tuple(jnp.split(x, points, axis))


@slice_.backward
def slice_backward(x: Array, *, y: object, dy: Array | Arrays, ctx: Context) -> Array:
    axis, points = slice_points(ctx, x.shape)
    dx = jnp.zeros_like(x)
    for start, diff in zip([0, *points], as_tuple(dy), strict=True):
        dx = jax.lax.dynamic_update_slice_in_dim(dx, diff, start, axis)
    return dx


def slice_points(ctx: Context, shape: Shape) -> tuple[int, list[int]]:
    """Return the axis along which Slice splits, and the index at which each top except the first starts."""
    p, n_tops = ctx.param, ctx.num_tops
    # MyCaffe writes both fields, with equal values
    has_conflict = p.HasField("axis") and p.HasField("slice_dim") and p.axis != p.slice_dim
    require(not has_conflict, "give either axis or slice_dim, not both")
    axis = canonical_axis(p.slice_dim if p.HasField("slice_dim") else p.axis, shape)
    size, points = shape[axis], list(p.slice_point)
    if not points:
        require(
            size % n_tops == 0,
            f"the number of tops, {n_tops}, must divide axis {axis} of shape {shape}; otherwise set slice_point",
        )
        return axis, [k * size // n_tops for k in range(1, n_tops)]
    require(
        len(points) == n_tops - 1,
        f"needs {format_count(n_tops - 1, 'slice_point')} for {format_count(n_tops, 'top')}, not {len(points)}",
    )
    require(
        all(a < b for a, b in zip([0, *points], points, strict=False)) and points[-1] <= size and n_tops <= size,
        f"slice_point must be increasing numbers between 1 and {size}, the size of axis {axis}, not {points}",
    )
    return axis, points


@register(
    "Flatten",
    param="flatten_param",
    in_place=False,
    top_shapes=lambda p, x: [_flattened_shape(p, x.shape)],
    row_wise=is_after_first_axis,
    data_movement="all",
    dtype_policy="bottoms",
    accepts_integers=True,
)
def flatten(p: FlattenParameter, x: Array) -> Array:
    """Merge the axes from `axis` to `end_axis` into one: (N, C, H, W) to (N, C * H * W) by default.

    If end_axis is the axis before `axis`, an axis of size 1 is inserted. Caffe's rule: flatten_layer.cpp.
    """
    return x.reshape(_flattened_shape(p, x.shape))


def _flattened_shape(p: FlattenParameter, shape: Shape) -> Shape:
    start = canonical_axis(p.axis, shape)
    end = canonical_axis(p.end_axis, shape, name="end_axis") + 1
    require(start <= end, f"axis {p.axis} must not be after end_axis {p.end_axis} in shape {shape}")
    return (*shape[:start], math.prod(shape[start:end]), *shape[end:])


@flatten.backward
def flatten_or_reshape_backward(x: Array, *, y: Array, dy: Array) -> Array:
    """Return the top's gradient in the shape of the bottom. Caffe shares one array of gradients between both."""
    return dy.reshape(x.shape)


@register(
    "Reshape",
    param="reshape_param",
    in_place=False,
    top_shapes=lambda p, x: [_resolve_shape(p, x.shape)],
    backward=flatten_or_reshape_backward,
    data_movement="all",
    dtype_policy="bottoms",
    accepts_integers=True,
)
def reshape(p: ReshapeParameter, x: Array) -> Array:
    """Replace `num_axes` axes of the bottom from `axis` on with `shape`, where 0 copies a size and one -1 is inferred.

    With num_axes 0, the new axes are inserted; a negative `axis` then counts from the position after the last axis.
    Caffe's rule: reshape_layer.cpp.
    """
    return x.reshape(_resolve_shape(p, x.shape))


@reshape.row_wise
def _keeps_first_axis(p: ReshapeParameter) -> bool:
    return bool(p.axis > 0 or (p.axis == 0 and p.num_axes != 0 and p.shape.dim and p.shape.dim[0] == 0))


def _resolve_shape(p: ReshapeParameter, shape: Shape) -> Shape:
    n = len(shape)
    start = p.axis if p.axis >= 0 else n + p.axis + 1
    require(0 <= start <= n, f"axis {p.axis} is out of range for a blob with {n} axes, shape {shape}")
    require(p.num_axes >= -1, f"num_axes must be 0 or more, or -1 for all, not {p.num_axes}")
    end = n if p.num_axes == -1 else start + p.num_axes
    require(end <= n, f"axis {p.axis} and num_axes {p.num_axes} extend past the last axis of shape {shape}")
    dims = [int(d) for d in p.shape.dim]
    require(all(d >= -1 for d in dims), f"shape may contain sizes, 0 to copy and -1 to infer a size, but is {dims}")
    require(dims.count(-1) <= 1, f"shape may contain only one -1, but is {dims}")
    for i, d in enumerate(dims):
        require(d != 0 or start + i < n, f"shape {dims} copies axis {start + i}, but the bottom has shape {shape}")
    new_shape = [*shape[:start], *(d or shape[start + i] for i, d in enumerate(dims)), *shape[end:]]
    num_elements, known_product = math.prod(shape), math.prod(d for d in new_shape if d != -1)
    if -1 in new_shape:
        require(
            known_product > 0 and num_elements % known_product == 0,
            f"the product of the other axes, {known_product}, must divide {num_elements}, the number of elements of "
            f"{shape}",
        )
        new_shape[new_shape.index(-1)] = num_elements // known_product
    require(
        math.prod(new_shape) == num_elements, f"shape {tuple(new_shape)} must have as many elements as bottom {shape}"
    )
    return tuple(new_shape)


@register(
    "Tile",
    param="tile_param",
    row_wise=is_after_first_axis,
    dtype_policy="bottoms",
    accepts_integers=True,
    receptive_window=pointwise_window,
)
def tile(p: TileParameter, x: Array) -> Array:
    """Repeat the bottom `tiles` times along `axis`, whose size is multiplied by `tiles` (tile_layer.cpp)."""
    axis = canonical_axis(p.axis, x.shape)
    require(p.tiles > 0, f"tiles must be set and positive, not {p.tiles}")
    repeated_x = jnp.broadcast_to(jnp.expand_dims(x, axis), (*x.shape[:axis], p.tiles, *x.shape[axis:]))
    return repeated_x.reshape(*x.shape[:axis], p.tiles * x.shape[axis], *x.shape[axis + 1 :])


@tile.backward
def tile_backward(p: TileParameter, x: Array, *, y: Array, dy: Array) -> Array:
    axis = canonical_axis(p.axis, x.shape)
    diffs = dy.reshape(*x.shape[:axis], p.tiles, *x.shape[axis:])
    return jnp.sum(promote(diffs), axis=axis)


@register("Silence", bottoms=(1, None), tops=0, backward=no_gradient, dtype_policy="bottoms", accepts_integers=True)
def silence(*xs: Array) -> Arrays:
    """Mark the bottoms as read, so that they are not outputs of the net (silence_layer.cpp).

    The layer has no tops.
    """
    return ()
