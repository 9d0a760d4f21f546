"""Losses over distances: CenterLoss, GeneralContrastiveLoss, GeneralTripletLoss and TripletLoss."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from .. import cross_replica
from ..context import Context, ParamSpec
from ..dtype_policy import promote
from ..helpers import canonical_axis, first_top
from ..loss import classes_of_rows, label_indices, label_mask, nan_if_unlabelled, require_one_batch
from ..registry import define_layer
from ..types import Gradient, Indices, LayerDocs, LayerTraits, Signature, Traced, Transform


def class_distances(distances: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the distances as (items, classes), and the mask of the items' classes, (items, classes)."""
    require_one_batch(distances.shape, labels.shape)
    require(
        math.prod(labels.shape[1:]) == 1,
        f"needs one label per item: distances {distances.shape}, labels {labels.shape}",
    )
    rows = promote(distances).reshape(distances.shape[0], -1)
    require(rows.shape[1] > 1, f"needs distances to two classes or more, not shape {distances.shape}")
    return rows, label_mask(label_indices(labels, rows.shape[1]), rows.shape)


def first_largest(values: jax.Array) -> jax.Array:
    """Return the mask of the first largest value in each row, (rows, n)."""
    return jnp.arange(values.shape[1]) == jnp.argmax(values, axis=1)[:, None]


def has_no_others(ctx: Context, distance: jax.Array) -> jax.Array:
    """Return the mask of items (N,) whose other classes are ignored.

    These are, with positive_first, the items whose distance to their class exceeds positive_upper_bound.
    """
    p: Any = ctx.param
    return (distance > p.positive_upper_bound) & p.positive_first


Arrays = tuple[jax.Array, ...]


def center_loss(ctx: Context, blobs: tuple[jax.Array], x: jax.Array, labels: jax.Array) -> jax.Array:
    """Half the mean over items of the squared distance to the centre of the item's class; a scalar.

    Bottoms: features (N, ...), labels (N,). The blob holds the centres, (num_output, features). The default loss_weight
    is 0. For every other loss weight the gradient of a centre c is the same: the sum of c - x over the n items x of its
    class, divided by n + 1.
    """
    difference, is_label = _differences(ctx, blobs, x, labels)
    return nan_if_unlabelled(is_label, jnp.sum(jnp.square(difference)) / (2 * x.shape[0])).astype(x.dtype)


def center_loss_params(ctx: Context, x: Any, labels: Any) -> list[ParamSpec]:
    p = ctx.param
    axis = canonical_axis(p.axis, x.shape)
    require(axis == 1, f"has a label for each item along axis 0; axis must be 1, not {p.axis}")
    require(p.num_output > 0, "num_output must be positive")
    require(p.distance_type == "L2", f'distance_type "{p.distance_type}" is not supported; use "L2"')
    require(
        math.prod(labels.shape[1:]) == 1 and labels.shape[:1] == x.shape[:1],
        f"needs one label per item: data {x.shape}, labels {labels.shape}",
    )
    return [ParamSpec((p.num_output, math.prod(x.shape[1:])), p.center_filler)]


