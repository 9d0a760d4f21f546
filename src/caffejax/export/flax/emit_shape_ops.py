"""Emitters for layers that only move values: reshape, concat, slice, crop, upsampling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from ...base.errors import require
from ...core.layers.helpers import canonical_axis, permuted_axes
from ...core.layers.indexing import crop_box
from ...forks.detection.permute import flipped_axes, reversed_axes, transposed_axes
from .emit_context import FLAX, FlaxCall, caffe_order, reshape_expression, shorten_float32
from .ir import Value


def flatten_from(e: FlaxCall, x: Value, axis: int) -> Value:
    """Return `x` with its axes from `axis` on merged. If `axis` is 1, the features keep their stored order."""
    if axis == len(x.shape) - 1:
        return x if axis == 1 else e.to_caffe_order(x)
    if axis != 1:
        x = e.to_caffe_order(x)
        leading_sizes = "".join(f", {{0}}.shape[{k}]" for k in range(1, axis))
        return e.add_step(
            f"{{0}}.reshape({{0}}.shape[0]{leading_sizes}, -1)",
            x,
            shape=(*x.shape[:axis], math.prod(x.shape[axis:])),
            blob=x.blob,
        )
    if x.order[0] != 0:
        x = e.to_caffe_order(x)
    flattened_from = None if e.is_row_major(x, 1) else (x.shape[1:], tuple(k - 1 for k in x.order[1:]))
    shape = (x.shape[0], math.prod(x.shape[1:]))
    return e.add_step(
        "{0}.reshape({0}.shape[0], -1)", x, shape=shape, order=(0, 1), flattened_from=flattened_from, blob=x.blob
    )


@FLAX.rule("Flatten")
def flatten(e: FlaxCall) -> Value:
    """Emit a reshape to (N, features). The features keep their stored order until a layer depends on the order."""
    (x,) = e.bottoms
    start = canonical_axis(e.param.axis, x.shape)
    end = canonical_axis(e.param.end_axis, x.shape, name="end_axis")
    if start == end:
        return x
    if start == 1 and end == len(x.shape) - 1:
        return flatten_from(e, x, 1)
    x = e.to_caffe_order(x)
    require(start > 0, "flattens the batch axis, which is not supported")
    return e.add_step(reshape_expression(e.top_shape), x, shape=e.top_shape, order=caffe_order(len(e.top_shape)))


@FLAX.rule("Reshape")
def reshape(e: FlaxCall) -> Value:
    """Emit a reshape, after the axes have been put into Caffe's order."""
    (x,) = e.bottoms
    if e.top_shape == x.shape and 0 in e.param.shape.dim:
        return x
    sizes = _size_expressions(e, x)
    keeps_batch = x.order[0] == 0 and sizes[0] == "{0}.shape[0]"
    if keeps_batch and sum(n != 1 for n in e.top_shape[1:]) <= 1 and len(e.top_shape) == 2:
        return flatten_from(e, x, 1)
    x = e.to_caffe_order(x)
    text = ", ".join(map(str, sizes))
    return e.add_step(f"{{0}}.reshape({text})", x, shape=e.top_shape, order=caffe_order(len(e.top_shape)))


def _size_expressions(e: FlaxCall, x: Value) -> list[int | str]:
    """Return the new sizes. The batch size is a source expression that reads it from the array's shape."""
    n = len(x.shape)
    start = e.param.axis if e.param.axis >= 0 else n + e.param.axis + 1
    end = n if e.param.num_axes == -1 else start + e.param.num_axes
    new_sizes = [int(size) for size in e.param.shape.dim]
    old_sizes: list[int | str] = ["{0}.shape[0]", *x.shape[1:]]
    copied_sizes: list[int | str] = [old_sizes[start + i] if size == 0 else size for i, size in enumerate(new_sizes)]
    return [*old_sizes[:start], *copied_sizes, *old_sizes[end:]]


@FLAX.rule("Permute")
def permute(e: FlaxCall) -> Value:
    """Return the bottom with its axes permuted, without emitting a step."""
    return _permute_axes(e, permuted_axes(e.param, e.bottoms[0].shape))


