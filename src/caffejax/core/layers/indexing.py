"""Layers that select by index: ArgMax, BatchReindex, Crop, Embed, Filter."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ...base.errors import require
from ..ops.window import Window
from ..schema.caffe_pb2 import ArgMaxParameter, CropParameter, EmbedParameter
from .context import Arrays, Params, ParamSpec, Shape
from .declaration import register
from .dtype_policy import promote
from .helpers import as_tuple, canonical_axis, pointwise_window
from .row_padding import valid_rows, without_count
from .types import Indices
from .weight_and_bias import weight_and_bias_specs


@register(
    "ArgMax",
    param="argmax_param",
    differentiable=False,
    deviation="Caffe has no backward pass for the largest values.",
    label_axis=lambda p: p.axis if p.HasField("axis") and not p.out_max_val else None,
)
def argmax(p: ArgMaxParameter, x: Array) -> Array:
    """Return the indices of the `top_k` largest values, largest first. Among equal values, the last comes first.

    Without `axis` the top holds indices into each flattened item, (N, 1, top_k), or with `out_max_val` the indices and
    then the values, (N, 2, top_k). Axes of size 1 are appended up to the bottom's number of axes. With `axis` the top
    has the bottom's shape with top_k along that axis, and `out_max_val` returns the values instead of the indices.
    Caffe's rule: argmax_layer.cpp.
    """
    has_axis = p.HasField("axis")
    axis = canonical_axis(p.axis, x.shape) if has_axis else 1
    rows = jnp.moveaxis(x, axis, -1) if has_axis else x.reshape(x.shape[0], math.prod(x.shape[1:]))
    size = rows.shape[-1]
    require(1 <= p.top_k <= size, f"top_k must be between 1 and {size}, the number of values, not {p.top_k}")
    # a stable sort keeps equal values in order; -0 must equal 0. XLA's top_k would gather a sharded batch
    positions = lax.broadcasted_iota(jnp.int32, rows.shape, rows.ndim - 1)
    sorted_rows = lax.sort((jnp.where(rows == 0, 0, rows), positions), num_keys=1, is_stable=True)
    values, indices = (jnp.flip(array[..., size - p.top_k :], -1) for array in sorted_rows)
    indices = indices.astype(x.dtype)
    if has_axis:
        return lax.stop_gradient(jnp.moveaxis(values if p.out_max_val else indices, -1, axis))
    top = jnp.stack([indices, values] if p.out_max_val else [indices], axis=1)
    return lax.stop_gradient(top.reshape(*top.shape, *(1,) * (x.ndim - 3)))


@argmax.receptive_window
def _argmax_window(p: ArgMaxParameter, bottom: Any) -> Window | None:
    axis = p.axis if p.HasField("axis") else -1  # without `axis`: over the whole row
    return pointwise_window(bottom) if canonical_axis(axis, bottom.shape) == 1 else None


@register(
    "BatchReindex",
    bottoms=2,
    indices=Indices((1,), num_classes=lambda x, index: x.shape[0], gathers=True),
    exempt_from_force_backward=(),
    dtype_policy="bottoms",
    unsupported={"joint_batch": "its indices refer to items in the batch of the device"},
)
def batch_reindex(x: Array, index: Array) -> Array:
    """Select items of bottom 0 along axis 0 by the indices in bottom 1: (N, ...) and (M,) to (M, ...).

    An index outside 0 .. N - 1 gives an item of NaN. Caffe's rule: batch_reindex_layer.cpp.
    """
    require(index.ndim == 1, f"the indices, bottom 1, must have one axis, not shape {index.shape}")
    require(x.ndim >= 1, "bottom 0 needs at least one axis, but is a single number")
    # gradients of repeated items add up, in float32, since values are promoted first
    items = promote(x).at[_truncate_indices(index, x.shape[0])].get(mode="fill", fill_value=jnp.nan)
    return items.astype(x.dtype)


@batch_reindex.backward
def batch_reindex_backward(x: Array, index: Array, *, y: Array, dy: Array) -> tuple[Array, None]:
    return jax.ops.segment_sum(promote(dy), _truncate_indices(index, x.shape[0]), num_segments=x.shape[0]), None


def _truncate_indices(index: Array, n: int) -> Array:
    """Truncate indices to integers, as Caffe does. Negative indices become n, which is out of range."""
    truncated_index = index.astype(jnp.int32)
    return jnp.where(truncated_index < 0, n, truncated_index)


@register("Crop", bottoms=2, param="crop_param", dtype_policy="bottoms", accepts_integers=True, spatial_map="cropped")
def crop(p: CropParameter, x: Array, reference: Array) -> Array:
    """Crop bottom 0 to the size of bottom 1 in `axis` and all later axes (crop_layer.cpp).

    The crop starts at `offset`, which has one value for all cropped axes or one for each. The values of bottom 1 are
    not used. The top has the sizes of bottom 0 before `axis`, and the sizes of bottom 1 from `axis` on.
    """
    starts, sizes = crop_box(p, x.shape, reference.shape)
    return lax.slice(x, starts, [a + n for a, n in zip(starts, sizes, strict=True)])


@crop.backward
def crop_backward(p: CropParameter, x: Array, reference: Array, *, y: Array, dy: Array) -> tuple[Array, None]:
    starts, sizes = crop_box(p, x.shape, reference.shape)
    padding = [(a, n - a - size, 0) for a, n, size in zip(starts, x.shape, sizes, strict=True)]
    return lax.pad(dy, jnp.zeros((), dy.dtype), padding), None


def crop_box(p: CropParameter, shape: Shape, reference_shape: Shape) -> tuple[list[int], list[int]]:
    """Return the starts and the sizes of the crop, a number for each axis of bottom 0."""
    axis, offsets = canonical_axis(p.axis, shape), list(p.offset)
    n_cropped = len(shape) - axis
    require(
        len(offsets) in (0, 1, n_cropped),
        f"offset must have one value, or one for each of the {n_cropped} cropped axes, not {len(offsets)}",
    )
    require(
        len(reference_shape) >= len(shape),
        f"bottom 1 needs {len(shape)} axes, like bottom 0, but has shape {reference_shape}",
    )
    if len(offsets) != n_cropped:
        offsets = (offsets or [0]) * n_cropped
    starts, sizes = [0] * axis + offsets, [*shape[:axis], *reference_shape[axis : len(shape)]]
    for k in range(axis, len(shape)):
        require(
            starts[k] + sizes[k] <= shape[k],
            f"the crop does not fit along axis {k}: offset {starts[k]} plus size {sizes[k]} exceeds {shape[k]}",
        )
    return starts, sizes


@register(
    "Embed",
    param="embed_param",
    indices=Indices((0,), num_classes=lambda p, index: p.input_dim, ignore_label=lambda: -1, gathers=True),
    exempt_from_force_backward=(),
    blob_names=("weight", "bias"),
)
def embed(params: Params, index: Array) -> Array:
    """Return the rows of the weight that the bottom's indices select, plus a bias: (...) to (..., num_output).

    Blobs: weight (input_dim, num_output), bias (num_output,). Indices are truncated to integers. The index -1, with
    which LRCN's data pad sentences, gives a row of zeros and no gradient, where Caffe reads numbers from outside of the
    weight. Another index outside 0 .. input_dim - 1 gives a row of NaN. Caffe's rule: embed_layer.cpp.
    """
    weight, *bias = params.values()
    indices = _truncate_indices(index, weight.shape[0])  # negative indices would count from the end
    rows = jnp.take(weight, indices, axis=0, mode="fill", fill_value=jnp.nan)
    return jnp.where(_is_padding(index)[..., None], 0, rows + bias[0] if bias else rows)


def _is_padding(index: Array) -> Array:
    """Return whether each index is Embed's -1. Fractions are truncated, as in Caffe."""
    return index.astype(jnp.int32) == -1