def center_loss_backward(
    ctx: Context, blobs: tuple[jax.Array], x: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[Any, ...]:
    difference, is_label = _differences(ctx, blobs, x, labels)
    members = is_label.astype(difference.dtype)
    d_centers = -(members.T @ difference) / (1 + cross_replica.psum(ctx, jnp.sum(members, axis=0))[:, None])
    dx = dy / x.shape[0] * difference
    return (jnp.where(dy == 0, 0, d_centers),), dx.reshape(x.shape), None


def _classes(ctx: Context, x: Any, labels: Any) -> int:
    return int(ctx.param.num_output)


_CANNOT: dict[Transform, str] = {
    "jvp": "the gradient of the centres is independent of the top's, so it is not linear in it",
    "shard_map": "the centres' gradient divides by the number of items of a class in the whole batch",
}

define_layer(
    Signature("CenterLoss", bottoms=2, param="center_loss_param", in_place=False),
    Traced(center_loss, params=center_loss_params),
    Gradient(
        center_loss_backward,
        overrides_autodiff=True,
        indices=Indices((1,), _classes),
        exempt_from_force_backward=(1,),
        not_derivative="The centres' gradient is a mean over their class, independent of the loss weight.",
    ),
    LayerTraits(weight_axes=2),
    docs=LayerDocs(origin="caffe-face", unsupported=_CANNOT),
)


def _differences(ctx: Context, blobs: tuple[jax.Array], x: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the items minus the centres of their classes, and the mask of the items' classes, (items, classes)."""
    (centers,) = blobs
    numbers = label_indices(labels, centers.shape[0]).reshape(-1)
    is_label = label_mask(numbers, (x.shape[0], centers.shape[0]))
    nearest = jnp.take(promote(centers), numbers, axis=0, mode="clip")
    return promote(x).reshape(x.shape[0], -1) - nearest, is_label


def general_contrastive_loss(
    ctx: Context, blobs: Arrays, distances: jax.Array, labels: jax.Array, *read: jax.Array
) -> tuple[Any, Arrays]:
    """Contrastive loss of distances to classes: the item's class pulls, other classes push; a scalar.

    The loss is the mean over items of the terms of all classes. Bottoms: distances d (N, classes) and labels (N,). The
    term of the item's class is positive_weight * max(d - positive_margin, 0), where the maximum is clamped to
    positive_outlier_thresh. The term of each other class is negative_weight * max(negative_margin - d, 0), or with
    exp_negative_weight negative_weight * exp(-d) where d < negative_margin. With max_negative_only, only the other
    class of an item with the largest term counts; as in the fork, for items of class 0 only if that term is larger than
    the term of class 0. With positive_first, no other class counts if the distance to the item's class exceeds
    positive_upper_bound. With max_positive_only, only the item of the batch with the smallest weighted term of its
    class counts, as in the fork, among the terms of the items' classes. normalize_negative divides gradients only. If
    there is a third bottom, the distances are read from it, and the gradient still goes to the first. A second top (2,)
    holds the means of both terms, without weights. With add_intra_mae, a running mean of the first of them (from 0, by
    1 % in each pass, at most max_negative_margin) is added to negative_margin, and is a third number of this top.
    """
    p = ctx.param
    d, is_label, _, pulls, others = _contrastive_terms(ctx, blobs, read[0] if read else distances, labels)
    near, far, pushed = _pulls_and_pushes(ctx, blobs, d)
    sums = abs(p.positive_weight) * jnp.where(pulls, near, 0) + abs(p.negative_weight) * jnp.where(others, pushed, 0)
    loss = nan_if_unlabelled(is_label, jnp.sum(sums) / d.shape[0])
    means = [jnp.sum(jnp.where(is_label, near, 0)), jnp.sum(jnp.where(is_label, 0, far)) / (d.shape[1] - 1)]
    second = cross_replica.pmean(ctx, jnp.stack(means) / d.shape[0])
    if p.add_intra_mae:
        blobs = (jax.lax.stop_gradient(jnp.minimum(0.99 * blobs[0] + 0.01 * second[:1], p.max_negative_margin)),)
        second = jnp.concatenate([second, *blobs])
    return (loss if ctx.n_tops == 1 else (loss, second)), blobs


def general_contrastive_loss_params(ctx: Context, distances: Any, labels: Any, *read: Any) -> list[ParamSpec]:
    for other in read:
        require(
            other.shape == distances.shape,
            f"bottom 2 must have the shape of bottom 0, {distances.shape}, not {other.shape}",
        )
    return [ParamSpec((1,), learnable=False, persistent=False)] if ctx.param.add_intra_mae else []


def general_contrastive_loss_backward(
    ctx: Context, blobs: Arrays, distances: jax.Array, labels: jax.Array, *read: jax.Array, y: Any, dy: Any
) -> tuple[Any, ...]:
    p = ctx.param
    d_top = first_top(dy)
    d, is_label, alone, pulls, others = _contrastive_terms(ctx, blobs, read[0] if read else distances, labels)
    pulled = pulls & (d > p.positive_margin) & (d < p.positive_outlier_thresh) | alone[:, None]
    pushed = p.negative_weight * (jnp.exp(-d) if p.exp_negative_weight else jnp.ones_like(d))
    pushed = jnp.where(others & (d < _negative_margin(ctx, blobs)), pushed, 0)
    if p.HasField("normalize_negative"):
        total = jnp.abs(cross_replica.pmean(ctx, jnp.sum(pushed))) / (p.normalize_negative * d.shape[0])
        pushed = jnp.where(total > p.positive_weight, pushed / jnp.where(total == 0, 1, total), pushed)
    slope = jnp.where(is_label & pulled, p.positive_weight, 0) - pushed
    dx = (d_top / d.shape[0] * slope).reshape(distances.shape)
    return tuple(None for _ in blobs), dx, None, *(None for _ in read)


define_layer(
    Signature("GeneralContrastiveLoss", bottoms=(2, 3), tops=(1, 2), param="general_contrastive_loss_param", loss=True),
    Traced(general_contrastive_loss, params=general_contrastive_loss_params, stateful=True),
    Gradient(
        general_contrastive_loss_backward,
        overrides_autodiff=True,
        indices=Indices((1,), classes_of_rows),
        exempt_from_force_backward=(1, 2),
        not_derivative="The means in the second top pass no gradient, whatever their loss weight; a third bottom "
        "gets none.",
    ),
    docs=LayerDocs(origin="NormFace", restrictions="square is ignored, as in the fork."),
)


def _contrastive_terms(ctx: Context, blobs: Arrays, distances: jax.Array, labels: jax.Array) -> Arrays:
    """Return the distances, and masks.

    The masks are of each item's class, items that ignore other classes, items' classes that count, and other classes
    that count. All are (items, classes), except the second mask, (items,).
    """
    p = ctx.param
    d, is_label = class_distances(distances, labels)
    alone = has_no_others(ctx, jnp.sum(jnp.where(is_label, d, 0), axis=1))
    pulls, others = is_label, ~is_label & ~alone[:, None]
    near, _, pushed = _pulls_and_pushes(ctx, blobs, d)
    if p.max_positive_only:
        pulls &= _is_first_smallest(ctx, p.positive_weight * jnp.sum(jnp.where(is_label, near, 0), axis=1))[:, None]
    if p.max_negative_only:
        push = jnp.where(is_label, -jnp.inf, p.negative_weight * pushed)
        beats_class_0 = jnp.max(push, axis=1) > p.positive_weight * near[:, 0]
        others &= first_largest(push) & (~is_label[:, 0] | beats_class_0)[:, None]
    return d, is_label, alone, pulls, others


def _is_first_smallest(ctx: Context, x: jax.Array) -> jax.Array:
    """Return the mask of the first smallest of the values (items,) in the batches of all devices."""
    at = cross_replica.axis_index(ctx)
    everywhere = cross_replica.psum(ctx, jnp.zeros((cross_replica.axis_size(ctx), *x.shape), x.dtype).at[at].set(x))
    return jnp.arange(x.shape[0]) + at * x.shape[0] == jnp.argmin(everywhere)


def _negative_margin(ctx: Context, blobs: Arrays) -> Any:
    return ctx.param.negative_margin + (jax.lax.stop_gradient(blobs[0]) if blobs else 0.0)


def _pulls_and_pushes(ctx: Context, blobs: Arrays, d: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the distances beyond positive_margin, those below negative_margin, and the terms of other classes."""
    p, margin = ctx.param, _negative_margin(ctx, blobs)
    near = jnp.clip(d - p.positive_margin, 0, p.positive_outlier_thresh)
    far = jnp.maximum(margin - d, 0)
    return near, far, jnp.exp(-d) * (d < margin) if p.exp_negative_weight else far


def general_triplet_loss(ctx: Context, distances: jax.Array, labels: jax.Array) -> Any:
    """Triplet loss of distances to classes: a mean over items of the sum of max(d_label + margin - d, 0); a scalar.

    Bottoms: distances d (N, classes) and labels (N,). d_label is the distance to the item's class; the sum is over the
    other classes, times negative_weight. With hardest_only, only the nearest other class of an item counts. With
    positive_first, no other class counts if d_label exceeds positive_upper_bound. The gradient is -negative_weight for
    other classes within the margin. For the item's class it is positive_weight once if another class is within the
    margin or positive_first excludes them, and with add_center_loss always. A second top (2,) holds the means of the
    distances to the item's class and to other classes.
    """
    d, is_label, alone, _, within = _class_triplets(ctx, distances, labels)
    mine = jnp.sum(jnp.where(is_label, d, 0), axis=1)
    gap = jnp.where(within & ~alone[:, None], mine[:, None] + ctx.param.margin - d, 0)
    loss = nan_if_unlabelled(is_label, abs(ctx.param.negative_weight) * jnp.sum(gap) / d.shape[0])
    if ctx.n_tops == 1:
        return loss
    means = [jnp.sum(mine), jnp.sum(jnp.where(is_label, 0, d)) / (d.shape[1] - 1)]
    return loss, cross_replica.pmean(ctx, jnp.stack(means) / d.shape[0])


def general_triplet_loss_backward(
    ctx: Context, distances: jax.Array, labels: jax.Array, *, y: Any, dy: Any
) -> tuple[jax.Array, None]:
    p = ctx.param
    d_top = first_top(dy)
    d, is_label, alone, others, within = _class_triplets(ctx, distances, labels)
    pushed = within & others
    pulled = jnp.any(pushed, axis=1) | alone | p.add_center_loss
    slope = jnp.where(is_label & pulled[:, None], p.positive_weight, 0) - jnp.where(pushed, p.negative_weight, 0)
    return (d_top / d.shape[0] * slope).reshape(distances.shape), None


define_layer(
    Signature("GeneralTripletLoss", bottoms=2, tops=(1, 2), param="general_triplet_loss_param", loss=True),
    Traced(general_triplet_loss),
    Gradient(
        general_triplet_loss_backward,
        overrides_autodiff=True,
        indices=Indices((1,), classes_of_rows),
        exempt_from_force_backward=(1,),
        not_derivative="The gradient counts the item's class once, for any number of other classes, with "
        "add_center_loss also where the loss is 0; means in the second top pass no gradient.",
    ),
    docs=LayerDocs(origin="NormFace", restrictions="A third bottom, weights of the items' gradients, is refused."),
)


def _class_triplets(ctx: Context, distances: jax.Array, labels: jax.Array) -> tuple[jax.Array, ...]:
    """Return the distances, and masks: item's class, items without others, other classes, those in the margin.

    All are (items, classes), except the mask of items, (items,).
    """
    d, is_label = class_distances(distances, labels)
    mine = jnp.sum(jnp.where(is_label, d, 0), axis=1)
    alone = has_no_others(ctx, mine)
    others = ~is_label & ~alone[:, None]
    within = ~is_label & (mine[:, None] + ctx.param.margin > d)
    if ctx.param.hardest_only:
        within &= first_largest(jnp.where(is_label, -jnp.inf, -d))
    return d, is_label, alone, others, within


def triplet_loss(ctx: Context, anchor: jax.Array, alike: jax.Array, other: jax.Array, *labels: jax.Array) -> jax.Array:
    """Half the mean over rows of max(margin + |anchor - positive|**2 - |anchor - negative|**2, 0); a scalar.

    Bottoms: anchors, positive examples and negative examples, (N, ...) each. A fourth bottom of labels, as in MyCaffe,
    is ignored; the margin is then `alpha`.
    """
    _, _, gap = _triplet_gaps(ctx, anchor, alike, other, *labels)
    return jnp.sum(jnp.where(gap > 0, gap, 0)) / (2 * max(anchor.shape[0], 1))


def triplet_loss_backward(
    ctx: Context, anchor: jax.Array, alike: jax.Array, other: jax.Array, *labels: jax.Array, y: Any, dy: Any
) -> tuple[Any, ...]:
    near, far, gap = _triplet_gaps(ctx, anchor, alike, other, *labels)
    factor = dy / max(anchor.shape[0], 1) * (gap > 0)[:, None]
    diffs = (factor * d for d in (near - far, -near, far))
    shaped = (d.reshape(x.shape).astype(x.dtype) for d, x in zip(diffs, (anchor, alike, other), strict=True))
    return *shaped, *(None for _ in labels)


define_layer(
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
        restrictions="Variants that form triplets from the rows of one bottom are an error. No recorded case.",
    ),
)


def _triplet_gaps(
    ctx: Context, anchor: jax.Array, alike: jax.Array, other: jax.Array, *labels: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return p = anchor - positive, n = anchor - negative, (rows, features), and margin + |p|**2 - |n|**2, (rows,)."""
    p, name = ctx.param, "alpha" if labels else "margin"
    unread = "margin" if labels else "alpha"
    require(
        not p.HasField(unread), f"{unread} has no effect with {3 + len(labels)} bottoms; set the margin by `{name}`"
    )
    require(len(anchor.shape) > 0, "needs bottoms with a batch axis, not single numbers")
    for i, x in enumerate((alike, other), start=1):
        require(
            x.shape == anchor.shape,
            f"bottom {i} has shape {x.shape}, but must have the shape of bottom 0, {anchor.shape}",
        )
    for x in labels:
        require_one_batch(anchor.shape, x.shape)
    rows = [promote(x).reshape(anchor.shape[0], math.prod(anchor.shape[1:])) for x in (anchor, alike, other)]
    near, far = rows[0] - rows[1], rows[0] - rows[2]
    gap = getattr(p, name) + jnp.sum(jnp.square(near), axis=1) - jnp.sum(jnp.square(far), axis=1)
    return near, far, gap
