"""Losses of distances: CenterLoss, GeneralContrastiveLoss, GeneralTripletLoss and TripletLoss."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...core.layers import cross_replica
from ...core.layers.context import Context, Params, ParamSpec
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.layers.helpers import canonical_axis, first_top
from ...core.layers.loss_helpers import (
    batch_size,
    in_valid_rows,
    label_indices,
    nan_if_unlabelled,
    num_classes_of_rows,
    num_items,
    one_hot_mask,
    require_same_batch_size,
    sum_rows,
)
from ...core.layers.types import Indices, Transform
from ...core.schema.caffe_pb2 import (
    CenterLossParameter,
    GeneralContrastiveParameter,
    GeneralTripletParameter,
    TripletLossParameter,
)


def read_class_distances(distances: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the distances of items to classes, and a mask that is True at each item's class, (items, classes) each."""
    require_same_batch_size(distances.shape, labels.shape)
    require(
        math.prod(labels.shape[1:]) == 1,
        f"needs one label per item: distances {distances.shape}, labels {labels.shape}",
    )
    rows = promote(distances).reshape(distances.shape[0], -1)
    require(rows.shape[1] > 1, f"needs distances to two classes or more, not shape {distances.shape}")
    return rows, one_hot_mask(label_indices(labels, rows.shape[1]), rows.shape)


def mask_first_largest(values: jax.Array) -> jax.Array:
    """Return a mask of `values`, (rows, n), that is True only at the first largest value of each row."""
    return jnp.arange(values.shape[1]) == jnp.argmax(values, axis=1)[:, None]


def has_no_negatives(p: GeneralTripletParameter, distance: jax.Array) -> jax.Array:
    """Return the mask (N,) of the items for which the loss ignores all classes except the item's class.

    With positive_first, these are the items whose distance to their own class exceeds positive_upper_bound. Without it,
    there are none.

    Args:
        p: the settings.
        distance: (N,), the distance of each item to its own class.
    """
    return (distance > p.positive_upper_bound) & p.positive_first


Arrays = tuple[jax.Array, ...]


_UNSUPPORTED: dict[Transform, str] = {
    "jvp": "the gradient of the centers is not linear in the gradient of the top, on which it does not depend",
    "shard_map": "the centers' gradient divides by the number of items of a class in the whole batch",
}


def _class_count(p: CenterLossParameter, x: Any, labels: Any) -> int:
    return int(p.num_output)


@register(
    "CenterLoss",
    bottoms=2,
    param="center_loss_param",
    in_place=False,
    overrides_autodiff=True,
    indices=Indices((1,), _class_count),
    deviation="The gradient of a center is a mean over its class, and does not depend on the loss weight.",
    weight_axes=2,
    counts_rows=True,
    origin="caffe-face",
    unsupported=_UNSUPPORTED,
)
def center_loss(params: Params, x: jax.Array, labels: jax.Array, *, ctx: Context) -> jax.Array:
    """Compute half the mean over items of the squared distance to the center of the item's class, as a scalar.

    Bottoms: features (N, ...) and labels (N,). The blob contains the centers of the classes, (num_output, features).
    The default loss_weight is 0. The gradient with respect to a center c does not depend on the size of the
    loss_weight, unless that is 0: it is the sum of c - x over the n items x of the class, divided by n + 1.
    """
    difference, is_label = _subtract_centers(params["centers"], x, labels)
    loss = sum_rows(ctx, jnp.square(difference)) / (2 * num_items(ctx, x.shape[:1]))
    return nan_if_unlabelled(is_label, loss).astype(x.dtype)


@center_loss.params
def center_loss_params(p: CenterLossParameter, x: Any, labels: Any) -> list[ParamSpec]:
    axis = canonical_axis(p.axis, x.shape)
    require(axis == 1, f"has a label for each item along axis 0; axis must be 1, not {p.axis}")
    require(p.num_output > 0, f"num_output must be positive, not {p.num_output}")
    require(p.distance_type == "L2", f'distance_type "{p.distance_type}" is not supported; use "L2"')
    require(
        math.prod(labels.shape[1:]) == 1 and labels.shape[:1] == x.shape[:1],
        f"needs one label per item: data {x.shape}, labels {labels.shape}",
    )
    return [ParamSpec((p.num_output, math.prod(x.shape[1:])), p.center_filler, name="centers")]