@embed.params
def embed_params(p: EmbedParameter, index: Any) -> list[ParamSpec]:
    require(p.num_output > 0, f"num_output must be positive, not {p.num_output}")
    require(p.input_dim > 0, f"input_dim must be positive, not {p.input_dim}")
    return weight_and_bias_specs(p, (p.input_dim, p.num_output))


@embed.backward
def embed_backward(params: Params, index: Array, *, y: Array, dy: Array) -> tuple[Arrays, None]:
    weight, *bias = params.values()
    rows = jnp.where(_is_padding(index)[..., None], 0, dy).reshape(-1, weight.shape[1])
    d_weight = jax.ops.segment_sum(rows, _truncate_indices(index, weight.shape[0]).ravel(), weight.shape[0])
    return (d_weight, *(rows.sum(0) for _ in bias)), None


@register(
    "Filter",
    bottoms=(2, None),
    tops=(1, None),
    in_place=False,
    on_host=True,
    ragged_axis=0,
    indices=Indices((-1,)),
    exempt_from_force_backward=(),
    accepts_integers=True,
    unsupported={"shard": "selected rows of all devices move to the front"},
)
def filter_(*bottoms: np.ndarray) -> tuple[np.ndarray, ...]:
    """Select, from each bottom before the last, the rows for which the last bottom, the selector, is not zero.

    Bottoms: (N, ...) each, and the selector (N,). Tops: (M, ...), where M depends on the data. Caffe's rule:
    filter_layer.cpp.
    """
    *data, selector = bottoms
    row_indices = np.flatnonzero(selector.reshape(len(selector)))
    return tuple(x[row_indices] for x in data)


@filter_.top_shapes
def filter_top_shapes(*bottoms: Any, num_tops: int) -> list[Shape]:
    *data, selector = (b.shape for b in bottoms)
    require(
        num_tops == len(data),
        f"needs one top for each of the {len(data)} bottoms before the selector, but has {num_tops} tops",
    )
    require(
        selector and all(n == 1 for n in selector[1:]),
        f"the selector (last bottom) must hold one number for each row, but has shape {selector}",
    )
    for i, shape in enumerate(data):
        require(
            shape[:1] == selector[:1], f"bottom {i} must have {selector[0]} rows, like the selector, not shape {shape}"
        )
    return data  # the largest shapes: every row is selected


@filter_.backward
def filter_backward(*bottoms: np.ndarray, y: Any, dy: Any) -> tuple[np.ndarray | None, ...]:
    *data, selector = bottoms
    row_indices = np.flatnonzero(selector.reshape(len(selector)))
    diffs = [np.zeros_like(x) for x in data]
    for diff, d_top in zip(diffs, as_tuple(dy), strict=True):
        diff[row_indices] = d_top
    return (*diffs, None)


@filter_.traced
def filter_traced(*bottoms: Any) -> tuple[tuple[Array, ...], Array]:
    *data, selector = map(without_count, bottoms)
    is_selected = (selector.reshape(selector.shape[0]) != 0) & valid_rows(bottoms[-1])
    row_indices = jnp.argsort(~is_selected, stable=True)  # selected rows first, in their order
    is_valid, num_rows = jnp.take(is_selected, row_indices), jnp.sum(is_selected, dtype=jnp.int32)
    rows = (jnp.take(promote(x), row_indices, axis=0) for x in data)  # indexing fails where x is a constant
    return tuple(jnp.where(is_valid.reshape(-1, *(1,) * (x.ndim - 1)), x, 0) for x in rows), num_rows
