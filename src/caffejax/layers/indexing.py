"""Layers that select by index: ArgMax, BatchReindex, Crop, Embed, Filter."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..errors import require
from ..kernels.window import Window
from .context import Context, ParamSpec, Shape
from .dtypes import promote
from .helpers import as_tuple, canonical_axis, pointwise_window
from .registry import register
from .types import Gradient, Indices, LayerDocs, LayerTraits, LayerType, OnHost, Signature, Traced
from .weights import weight_and_bias


def argmax(ctx: Context, x: jax.Array) -> jax.Array:
    """Places of the `top_k` largest values, largest first; of equal ones the last place comes first.

    With `axis` they are counted along it, and `out_max_val` gives the values instead. Without, each item of axis
    0 is flattened: the top is N x 1 x top_k, or N x 2 x top_k with the places and then the values, filled up
    with axes of size 1 to the bottom's number.
    """
    p, along = ctx.param, ctx.param.HasField("axis")
    axis = canonical_axis(p.axis, x.shape) if along else 1
    rows = jnp.moveaxis(x, axis, -1) if along else x.reshape(x.shape[0], math.prod(x.shape[1:]))
    size = rows.shape[-1]
    require(1 <= p.top_k <= size, f"top_k must lie between 1 and {size}, the number of values, not be {p.top_k}")
    # sorted in rising order, last places are last among equals; -0 must equal 0. XLA's top_k would gather a cut batch
    numbers = lax.broadcasted_iota(jnp.int32, rows.shape, rows.ndim - 1)
    rising = lax.sort((jnp.where(rows == 0, 0, rows), numbers), num_keys=1, is_stable=True)
    values, indices = (jnp.flip(part[..., size - p.top_k :], -1) for part in rising)
    indices = indices.astype(x.dtype)
    if along:
        return lax.stop_gradient(jnp.moveaxis(values if p.out_max_val else indices, -1, axis))
    both = jnp.stack([indices, values] if p.out_max_val else [indices], axis=1)
    return lax.stop_gradient(both.reshape(*both.shape, *(1,) * (x.ndim - 3)))


def _argmax_window(ctx: Context, bottom: Any) -> Window | None:
    axis = ctx.param.axis if ctx.param.HasField("axis") else -1  # of all that a row has
    return pointwise_window(ctx, bottom) if canonical_axis(axis, bottom.shape) == 1 else None


register(
    LayerType(
        Signature("ArgMax", param="argmax_param"),
        Traced(argmax),
        Gradient(exists=False, not_derivative="Caffe has no backward pass for the largest values."),
        LayerTraits(receptive_window=_argmax_window),
    )
)


def batch_reindex(ctx: Context, x: jax.Array, index: jax.Array) -> jax.Array:
    """The items of bottom 0 (axis 0) that bottom 1 numbers, in its order. A number out of range gives NaN."""
    require(index.ndim == 1, f"the indices, bottom 1, must have one axis, not shape {index.shape}")
    require(x.ndim >= 1, "bottom 0 needs an axis to be indexed")
    # repeats add up in the gradient: taken from the promoted values, that is done in float32
    taken = promote(x).at[_positions(index, x.shape[0])].get(mode="fill", fill_value=jnp.nan)
    return taken.astype(x.dtype)


def batch_reindex_classes(ctx: Context, x: Any, index: Any) -> int:
    return int(x.shape[0])


def batch_reindex_backward(
    ctx: Context, x: jax.Array, index: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    return jax.ops.segment_sum(promote(dy), _positions(index, x.shape[0]), num_segments=x.shape[0]), None


register(
    LayerType(
        Signature("BatchReindex", bottoms=2),
        Traced(batch_reindex),
        Gradient(batch_reindex_backward, indices=Indices((1,), classes=batch_reindex_classes, gathers=True)),
        LayerTraits(dtype_policy="bottoms"),
        docs=LayerDocs(unsupported={"joined": "it numbers the items of the device's own batch"}),
    )
)


def _positions(index: jax.Array, n: int) -> jax.Array:
    """Return whole numbers, cut off as Caffe does; n where the index is negative."""
    whole = index.astype(jnp.int32)
    return jnp.where(whole < 0, n, whole)


def crop(ctx: Context, x: jax.Array, like: jax.Array) -> jax.Array:
    """Bottom 0 cut to the size of bottom 1 in `axis` and all later axes, from `offset` on (one, or one per axis).

    Nothing of bottom 1 counts but its shape.
    """
    starts, sizes = crop_box(ctx, x.shape, like.shape)
    return lax.slice(x, starts, [a + n for a, n in zip(starts, sizes, strict=True)])


def crop_backward(
    ctx: Context, x: jax.Array, like: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    starts, sizes = crop_box(ctx, x.shape, like.shape)
    around = [(a, n - a - size, 0) for a, n, size in zip(starts, x.shape, sizes, strict=True)]
    return lax.pad(dy, jnp.zeros((), dy.dtype), around), None


register(
    LayerType(
        Signature("Crop", bottoms=2, param="crop_param"),
        Traced(crop),
        Gradient(crop_backward),
        LayerTraits(dtype_policy="bottoms", accepts_integers=True, spatial_map="cropped"),
    )
)


def crop_box(ctx: Context, shape: Shape, like: Shape) -> tuple[list[int], list[int]]:
    """Return where the part starts and how large it is, for every axis."""
    axis, offsets = canonical_axis(ctx.param.axis, shape), list(ctx.param.offset)
    n_cropped = len(shape) - axis
    require(
        len(offsets) in (0, 1, n_cropped),
        f"offset must be given once or once per cropped axis: {len(offsets)} offsets for {n_cropped} axes",
    )
    require(len(like) >= len(shape), f"bottom 1 needs {len(shape)} axes as bottom 0 has, not shape {like}")
    if len(offsets) != n_cropped:
        offsets = (offsets or [0]) * n_cropped
    starts, sizes = [0] * axis + offsets, [*shape[:axis], *like[axis : len(shape)]]
    for k in range(axis, len(shape)):
        require(
            starts[k] + sizes[k] <= shape[k],
            f"the crop does not fit along axis {k}: offset {starts[k]} and size {sizes[k]} in {shape[k]}",
        )
    return starts, sizes


Arrays = tuple[jax.Array, ...]


def embed(ctx: Context, blobs: Arrays, index: jax.Array) -> jax.Array:
    """The weight's rows that the bottom names, plus a bias: shape (...) to (..., num_output).

    Indices are truncated to whole numbers. One outside 0 .. input_dim - 1 gives a row of NaN.
    """
    weight, *bias = blobs
    at = index.astype(jnp.int32)
    at = jnp.where(at < 0, weight.shape[0], at)  # negative indices would count from the end
    rows = jnp.take(weight, at, axis=0, mode="fill", fill_value=jnp.nan)
    return rows + bias[0] if bias else rows


def embed_classes(ctx: Context, index: Any) -> int:
    return int(ctx.param.input_dim)


def embed_params(ctx: Context, index: Any) -> list[ParamSpec]:
    p = ctx.param
    require(p.num_output > 0, "num_output must be positive")
    require(p.input_dim > 0, "input_dim must be positive")
    return weight_and_bias(p, (p.input_dim, p.num_output))


def embed_backward(
    ctx: Context, blobs: Arrays, index: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[Arrays, None]:
    weight, *bias = blobs
    rows = dy.reshape(-1, weight.shape[1])
    d_weight = jax.ops.segment_sum(rows, index.astype(jnp.int32).ravel(), weight.shape[0])
    return (d_weight, *(rows.sum(0) for _ in bias)), None


register(
    LayerType(
        Signature("Embed", param="embed_param"),
        Traced(embed, params=embed_params),
        Gradient(embed_backward, indices=Indices((0,), classes=embed_classes, gathers=True)),
    )
)


HostArrays = tuple[np.ndarray, ...]


def filter_(ctx: Context, *bottoms: np.ndarray) -> HostArrays:
    """For every bottom but the last, the rows at which the last bottom, the selector, is not zero."""
    *data, selector = bottoms
    rows = _selected_rows(selector)
    return tuple(x[rows] for x in data)


def filter_top_shapes(ctx: Context, *bottoms: Any) -> list[Shape]:
    *data, selector = (b.shape for b in bottoms)
    require(ctx.n_tops == len(data), f"needs a top for each bottom but the selector: {ctx.n_tops} for {len(data)}")
    require(
        selector and all(n == 1 for n in selector[1:]),
        f"the selector (last bottom) must hold one number per row, not {selector}",
    )
    for i, shape in enumerate(data):
        require(shape[:1] == selector[:1], f"bottom {i} has shape {shape}, the selector {selector[0]} rows")
    return data  # as if every row passed


def filter_backward(ctx: Context, *bottoms: np.ndarray, y: Any, dy: Any) -> tuple[np.ndarray | None, ...]:
    *data, selector = bottoms
    rows = _selected_rows(selector)
    diffs = [np.zeros_like(x) for x in data]
    for diff, d_top in zip(diffs, as_tuple(dy), strict=True):
        diff[rows] = d_top
    return (*diffs, None)


register(
    LayerType(
        Signature("Filter", bottoms=(2, None), tops=(1, None), in_place=False),
        OnHost(filter_, filter_top_shapes, ragged=True),
        Gradient(filter_backward, indices=Indices((-1,))),
        LayerTraits(accepts_integers=True),
    )
)


def _selected_rows(selector: np.ndarray) -> np.ndarray:
    return np.flatnonzero(selector.reshape(len(selector)))
