"""TripletLoss: anchors nearer to what is alike than, by a margin, to what is not."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from ..context import Context
from ..dtypes import promote
from ..loss import require_one_batch
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerTraits, LayerType, Signature, Traced


def triplet_loss(ctx: Context, anchor: jax.Array, alike: jax.Array, other: jax.Array, *labels: jax.Array) -> jax.Array:
    """Half the mean, over rows, of max(margin + |anchor - alike|**2 - |anchor - other|**2, 0).

    A fourth bottom, as in MyCaffe, of labels counts for nothing; the margin is `alpha` then.
    """
    _, _, gap = _parts(ctx, anchor, alike, other, *labels)
    return jnp.sum(jnp.where(gap > 0, gap, 0)) / (2 * max(anchor.shape[0], 1))


def triplet_loss_backward(
    ctx: Context, anchor: jax.Array, alike: jax.Array, other: jax.Array, *labels: jax.Array, y: Any, dy: Any
) -> tuple[Any, ...]:
    near, far, gap = _parts(ctx, anchor, alike, other, *labels)
    factor = dy / max(anchor.shape[0], 1) * (gap > 0)[:, None]
    diffs = (factor * d for d in (near - far, -near, far))
    shaped = (d.reshape(x.shape).astype(x.dtype) for d, x in zip(diffs, (anchor, alike, other), strict=True))
    return *shaped, *(None for _ in labels)


register(
    LayerType(
        Signature(
            "TripletLoss",
            bottoms=(3, 4),
            param="triplet_loss_param",
            loss=True,
            fork_settings=("alpha", "pregen_label_start"),
        ),
        Traced(triplet_loss),
        Gradient(triplet_loss_backward, indices=Indices((3,)), exempt_from_force_backward=(3,)),
        LayerTraits(accepts_integers=True),
        docs=LayerDocs(
            origin="caffe-windows, MyCaffe",
            restrictions="Forks' that find triplets among a bottom's rows are refused. No recorded case.",
        ),
    )
)


def _parts(
    ctx: Context, anchor: jax.Array, alike: jax.Array, other: jax.Array, *labels: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the differences to what is alike and to what is not, (rows, numbers), and how far the margin is missed."""
    p, name = ctx.param, "alpha" if labels else "margin"
    unread = "margin" if labels else "alpha"
    require(not p.HasField(unread), f"{unread} is not for {3 + len(labels)} bottoms; the margin is `{name}` with them")
    require(len(anchor.shape) > 0, "needs bottoms with a batch axis, not single numbers")
    for i, x in enumerate((alike, other), start=1):
        require(x.shape == anchor.shape, f"bottom {i} has shape {x.shape}, and must have bottom 0's, {anchor.shape}")
    for x in labels:
        require_one_batch(anchor.shape, x.shape)
    rows = [promote(x).reshape(anchor.shape[0], math.prod(anchor.shape[1:])) for x in (anchor, alike, other)]
    near, far = rows[0] - rows[1], rows[0] - rows[2]
    gap = getattr(p, name) + jnp.sum(jnp.square(near), axis=1) - jnp.sum(jnp.square(far), axis=1)
    return near, far, gap
