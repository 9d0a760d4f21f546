"""Eltwise, which combines bottoms of one shape, and Reduction, which reduces axes of one bottom.

Caffe's rules: eltwise_layer.cpp and reduction_layer.cpp.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array

from ...base.errors import require
from ..schema.caffe_pb2 import EltwiseParameter, ReductionParameter
from . import cross_replica
from .context import Arrays, Context, Shape
from .declaration import register
from .dtype_policy import promote
from .helpers import canonical_axis, is_after_first_axis
from .loss_helpers import num_items


@register("Eltwise", bottoms=(2, None), param="eltwise_param", elementwise=True, dtype_policy="bottoms")
def eltwise(p: EltwiseParameter, *xs: Array) -> Array:
    """Combine bottoms of one shape element by element: product (PROD), sum weighted by `coeff` (SUM) or maximum (MAX).

    The top has the shape of the bottoms. The gradient of MAX goes to a single bottom: among equal maxima, bottom 1
    comes before bottom 0, and both come before later bottoms. `stable_prod_grad` has no effect: the gradient of PROD is
    exact even where a bottom is 0.
    """
    for i, x in enumerate(xs):
        require(x.shape == xs[0].shape, f"bottom {i} must have the shape of bottom 0, {xs[0].shape}, but has {x.shape}")
    match p.operation:
        case p.PROD:
            return math.prod(xs[1:], start=xs[0])
        case p.SUM:
            return functools.reduce(operator.add, (c * x for c, x in zip(_coefficients(p, xs), xs, strict=True)))
        case _:
            top = jnp.where(xs[0] > xs[1], xs[0], xs[1])
            return functools.reduce(lambda best, x: jnp.where(x > best, x, best), xs[2:], top)


@eltwise.top_shapes
def eltwise_top_shapes(p: EltwiseParameter, *xs: Any) -> list[Shape] | None:
    return None if p.coeff or any(x.shape != xs[0].shape for x in xs) else [xs[0].shape]


@eltwise.backward
def eltwise_backward(p: EltwiseParameter, *xs: Array, y: Array, dy: Array) -> Arrays:
    match p.operation:
        case p.PROD:
            return tuple(math.prod(xs[:i] + xs[i + 1 :], start=dy) for i in range(len(xs)))
        case p.SUM:
            return tuple(c * dy for c in _coefficients(p, xs))
        case _:
            reordered_xs = jnp.stack((xs[1], xs[0], *xs[2:]))
            max_index = jnp.argmax(reordered_xs == y, axis=0)
            stack_indices = (1, 0, *range(2, len(xs)))
            return tuple(jnp.where(max_index == index, dy, 0) for index in stack_indices)


@eltwise.check
def check_eltwise(p: EltwiseParameter, *, ctx: Context) -> None:
    operation, n, num_bottoms = p.EltwiseOp.Name(p.operation), len(p.coeff), len(ctx.layer.bottom)
    require(operation in ("PROD", "SUM", "MAX"), f"operation {operation} is not supported; use PROD, SUM or MAX")
    require(
        n in (0, num_bottoms), f"coeff must be set once for each bottom, or not at all: {num_bottoms} times, not {n}"
    )
    require(not (n and p.operation == p.PROD), "coeff cannot be used with operation PROD; remove it, or use SUM")


def _coefficients(p: EltwiseParameter, xs: Arrays) -> Sequence[float]:
    return tuple(p.coeff) or (1.0,) * len(xs)


@register("Reduction", param="reduction_param", row_wise=is_after_first_axis, counts_rows=lambda p: p.axis == 0)
def reduction(p: ReductionParameter, x: Array, *, ctx: Context) -> Array:
    """Return `coeff` times the sum, the sum of |x|, the sum of squares or the mean over `axis` and all later axes.

    `operation` selects one of these: SUM, ASUM, SUMSQ or MEAN. The top has the axes of the bottom before `axis`. The
    gradient of |x| at 0 is 0.
    """
    rows = _flatten_reduced_axes(p, x)
    match _reduction_operation(p):
        case "SUM":
            y = rows.sum(-1)
        case "ASUM":
            y = (jnp.sign(rows) * rows).sum(-1)
        case "SUMSQ":
            y = jnp.square(rows).sum(-1)
        case _:
            y = rows.mean(-1) if ctx.num_rows is None else rows.sum(-1) / num_items(ctx, x.shape)
    return (_sum_coefficient(ctx, x.shape) * y).astype(x.dtype)


@reduction.backward
def reduction_backward(p: ReductionParameter, x: Array, *, y: Array, dy: Array, ctx: Context) -> Array:
    rows = _flatten_reduced_axes(p, x)
    slope = {
        "SUM": jnp.ones_like,
        "ASUM": jnp.sign,
        "SUMSQ": lambda r: 2 * r,
        "MEAN": lambda r: jnp.full_like(r, 1 / (r.shape[-1] if ctx.num_rows is None else num_items(ctx, x.shape))),
    }[_reduction_operation(p)](rows)
    return (_sum_coefficient(ctx, x.shape) * promote(dy)[..., None] * slope).reshape(x.shape)


def _reduction_operation(p: ReductionParameter) -> str:
    operation = str(p.ReductionOp.Name(p.operation))
    require(
        operation in ("SUM", "ASUM", "SUMSQ", "MEAN"),
        f"operation {operation} is not supported; use SUM, ASUM, SUMSQ or MEAN",
    )
    return operation


def _sum_coefficient(ctx: Context, shape: Shape) -> float:
    """Return the factor by which the sum over the elements on this device is multiplied."""
    sums_over_batch = canonical_axis(ctx.param.axis, shape) == 0 and _reduction_operation(ctx.param) != "MEAN"
    return float(ctx.param.coeff) * (cross_replica.axis_size(ctx) if sums_over_batch else 1)


def _flatten_reduced_axes(p: ReductionParameter, x: Array) -> Array:
    axis = canonical_axis(p.axis, x.shape)
    return promote(x).reshape(*x.shape[:axis], math.prod(x.shape[axis:]))