@FLAX.rule("Transpose")
def transpose(e: FlaxCall) -> Value:
    """Return the bottom with all axes permuted, without emitting a step."""
    return _permute_axes(e, transposed_axes(e.param, e.bottoms[0].shape))


def _permute_axes(e: FlaxCall, axes: Sequence[int]) -> Value:
    """Return the bottom with its axes permuted. Only its attributes change, so no step is emitted."""
    (x,) = e.bottoms
    if x.flattened_from is not None:
        x = e.to_caffe_order(x)
    return replace(x, shape=e.top_shape, order=tuple(axes.index(axis) for axis in x.order))


@FLAX.rule("Concat")
def concat(e: FlaxCall) -> Value:
    """Emit a concatenation along an axis."""
    axis = canonical_axis(e.param.concat_dim if e.param.HasField("concat_dim") else e.param.axis, e.bottoms[0].shape)
    first = e.bottoms[0]
    if all(x.flattened_from is None and x.order == first.order for x in e.bottoms):
        xs = e.bottoms
    else:
        order = first.order if len({x.order for x in e.bottoms}) == 1 else caffe_order(len(first.shape))
        xs = tuple(e.reorder(x, order) for x in e.bottoms)
    if len(xs) == 1:
        return xs[0]
    fields = ", ".join(f"{{{i}}}" for i in range(len(xs)))
    return e.add_step(
        f"jnp.concatenate([{fields}], axis={xs[0].stored_axis(axis)})", *xs, shape=e.top_shape, order=xs[0].order
    )


@FLAX.rule("Slice")
def slice_(e: FlaxCall) -> tuple[Value, ...]:
    """Emit a split along an axis."""
    (x,) = e.bottoms
    x = e.reorder(x, x.order)
    axis = canonical_axis(e.param.slice_dim if e.param.HasField("slice_dim") else e.param.axis, x.shape)
    sizes = [shape[axis] for shape in e.top_shapes]
    if len(sizes) == 1:
        return (x,)
    sections = str(len(sizes)) if len(set(sizes)) == 1 else str(list(itertools.accumulate(sizes))[:-1])
    return e.add_multi_output_step(f"jnp.split({{0}}, {sections}, axis={x.stored_axis(axis)})", x, e.top_shapes)


@FLAX.rule("Split")
def split(e: FlaxCall) -> tuple[Value, ...]:
    """Return the bottom for each top, without emitting a step."""
    return e.bottoms * len(e.layer.tops)


@FLAX.rule("Debug", "Gather")
def identity(e: FlaxCall) -> tuple[Value, ...]:
    """Return each bottom as the top with the same index, without emitting a step."""
    return e.bottoms


@FLAX.rule("LabelSpecificAdd")
def label_specific_add(e: FlaxCall) -> Value:
    """Return the bottom, because the layer is the identity without labels, as in inference."""
    require(len(e.layer.tops) == 1, "has a second top, which is not supported")
    return e.bottoms[0]


@FLAX.rule("LabelSpecificRescale")
def label_specific_rescale(e: FlaxCall) -> Value | Sequence[Value]:
    """Return the bottom, because the layer is the identity without labels, as in inference."""
    require(not e.param.rescale_test, "also needs labels in TEST (rescale_test), which is not supported")
    return label_specific_add(e)


@FLAX.rule("ShuffleChannel")
def shuffle_channel(e: FlaxCall) -> Value:
    """Emit a channel shuffle, which interleaves the channels of all groups."""
    x = e.to_channels_last(e.bottoms[0])
    if e.param.group in (1, x.shape[1]):
        return x
    return e.add_step(f"shuffle_channels({{0}}, groups={e.param.group})", x, helpers=["shuffle_channels"])


@FLAX.rule("Tile")
def tile(e: FlaxCall) -> Value:
    """Emit a repetition of the bottom along an axis."""
    (x,) = e.bottoms
    x = e.reorder(x, x.order)
    position = x.order.index(canonical_axis(e.param.axis, x.shape))
    counts = ", ".join(str(e.param.tiles if k == position else 1) for k in range(len(x.shape)))
    return e.add_step(f"jnp.tile({{0}}, ({counts}{',' if len(x.shape) == 1 else ''}))", x, shape=e.top_shape)


