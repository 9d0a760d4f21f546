"""GeneralTripletLoss: distances to the own class to be less, by a margin, than those to others."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .. import across
from ..context import Context
from ..loss import classes_of_rows, nan_if_unlabelled
from ..registry import register
from ..tops import first
from ..types import Gradient, Indices, LayerDocs, LayerType, Signature, Traced
from .class_distances import class_distances, first_largest, no_others


def general_triplet_loss(ctx: Context, distances: jax.Array, labels: jax.Array) -> Any:
    """Sum of max(own + margin - d, 0) * negative_weight over other classes, divided by the number of items.

    Distances are (items, classes). The second top holds the means of own and of other distances. hardest_only leaves
    an item its nearest other class, positive_first none if its own is beyond positive_upper_bound. The gradient is
    -negative_weight for others within the margin, and positive_weight once for the own class: where some are, or with
    add_center_loss always.
    """
    d, own, alone, _, within = _parts(ctx, distances, labels)
    mine = jnp.sum(jnp.where(own, d, 0), axis=1)
    gap = jnp.where(within & ~alone[:, None], mine[:, None] + ctx.param.margin - d, 0)
    loss = nan_if_unlabelled(own, abs(ctx.param.negative_weight) * jnp.sum(gap) / d.shape[0])
    if ctx.n_tops == 1:
        return loss
    means = [jnp.sum(mine), jnp.sum(jnp.where(own, 0, d)) / (d.shape[1] - 1)]
    return loss, across.mean(ctx, jnp.stack(means) / d.shape[0])


def general_triplet_loss_backward(
    ctx: Context, distances: jax.Array, labels: jax.Array, *, y: Any, dy: Any
) -> tuple[jax.Array, None]:
    p = ctx.param
    d_top = first(dy)
    d, own, alone, others, within = _parts(ctx, distances, labels)
    pushed = within & others
    pulled = jnp.any(pushed, axis=1) | alone | p.add_center_loss
    slope = jnp.where(own & pulled[:, None], p.positive_weight, 0) - jnp.where(pushed, p.negative_weight, 0)
    return (d_top / d.shape[0] * slope).reshape(distances.shape), None


register(
    LayerType(
        Signature("GeneralTripletLoss", bottoms=2, tops=(1, 2), param="general_triplet_loss_param", loss=True),
        Traced(general_triplet_loss),
        Gradient(
            general_triplet_loss_backward,
            overrides_autodiff=True,
            indices=Indices((1,), classes_of_rows),
            exempt_from_force_backward=(1,),
            not_derivative="The own class is pulled once, however many others are pushed, and with add_center_loss "
            "even where the loss is 0; means in the second top pass no gradient.",
        ),
        docs=LayerDocs(origin="NormFace", restrictions="A third bottom, weights of the items' gradients, is refused."),
    )
)


def _parts(ctx: Context, distances: jax.Array, labels: jax.Array) -> tuple[jax.Array, ...]:
    """Return distances, where own classes are, which items have nothing else, others, those within the margin."""
    d, own = class_distances(distances, labels)
    mine = jnp.sum(jnp.where(own, d, 0), axis=1)
    alone = no_others(ctx, mine)
    others = ~own & ~alone[:, None]
    within = ~own & (mine[:, None] + ctx.param.margin > d)
    if ctx.param.hardest_only:
        within &= first_largest(jnp.where(own, -jnp.inf, -d))
    return d, own, alone, others, within