@center_loss.backward
def center_loss_backward(
    params: Params, x: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context
) -> tuple[Any, ...]:
    difference, is_label = _subtract_centers(params["centers"], x, labels)
    members = in_valid_rows(ctx, is_label).astype(difference.dtype)
    d_centers = -(members.T @ difference) / (1 + cross_replica.psum(ctx, jnp.sum(members, axis=0))[:, None])
    dx = dy / num_items(ctx, x.shape[:1]) * difference
    return (jnp.where(dy == 0, 0, d_centers),), dx.reshape(x.shape), None


def _subtract_centers(centers: jax.Array, x: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the items minus the centers of their classes, and a mask that is True at the class of each item.

    The differences have shape (items, features), and the mask has shape (items, classes).
    """
    class_indices = label_indices(labels, centers.shape[0]).reshape(-1)
    is_label = one_hot_mask(class_indices, (x.shape[0], centers.shape[0]))
    class_centers = jnp.take(promote(centers), class_indices, axis=0, mode="clip")
    return promote(x).reshape(x.shape[0], -1) - class_centers, is_label


@register(
    "GeneralContrastiveLoss",
    bottoms=(2, 3),
    tops=(1, 2),
    param="general_contrastive_loss_param",
    loss=True,
    stateful=True,
    overrides_autodiff=True,
    indices=Indices((1,), num_classes_of_rows),
    exempt_from_force_backward=(1, 2),
    deviation="The means in the second top pass no gradient, whatever their loss weight; a third bottom gets none.",
    counts_rows=True,
    origin="NormFace",
    restrictions="square is ignored, as in the fork.",
)
def general_contrastive_loss(
    p: GeneralContrastiveParameter,
    distances: jax.Array,
    labels: jax.Array,
    *read_distances: jax.Array,
    state: Params,
    ctx: Context,
) -> tuple[Any, Params]:
    """Compute a contrastive loss of distances to classes as a scalar.

    The loss is the mean over items of the sum of a term for each class. Bottoms: distances d (N, classes) and labels
    (N,). The term of the item's class is positive_weight * max(d - positive_margin, 0), where the maximum is clamped to
    positive_outlier_thresh. The term of each other class is negative_weight * max(negative_margin - d, 0). With
    exp_negative_weight, it is negative_weight * exp(-d) where d < negative_margin.

    With max_negative_only, only the largest term of an item's other classes counts. As in the fork, this term counts
    for an item of class 0 only if it is larger than the term of class 0. With positive_first, no other class counts if
    the distance to the item's class exceeds positive_upper_bound. With max_positive_only, the only term of an item's
    own class that counts is the smallest weighted term in the batch, as in the fork. normalize_negative only affects
    the gradients of other classes: it scales them by a common factor.

    If there is a third bottom, the distances are read from it, but the gradient is passed to the first bottom. A second
    top (2,) contains the mean term of the items' classes and the mean term of other classes, without weights. With
    add_intra_mae, a running mean of the first of these values is added to negative_margin. The running mean starts at
    0, gives each new mean a weight of 0.01, is at most max_negative_margin, and is the third value of the second top.
    """
    d, is_label, _, positive_mask, negative_mask = _read_contrastive_masks(
        ctx, state, read_distances[0] if read_distances else distances, labels
    )
    positive_terms, negative_gaps, negative_terms = _compute_contrastive_terms(p, state, d)
    weighted_terms = abs(p.positive_weight) * jnp.where(positive_mask, positive_terms, 0) + abs(
        p.negative_weight
    ) * jnp.where(negative_mask, negative_terms, 0)
    num_rows = num_items(ctx, d.shape[:1])
    loss = nan_if_unlabelled(is_label, sum_rows(ctx, weighted_terms) / num_rows)
    term_sums = [
        sum_rows(ctx, jnp.where(is_label, positive_terms, 0)),
        sum_rows(ctx, jnp.where(is_label, 0, negative_gaps)) / (d.shape[1] - 1),
    ]
    mean_terms = cross_replica.pmean(ctx, jnp.stack(term_sums) / num_rows)
    if p.add_intra_mae:
        mean_error = jnp.minimum(0.99 * state["mean_error"] + 0.01 * mean_terms[:1], p.max_negative_margin)
        state = {"mean_error": jax.lax.stop_gradient(mean_error)}
        mean_terms = jnp.concatenate([mean_terms, *state.values()])
    return (loss if ctx.num_tops == 1 else (loss, mean_terms)), state


@general_contrastive_loss.params
def general_contrastive_loss_params(
    p: GeneralContrastiveParameter, distances: Any, labels: Any, *read_distances: Any
) -> list[ParamSpec]:
    for bottom in read_distances:
        require(
            bottom.shape == distances.shape,
            f"bottom 2 must have the shape of bottom 0, {distances.shape}, not {bottom.shape}",
        )
    return [ParamSpec((1,), learnable=False, persistent=False, name="mean_error")] if p.add_intra_mae else []


@general_contrastive_loss.backward
def general_contrastive_loss_backward(
    p: GeneralContrastiveParameter,
    distances: jax.Array,
    labels: jax.Array,
    *read_distances: jax.Array,
    state: Params,
    y: Any,
    dy: Any,
    ctx: Context,
) -> tuple[Any, ...]:
    d_top = first_top(dy)
    d, is_label, is_positive_only, positive_mask, negative_mask = _read_contrastive_masks(
        ctx, state, read_distances[0] if read_distances else distances, labels
    )
    num_rows = num_items(ctx, d.shape[:1])
    has_positive_slope = (
        positive_mask & (d > p.positive_margin) & (d < p.positive_outlier_thresh) | is_positive_only[:, None]
    )
    negative_slope = p.negative_weight * (jnp.exp(-d) if p.exp_negative_weight else jnp.ones_like(d))
    negative_slope = jnp.where(negative_mask & (d < _negative_margin(p, state)), negative_slope, 0)
    if p.HasField("normalize_negative"):
        total = jnp.abs(cross_replica.pmean(ctx, sum_rows(ctx, negative_slope))) / (p.normalize_negative * num_rows)
        negative_slope = jnp.where(
            total > p.positive_weight, negative_slope / jnp.where(total == 0, 1, total), negative_slope
        )
    slope = jnp.where(is_label & has_positive_slope, p.positive_weight, 0) - negative_slope
    dx = (d_top / num_rows * slope).reshape(distances.shape)
    return dx, None, *(None for _ in read_distances)


def _read_contrastive_masks(ctx: Context, state: Params, distances: jax.Array, labels: jax.Array) -> Arrays:
    """Return the distances, and masks of the classes and items that contribute to the loss.

    Returns:
        the distances; the mask of each item's class; the mask of items for which all other classes are ignored; and two
        masks of the classes that contribute to the loss: first the item's class, then other classes. All have shape
        (items, classes), except for the mask of items, (items,).
    """
    p = ctx.param
    d, is_label = read_class_distances(distances, labels)
    is_positive_only = has_no_negatives(ctx.param, jnp.sum(jnp.where(is_label, d, 0), axis=1))
    positive_mask, negative_mask = is_label, ~is_label & ~is_positive_only[:, None]
    positive_terms, _, negative_terms = _compute_contrastive_terms(ctx.param, state, d)
    if p.max_positive_only:
        positive_mask &= _mask_first_smallest(
            ctx, p.positive_weight * jnp.sum(jnp.where(is_label, positive_terms, 0), axis=1)
        )[:, None]
    if p.max_negative_only:
        weighted_terms = jnp.where(is_label, -jnp.inf, p.negative_weight * negative_terms)
        beats_class_0 = jnp.max(weighted_terms, axis=1) > p.positive_weight * positive_terms[:, 0]
        negative_mask &= mask_first_largest(weighted_terms) & (~is_label[:, 0] | beats_class_0)[:, None]
    return d, is_label, is_positive_only, positive_mask, negative_mask


def _mask_first_smallest(ctx: Context, x: jax.Array) -> jax.Array:
    """Return a mask of x, (items,), that is True only at the smallest value of a valid row in all devices' batches.

    x contains the values of this device's batch. If several values are equal, the first is the smallest.
    """
    device_index = cross_replica.axis_index(ctx)
    x = jnp.where(in_valid_rows(ctx, jnp.ones(x.shape, bool)), x, jnp.inf)
    all_values = cross_replica.psum(
        ctx, jnp.zeros((cross_replica.axis_size(ctx), *x.shape), x.dtype).at[device_index].set(x)
    )
    return jnp.arange(x.shape[0]) + device_index * x.shape[0] == jnp.argmin(all_values)


def _negative_margin(p: GeneralContrastiveParameter, state: Params) -> Any:
    return p.negative_margin + (jax.lax.stop_gradient(state["mean_error"]) if state else 0.0)


def _compute_contrastive_terms(
    p: GeneralContrastiveParameter, state: Params, d: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the terms of the loss before weighting, for all distances d (items, classes).

    Returns:
        Three arrays (items, classes): the term if the class is the item's class, max(d - positive_margin, 0), at most
        positive_outlier_thresh; max(negative_margin - d, 0); and the term if the class is another class.
    """
    margin = _negative_margin(p, state)
    positive_terms = jnp.clip(d - p.positive_margin, 0, p.positive_outlier_thresh)
    negative_gaps = jnp.maximum(margin - d, 0)
    return positive_terms, negative_gaps, jnp.exp(-d) * (d < margin) if p.exp_negative_weight else negative_gaps


@register(
    "GeneralTripletLoss",
    bottoms=2,
    tops=(1, 2),
    param="general_triplet_loss_param",
    loss=True,
    overrides_autodiff=True,
    indices=Indices((1,), num_classes_of_rows),
    deviation="The gradient counts the item's class once, for any number of other classes, and with "
    "add_center_loss also where the loss is 0. The means in the second top pass no gradient.",
    counts_rows=True,
    origin="NormFace",
    restrictions="A third bottom, which weights the gradients of the items, is refused.",
)
def general_triplet_loss(p: GeneralTripletParameter, distances: jax.Array, labels: jax.Array, *, ctx: Context) -> Any:
    """Compute a triplet loss of distances to classes as a scalar.

    The loss is the mean over items of negative_weight times the sum of max(d_label + margin - d, 0) over the other
    classes. Bottoms: distances d (N, classes) and labels (N,). d_label is the distance to the item's class. With
    hardest_only, only the nearest other class of an item counts. With positive_first, no other class counts if d_label
    exceeds positive_upper_bound.

    Other classes are within the margin if their d is below d_label + margin. The gradient of their distances is
    -negative_weight. The gradient of d_label is positive_weight if any other class is within the margin or if
    positive_first excludes the other classes. With add_center_loss, it is always positive_weight. A second top (2,)
    contains the means of the distances to the item's class and to other classes.
    """
    d, is_label, is_positive_only, _, is_within_margin = _read_triplet_masks(p, distances, labels)
    label_distance, num_rows = jnp.sum(jnp.where(is_label, d, 0), axis=1), num_items(ctx, d.shape[:1])
    gap = jnp.where(is_within_margin & ~is_positive_only[:, None], label_distance[:, None] + p.margin - d, 0)
    loss = nan_if_unlabelled(is_label, abs(p.negative_weight) * sum_rows(ctx, gap) / num_rows)
    if ctx.num_tops == 1:
        return loss
    distance_sums = [jnp.sum(label_distance), jnp.sum(jnp.where(is_label, 0, d)) / (d.shape[1] - 1)]
    return loss, cross_replica.pmean(ctx, jnp.stack(distance_sums) / num_rows)


@general_triplet_loss.backward
def general_triplet_loss_backward(
    p: GeneralTripletParameter, distances: jax.Array, labels: jax.Array, *, y: Any, dy: Any, ctx: Context
) -> tuple[jax.Array, None]:
    d_top = first_top(dy)
    d, is_label, is_positive_only, negative_mask, is_within_margin = _read_triplet_masks(p, distances, labels)
    has_negative_slope = is_within_margin & negative_mask
    has_positive_slope = jnp.any(has_negative_slope, axis=1) | is_positive_only | p.add_center_loss
    slope = jnp.where(is_label & has_positive_slope[:, None], p.positive_weight, 0) - jnp.where(
        has_negative_slope, p.negative_weight, 0
    )
    return (d_top / num_items(ctx, d.shape[:1]) * slope).reshape(distances.shape), None


def _read_triplet_masks(p: GeneralTripletParameter, distances: jax.Array, labels: jax.Array) -> tuple[jax.Array, ...]:
    """Return the distances, and masks of the classes and items that contribute to the loss.

    Returns:
        the distances; the mask of each item's class; the mask of items for which all other classes are ignored; the
        mask of other classes that contribute; the mask of other classes within the margin. All have shape (items,
        classes), except for the mask of items, (items,).
    """
    d, is_label = read_class_distances(distances, labels)
    label_distance = jnp.sum(jnp.where(is_label, d, 0), axis=1)
    is_positive_only = has_no_negatives(p, label_distance)
    negative_mask = ~is_label & ~is_positive_only[:, None]
    is_within_margin = ~is_label & (label_distance[:, None] + p.margin > d)
    if p.hardest_only:
        is_within_margin &= mask_first_largest(jnp.where(is_label, -jnp.inf, -d))
    return d, is_label, is_positive_only, negative_mask, is_within_margin


@register(
    "TripletLoss",
    bottoms=(3, 4),
    param="triplet_loss_param",
    loss=True,
    fork_settings=("alpha", "pregen_label_start"),
    indices=Indices((3,)),
    accepts_integers=True,
    counts_rows=True,
    origin="caffe-windows, MyCaffe",
    restrictions="Variants that form triplets from the rows of one bottom are an error. No recorded case.",
)
def triplet_loss(
    p: TripletLossParameter,
    anchor: jax.Array,
    positive: jax.Array,
    negative: jax.Array,
    *labels: jax.Array,
    ctx: Context,
) -> jax.Array:
    """Compute half the mean over rows of max(margin + |anchor - positive|**2 - |anchor - negative|**2, 0) as a scalar.

    Bottoms: anchors, positive examples and negative examples, (N, ...) each. MyCaffe's layer has the labels as a fourth
    bottom. They are ignored, but the margin is then `alpha`.
    """
    _, _, gap = _compute_triplet_gaps(p, anchor, positive, negative, *labels)
    # NaN stays NaN, as in the fork
    return sum_rows(ctx, jnp.where(gap <= 0, 0, gap)) / (2 * batch_size(ctx, anchor))


@triplet_loss.backward
def triplet_loss_backward(
    p: TripletLossParameter,
    anchor: jax.Array,
    positive: jax.Array,
    negative: jax.Array,
    *labels: jax.Array,
    y: Any,
    dy: Any,
    ctx: Context,
) -> tuple[Any, ...]:
    positive_difference, negative_difference, gap = _compute_triplet_gaps(p, anchor, positive, negative, *labels)
    factor = dy / batch_size(ctx, anchor) * (gap > 0)[:, None]
    diffs = (factor * d for d in (positive_difference - negative_difference, -positive_difference, negative_difference))
    shaped_diffs = (
        d.reshape(x.shape).astype(x.dtype) for d, x in zip(diffs, (anchor, positive, negative), strict=True)
    )
    return *shaped_diffs, *(None for _ in labels)


def _compute_triplet_gaps(
    p: TripletLossParameter, anchor: jax.Array, positive: jax.Array, negative: jax.Array, *labels: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return p = anchor - positive, n = anchor - negative, and margin + |p|**2 - |n|**2.

    p and n have shape (rows, features), and the last array has shape (rows,).
    """
    margin_field = "alpha" if labels else "margin"
    ignored_field = "margin" if labels else "alpha"
    require(
        not p.HasField(ignored_field),
        f"{ignored_field} has no effect with {3 + len(labels)} bottoms; set the margin by `{margin_field}`",
    )
    require(len(anchor.shape) > 0, "needs bottoms with a batch axis, not single numbers")
    for i, x in enumerate((positive, negative), start=1):
        require(
            x.shape == anchor.shape,
            f"bottom {i} has shape {x.shape}, but must have the shape of bottom 0, {anchor.shape}",
        )
    for x in labels:
        require_same_batch_size(anchor.shape, x.shape)
    rows = [promote(x).reshape(anchor.shape[0], math.prod(anchor.shape[1:])) for x in (anchor, positive, negative)]
    positive_difference, negative_difference = rows[0] - rows[1], rows[0] - rows[2]
    gap = (
        getattr(p, margin_field)
        + jnp.sum(jnp.square(positive_difference), axis=1)
        - jnp.sum(jnp.square(negative_difference), axis=1)
    )
    return positive_difference, negative_difference, gap
