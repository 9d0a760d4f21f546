"""InnerDistance: distances to the rows of a weight, where InnerProduct computes products with them."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from ..context import Context, ParamSpec
from ..dtypes import promote
from ..helpers import canonical_axis
from ..registry import register
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced
from ..weights import normalize_rows

Arrays = tuple[jax.Array, ...]

_unit_rows = partial(normalize_rows, eps=1e-6)


def inner_distance(ctx: Context, blobs: Arrays, x: jax.Array, *centers: jax.Array) -> jax.Array:
    """Squared L2 or L1 distance of x to each row of a weight or of a second bottom: (..., features) to (..., rows).

    x is flattened from `axis` on. The weight is (num_output, features). With `normalize` its rows are scaled to length
    1, also in the stored weight; gradients ignore the scaling. A bias is never added, and bias_term is ignored.
    """
    rows, others, lead = _rows(ctx, blobs, x, centers)
    difference = rows[:, None] - others
    apart = jnp.abs(difference) if ctx.param.distance_type == "L1" else jnp.square(difference)
    return jnp.sum(apart, axis=2).reshape(*lead, others.shape[0]).astype(x.dtype)


def inner_distance_params(ctx: Context, x: Any, *centers: Any) -> list[ParamSpec]:
    p = ctx.param
    require(p.distance_type in ("L1", "L2"), f'distance_type must be "L1" or "L2", not "{p.distance_type}"')
    require(
        not p.transpose,
        "transpose: true is not supported; the rows of the weight are the points to which distances are measured",
    )
    require(not p.update_center_only, "update_center_only: true is not supported")
    inputs = math.prod(x.shape[canonical_axis(p.axis, x.shape) :])
    if centers:
        other = centers[0].shape
        require(
            len(other) > 0 and math.prod(other[1:]) == inputs,
            f"bottom 1 must have rows of {inputs} numbers, like bottom 0 {x.shape}, not shape {other}",
        )
        require(
            p.num_output in (0, other[0]), f"num_output is {p.num_output}, but bottom 1 has {other[0]} rows: {other}"
        )
        return []
    require(p.num_output > 0, "num_output must be positive")
    return [ParamSpec((p.num_output, inputs), p.weight_filler, rewrite=_unit_rows if p.normalize else None)]


def inner_distance_backward(
    ctx: Context, blobs: Arrays, x: jax.Array, *centers: jax.Array, y: jax.Array, dy: jax.Array
) -> tuple[Any, ...]:
    rows, others, _ = _rows(ctx, blobs, x, centers)
    d_top = promote(dy).reshape(rows.shape[0], others.shape[0])
    if ctx.param.distance_type == "L1":
        slope = d_top[:, :, None] * jnp.sign(rows[:, None] - others)
        d_rows, d_others = jnp.sum(slope, axis=1), -jnp.sum(slope, axis=0)
    else:
        d_rows = 2 * (jnp.sum(d_top, axis=1)[:, None] * rows - d_top @ others)
        d_others = 2 * (jnp.sum(d_top, axis=0)[:, None] * others - d_top.T @ rows)
    dx = d_rows.reshape(x.shape)
    return ((), dx, d_others.reshape(centers[0].shape)) if centers else ((d_others,), dx)


def _row_wise(ctx: Context) -> bool:
    return ctx.param.axis > 0 and len(ctx.layer.bottom) == 1


register(
    LayerType(
        Signature("InnerDistance", bottoms=(1, 2), param="inner_distance_param", in_place=False),
        Traced(inner_distance, params=inner_distance_params),
        Gradient(inner_distance_backward, overrides_autodiff=True),
        LayerTraits(row_wise=_row_wise, weight_axes=2),
        docs=LayerDocs(origin="caffe-windows", restrictions="transpose and update_center_only are an error."),
    )
)


def _rows(ctx: Context, blobs: Arrays, x: jax.Array, centers: Arrays) -> tuple[jax.Array, jax.Array, tuple[int, ...]]:
    """Return x as (rows, features), the rows to which distances are computed, and the shape of x before `axis`."""
    axis = canonical_axis(ctx.param.axis, x.shape)
    rows = promote(x).reshape(math.prod(x.shape[:axis]), -1)
    others = centers[0].reshape(centers[0].shape[0], -1) if centers else blobs[0]
    if ctx.param.normalize and not centers:
        others = _unit_rows(others)
    return rows, promote(others), x.shape[:axis]