@FLAX.rule("Flip")
def flip(e: FlaxCall) -> Value:
    """Emit a reversal of height, width or both."""
    return _flip_axes(e, flipped_axes(e.param, e.bottoms[0].shape))


@FLAX.rule("Reverse")
def reverse(e: FlaxCall) -> Value:
    """Emit a reversal of axes."""
    return _flip_axes(e, reversed_axes(e.param, e.bottoms[0].shape))


def _flip_axes(e: FlaxCall, axes: Sequence[int]) -> Value:
    (x,) = e.bottoms
    x = e.reorder(x, x.order)
    if not axes:
        return x
    positions = [x.order.index(axis) for axis in axes]
    text = str(positions[0]) if len(positions) == 1 else f"({', '.join(map(str, positions))})"
    return e.add_step(f"jnp.flip({{0}}, axis={text})", x)


@FLAX.rule("Crop")
def crop(e: FlaxCall) -> Value:
    """Emit a crop to the size of the second bottom."""
    x, size_blob = e.bottoms
    x = e.reorder(x, x.order)
    starts, sizes = crop_box(e.param, x.shape, size_blob.shape)
    slices = [
        f"{a}:{a + n}" if (a, n) != (0, extent) else ":" for a, n, extent in zip(starts, sizes, x.shape, strict=True)
    ]
    stored_slices = [slices[axis] for axis in x.order]
    require(stored_slices[0] == ":", "crops the batch axis, which is not supported")
    while stored_slices and stored_slices[-1] == ":":
        stored_slices.pop()
    return e.add_step(f"{{0}}[{', '.join(stored_slices)}]", x, shape=e.top_shape, order=x.order) if stored_slices else x


@FLAX.rule("Padding")
def padding(e: FlaxCall) -> Value:
    """Emit zero padding of height and width."""
    x, (low, high) = e.to_channels_last(e.bottoms[0]), (e.param.pad_beg, e.param.pad_end)
    require(min(low, high) >= 0, "crops rows and columns (negative pad_beg or pad_end), which is not supported")
    widths = f"({low}, {high})"
    return e.add_step(f"jnp.pad({{0}}, ((0, 0), {widths}, {widths}, (0, 0)))", x, shape=e.top_shape, order=x.order)


@FLAX.rule("Interp")
def interp(e: FlaxCall) -> Value:
    """Emit bilinear interpolation with aligned corners."""
    x, p = e.to_channels_last(e.bottoms[0]), e.param
    if p.pad_beg or p.pad_end:
        rows, columns = (f"{-p.pad_beg}:{n + p.pad_end}" for n in x.shape[2:])
        cropped_size = tuple(n + p.pad_end + p.pad_beg for n in x.shape[2:])
        x = e.add_step(f"{{0}}[:, {rows}, {columns}]", x, shape=(*x.shape[:2], *cropped_size), order=x.order)
    size = e.top_shape[2:]
    return e.add_step(f"interpolate({{0}}, {size})", x, shape=e.top_shape, order=x.order, helpers=["interpolate"])


@FLAX.rule("Upsample")
def upsample(e: FlaxCall) -> Value:
    """Emit a repetition of each value along height and width. For SegNet's layer, emit max unpooling."""
    if len(e.bottoms) > 1:
        return _emit_max_unpool(e)
    x, n = e.to_channels_last(e.bottoms[0]), shorten_float32(e.param.scale if e.param.HasField("scale") else 1)
    return (
        x
        if n == 1
        else e.add_step(f"jnp.repeat(jnp.repeat({{0}}, {n}, axis=1), {n}, axis=2)", x, shape=e.top_shape, order=x.order)
    )


@FLAX.rule("Unpooling")
def unpooling(e: FlaxCall) -> Value:
    """Emit max unpooling, which copies values to the positions of maxima."""
    require(len(e.bottoms) > 1, "has no bottom with the positions of maxima, which is not supported")
    return _emit_max_unpool(e)


def _emit_max_unpool(e: FlaxCall) -> Value:
    x, indices = map(e.to_channels_last, e.bottoms)
    return e.add_step(
        f"max_unpool({{0}}, {{1}}, {e.top_shape[2:]})",
        x,
        indices,
        shape=e.top_shape,
        order=x.order,
        helpers=["max_unpool"],
    )
