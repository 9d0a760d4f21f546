"""Layers that only move numbers: joining, copying."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import require
from .axes import canonical_axis
from .registry import Context, register


@register("Concat", bottoms=(1, None), param="concat_param")
def concat(ctx: Context, *xs: jax.Array) -> jax.Array:
    """Bottoms joined along `axis` (or the old name `concat_dim`); all other axes must agree."""
    axis = _concat_axis(ctx, xs)
    first = xs[0].shape
    for i, x in enumerate(xs):
        agree = x.ndim == len(first) and all(
            a == b for k, (a, b) in enumerate(zip(x.shape, first, strict=True)) if k != axis
        )
        require(agree, f"bottom {i} has shape {x.shape}, bottom 0 {first}: only axis {axis} may differ")
    return jnp.concatenate(xs, axis)


@concat.backward
def _(ctx: Context, *xs: jax.Array, y: jax.Array, dy: jax.Array) -> tuple[jax.Array, ...]:
    axis = _concat_axis(ctx, xs)
    ends = np.cumsum([x.shape[axis] for x in xs])
    return tuple(jax.lax.slice_in_dim(dy, end - x.shape[axis], end, axis=axis) for x, end in zip(xs, ends, strict=True))


def _concat_axis(ctx: Context, xs: tuple[jax.Array, ...]) -> int:
    p = ctx.param
    require(not (p.HasField("axis") and p.HasField("concat_dim")), "give either axis or concat_dim, not both")
    return canonical_axis(p.concat_dim if p.HasField("concat_dim") else p.axis, xs[0].shape)


@register("Split", tops=(1, None), in_place=False, row_wise=True)
def split(ctx: Context, x: jax.Array) -> tuple[jax.Array, ...]:
    """The bottom once for each top. Nets insert these by themselves where a blob has several readers."""
    return (x,) * ctx.n_tops


@split.backward
def _(ctx: Context, x: jax.Array, *, y: object, dy: object) -> jax.Array:
    return jnp.sum(jnp.stack(dy if isinstance(dy, tuple) else (dy,)), axis=0)
