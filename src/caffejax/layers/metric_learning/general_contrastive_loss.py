"""GeneralContrastiveLoss: distances to the own class pulled below a margin, those to others pushed beyond one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from .. import across
from ..context import Context
from ..loss import classes_of_rows, nan_if_unlabelled
from ..registry import register
from ..tops import first
from ..types import Gradient, Indices, LayerDocs, LayerType, Signature, Traced
from .class_distances import class_distances, first_largest, no_others


def general_contrastive_loss(ctx: Context, distances: jax.Array, labels: jax.Array) -> Any:
    """Sum of weighted max(d - positive_margin, 0) of own and max(negative_margin - d, 0) of other classes, over items.

    Distances are (items, classes). The second top holds the means of both terms, without weights. Own distances above
    positive_outlier_thresh count as that; max_negative_only leaves an item its nearest other class, positive_first
    none if its own is beyond positive_upper_bound. normalize_negative only divides gradients.
    """
    p = ctx.param
    d, own, _, others = _parts(ctx, distances, labels)
    near = jnp.clip(d - p.positive_margin, 0, p.positive_outlier_thresh)
    far = jnp.maximum(p.negative_margin - d, 0)
    pushed = jnp.exp(-d) * (d < p.negative_margin) if p.exp_negative_weight else far
    sums = abs(p.positive_weight) * jnp.where(own, near, 0) + abs(p.negative_weight) * jnp.where(others, pushed, 0)
    loss = nan_if_unlabelled(own, jnp.sum(sums) / d.shape[0])
    if ctx.n_tops == 1:
        return loss
    means = [jnp.sum(jnp.where(own, near, 0)), jnp.sum(jnp.where(own, 0, far)) / (d.shape[1] - 1)]
    return loss, across.mean(ctx, jnp.stack(means) / d.shape[0])


def general_contrastive_loss_backward(
    ctx: Context, distances: jax.Array, labels: jax.Array, *, y: Any, dy: Any
) -> tuple[jax.Array, None]:
    p = ctx.param
    d_top = first(dy)
    d, own, alone, others = _parts(ctx, distances, labels)
    pulled = (d > p.positive_margin) & (d < p.positive_outlier_thresh) | alone[:, None]
    pushed = p.negative_weight * (jnp.exp(-d) if p.exp_negative_weight else jnp.ones_like(d))
    pushed = jnp.where(others & (d < p.negative_margin), pushed, 0)
    if p.HasField("normalize_negative"):
        total = jnp.abs(across.mean(ctx, jnp.sum(pushed))) / (p.normalize_negative * d.shape[0])
        pushed = jnp.where(total > p.positive_weight, pushed / jnp.where(total == 0, 1, total), pushed)
    slope = jnp.where(own & pulled, p.positive_weight, 0) - pushed
    return (d_top / d.shape[0] * slope).reshape(distances.shape), None


register(
    LayerType(
        Signature("GeneralContrastiveLoss", bottoms=2, tops=(1, 2), param="general_contrastive_loss_param", loss=True),
        Traced(general_contrastive_loss),
        Gradient(
            general_contrastive_loss_backward,
            overrides_autodiff=True,
            indices=Indices((1,), classes_of_rows),
            exempt_from_force_backward=(1,),
            not_derivative="The means in the second top pass no gradient, whatever their loss weight.",
        ),
        docs=LayerDocs(
            origin="NormFace", restrictions="max_positive_only, add_intra_mae, square and a third bottom are refused."
        ),
    )
)


def _parts(ctx: Context, distances: jax.Array, labels: jax.Array) -> tuple[jax.Array, ...]:
    """Return distances, where own classes are, which items have nothing else, which other classes count."""
    p = ctx.param
    for name in ("max_positive_only", "add_intra_mae", "square"):
        require(not getattr(p, name), f"{name}: true is not supported")
    d, own = class_distances(distances, labels)
    alone = no_others(ctx, jnp.sum(jnp.where(own, d, 0), axis=1))
    others = ~own & ~alone[:, None]
    if p.max_negative_only:
        others &= first_largest(jnp.where(own, -jnp.inf, -d))
    return d, own, alone, others
