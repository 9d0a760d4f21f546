"""InnerDistance: like InnerProduct, but with distances to the rows of the weight instead of products."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...core.layers.context import Context, Params, ParamSpec
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.layers.helpers import canonical_axis
from ...core.layers.loss_helpers import label_indices, one_hot_mask
from ...core.layers.types import Indices
from ...core.layers.weight_and_bias import normalize_rows
from ...core.schema.caffe_pb2 import InnerDistanceParameter

Arrays = tuple[jax.Array, ...]

_normalize_rows = partial(normalize_rows, eps=1e-6)


@register(
    "InnerDistance",
    bottoms=(1, 3),
    param="inner_distance_param",
    in_place=False,
    overrides_autodiff=True,
    indices=Indices((2,)),
    exempt_from_force_backward=(),
    weight_axes=2,
    origin="caffe-windows",
    restrictions="With update_center_only and two bottoms, the second contains the labels. The fork also reads "
    "them as the weight.",
)
def inner_distance(p: InnerDistanceParameter, params: Params, x: jax.Array, *bottoms: jax.Array) -> jax.Array:
    """Compute the squared L2 distance or the L1 distance of x to each row of a weight or of a second bottom.

    x (..., features) is flattened from `axis` on; the top has shape (..., rows). The weight has shape (num_output,
    features). With `transpose` its shape is (features, num_output), but, as in the fork, its values in memory are still
    rows of `features` values. With `normalize`, the rows are scaled to length 1, also in the stored weight, and
    gradients ignore the scaling. With `update_center_only`, the last bottom contains a label for each item, and only
    the distance to the item's class contributes to the gradient of the rows. A bias is never added, and bias_term is
    ignored.
    """
    rows, centers, leading_shape = _read_rows_and_centers(p, params, x, bottoms)
    difference = rows[:, None] - centers
    distances = jnp.abs(difference) if p.distance_type == "L1" else jnp.square(difference)
    return jnp.sum(distances, axis=2).reshape(*leading_shape, centers.shape[0]).astype(x.dtype)


@inner_distance.params
def inner_distance_params(p: InnerDistanceParameter, x: Any, *bottoms: Any) -> list[ParamSpec]:
    require(p.distance_type in ("L1", "L2"), f'distance_type must be "L1" or "L2", not "{p.distance_type}"')
    axis = canonical_axis(p.axis, x.shape)
    num_features = math.prod(x.shape[axis:])
    centers, labels = _split_centers_and_labels(p, bottoms)
    for label in labels:
        require(
            math.prod(label.shape) == math.prod(x.shape[:axis]),
            f"needs one label per item in the last bottom: data {x.shape}, labels {label.shape}",
        )
    require(len(centers) < 2, "takes a third bottom, the labels, only with update_center_only")
    if centers:
        center_shape = centers[0].shape
        require(
            len(center_shape) > 0 and math.prod(center_shape[1:]) == num_features,
            f"bottom 1 must have rows of {num_features} values, like bottom 0 {x.shape}, not shape {center_shape}",
        )
        require(
            p.num_output in (0, center_shape[0]),
            f"num_output is {p.num_output}, but bottom 1 has {center_shape[0]} rows: {center_shape}",
        )
        return []
    require(p.num_output > 0, f"num_output must be positive, not {p.num_output}")
    shape = (num_features, p.num_output) if p.transpose else (p.num_output, num_features)
    rewrite = (lambda w: _normalize_rows(w.reshape(p.num_output, num_features)).reshape(shape)) if p.normalize else None
    return [ParamSpec(shape, p.weight_filler, rewrite=rewrite, name="weight")]


@inner_distance.backward
def inner_distance_backward(
    p: InnerDistanceParameter, params: Params, x: jax.Array, *bottoms: jax.Array, y: jax.Array, dy: jax.Array
) -> tuple[Any, ...]:
    rows, centers, _ = _read_rows_and_centers(p, params, x, bottoms)
    d_top = d_pairs = promote(dy).reshape(rows.shape[0], centers.shape[0])
    center_bottoms, labels = _split_centers_and_labels(p, bottoms)
    for label_bottom in labels:
        d_pairs = jnp.where(
            one_hot_mask(label_indices(label_bottom, centers.shape[0]).reshape(-1), d_top.shape), d_top, 0
        )
    if p.distance_type == "L1":
        sign = jnp.sign(rows[:, None] - centers)
        d_rows, d_center_rows = jnp.sum(d_top[:, :, None] * sign, axis=1), -jnp.sum(d_pairs[:, :, None] * sign, axis=0)
    else:
        d_rows = 2 * (jnp.sum(d_top, axis=1)[:, None] * rows - d_top @ centers)
        d_center_rows = 2 * (jnp.sum(d_pairs, axis=0)[:, None] * centers - d_pairs.T @ rows)
    d_centers = d_center_rows.reshape((center_bottoms[0] if center_bottoms else params["weight"]).shape)
    other_diffs = (*([d_centers] if center_bottoms else []), *(None for _ in labels))
    return (() if center_bottoms else (d_centers,)), d_rows.reshape(x.shape), *other_diffs


@inner_distance.row_wise
def _is_row_wise(p: InnerDistanceParameter, *, ctx: Context) -> bool:
    return p.axis > 0 and len(ctx.layer.bottom) == 1


def _split_centers_and_labels(
    p: InnerDistanceParameter, bottoms: tuple[Any, ...]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Split the bottoms after x into (centers,) and (labels,); a tuple is empty if the layer has no such bottom.

    Only layers with `update_center_only` have labels.
    """
    return (bottoms[:-1], bottoms[-1:]) if p.update_center_only else (bottoms, ())


def _read_rows_and_centers(
    p: InnerDistanceParameter, params: Params, x: jax.Array, bottoms: Arrays
) -> tuple[jax.Array, jax.Array, tuple[int, ...]]:
    """Return x as (items, features), the centers as (centers, features), and the shape of x before `axis`.

    The centers, to which distances are computed, are the rows of the weight or of the second bottom.
    """
    axis = canonical_axis(p.axis, x.shape)
    rows = promote(x).reshape(math.prod(x.shape[:axis]), -1)
    bottoms, _ = _split_centers_and_labels(p, bottoms)
    centers = bottoms[0].reshape(bottoms[0].shape[0], -1) if bottoms else params["weight"].reshape(p.num_output, -1)
    if p.normalize and not bottoms:
        centers = _normalize_rows(centers)
    return rows, promote(centers), x.shape[:axis]
