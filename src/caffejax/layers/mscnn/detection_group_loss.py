"""DetectionGroupLoss: the loss of what proposes boxes, several fields to a place."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from ..context import Context
from ..dtypes import promote
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerType, Signature, Traced
from .fields import fields
from .multitask import Labels, balanced, box_loss, class_loss, labels_of, two_losses, weight_of
from .ranks import drawn, highest
from .regression import bounds, normalization
from .shapes import images_of, per_image, per_item, require_pair

Losses = tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


def detection_group_loss(ctx: Context, scores: jax.Array, deltas: jax.Array, truth: jax.Array) -> jax.Array:
    """Softmax loss of class scores plus `lambda` times the loss of deltas, of a sample of each image; 1 x 1 x 1 x 2.

    Maps of scores, deltas and ground truth (label, box, overlap) have an item for each image and field. The second
    number is the part of the deltas, and its diff counts for nothing. Objects have labels above 0, background 0 and an
    overlap below `bg_threshold`. Of `batch_size`, or of all if -1, background is `bg_multiple` times the objects, drawn
    or the hardest. With field_xyr and field_whr, deltas are bounded, though not for the gradient.
    """
    (of_classes, _), (of_boxes, _) = _losses(ctx, scores, deltas, truth)
    return two_losses(ctx, of_classes, getattr(ctx.param, "lambda") * of_boxes)


def detection_group_loss_backward(
    ctx: Context, scores: jax.Array, deltas: jax.Array, truth: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array, None]:
    (_, by_scores), (_, by_deltas) = _losses(ctx, scores, deltas, truth)
    weight = weight_of(ctx, dy)
    return weight * by_scores, weight * getattr(ctx.param, "lambda") * by_deltas, None


register(
    LayerType(
        Signature(
            "DetectionGroupLoss",
            bottoms=3,
            param="detection_group_loss_param",
            loss=True,
            in_place=False,
        ),
        Traced(detection_group_loss),
        Gradient(
            detection_group_loss_backward,
            overrides_autodiff=True,
            indices=Indices((2,)),
            exempt_from_force_backward=(2,),
        ),
        docs=LayerDocs(
            origin="Cascade R-CNN",
            restrictions="Predictions are bounded in the loss, not in the bottom that others read.",
        ),
    )
)


def _losses(ctx: Context, scores: jax.Array, deltas: jax.Array, truth: jax.Array) -> Losses:
    """Return the loss of classes and its gradient by scores; and those of boxes by deltas."""
    p, norm = ctx.param, normalization(ctx)
    field = fields(p.field_w, p.field_h, p.stride)
    require_pair(scores.shape, deltas.shape)
    require(scores.shape[1] == p.cls_num, f"needs scores of cls_num {p.cls_num} classes, not {scores.shape[1]}")
    require(not p.objectness or p.cls_num == 2, f"objectness needs cls_num 2, not {p.cls_num}")
    require(
        p.bbox_loss_type in ("Smooth_L1", "Euclidean_L2"),
        f"bbox_loss_type must be Smooth_L1 or Euclidean_L2, not '{p.bbox_loss_type}'",
    )
    labels = labels_of(truth, scores.shape, "bottom 2 (ground truth)")
    scores, deltas = promote(scores), promote(deltas)
    sample = _sample(ctx, scores, labels, len(field.width))
    classes = jnp.minimum(labels.classes, 1) if p.objectness else labels.classes
    weights = _weights(ctx, labels, sample, scores.dtype)
    of_classes = class_loss(ctx, scores, classes, jnp.where(sample & ~labels.ignored(ctx, classes), weights, jnp.nan))
    if p.HasField("field_xyr") and p.HasField("field_whr"):
        deltas = bounds(p).normalized_held(deltas, 1, norm)
    counts = sample & (labels.classes != 0) & ~labels.ignored(ctx, labels.classes)
    targets = field.encoded(promote(labels.boxes), norm)
    return of_classes, box_loss(ctx, deltas, targets, counts, p.bbox_loss_type == "Smooth_L1")


def _sample(ctx: Context, scores: jax.Array, labels: Labels, n_fields: int) -> jax.Array:
    """Return which places are sampled, (batch, height, width)."""
    p, shape = ctx.param, labels.classes.shape
    require(p.batch_size == -1 or p.batch_size > 0, f"batch_size must be above 0, or -1 for all, not {p.batch_size}")
    images = images_of(shape[0], n_fields)

    def flat(x: jax.Array) -> jax.Array:
        return per_image(x, images, n_fields).reshape(images, n_fields * shape[1] * shape[2])

    objects = flat(labels.classes > 0)
    background = flat((labels.classes == 0) & (labels.overlap < p.bg_threshold))
    n_objects = jnp.sum(objects, axis=1, dtype=jnp.int32)
    if p.batch_size == -1:
        n_background = jnp.maximum(n_objects * p.bg_multiple, p.min_num_neg)
    else:
        n_objects = jnp.minimum(n_objects, int(p.batch_size / (1 + p.bg_multiple) + 0.5))
        n_background = p.batch_size - n_objects
        objects = drawn(jax.random.fold_in(ctx.key, 0), objects, n_objects)
    n_background = jnp.minimum(n_background, jnp.sum(background, axis=1, dtype=jnp.int32))
    rankings = ("conf_loss", "conf_prob")  # background that is the least likely has the largest loss, too
    require(p.neg_ranking_type in rankings, f"neg_ranking_type must be one of {rankings}, not '{p.neg_ranking_type}'")
    hard = flat(-jax.nn.log_softmax(scores, axis=1)[:, 0])
    match p.neg_mining_type:
        case "bootstrap":
            background = highest(hard, background, n_background)
        case "mixture":
            hardest = highest(hard, background, (n_background + 1) // 2)
            others = drawn(jax.random.fold_in(ctx.key, 1), background & ~hardest, n_background // 2)
            background = hardest | others
        case "random":
            background = drawn(jax.random.fold_in(ctx.key, 1), background, n_background)
        case other:
            require(False, f"neg_mining_type must be random, bootstrap or mixture, not '{other}'")
    found = (objects | background).reshape(images, n_fields, *shape[1:])
    return per_item(found, shape[0], n_fields)


def _weights(ctx: Context, labels: Labels, sample: jax.Array, dtype: Any) -> jax.Array:
    """Return the weight of each place, (batch, height, width)."""
    p, objects = ctx.param, labels.classes > 0
    if not p.pos_neg_weighted:
        return jnp.ones(objects.shape, dtype)
    return jnp.where(objects, *balanced(ctx, objects & sample, ~objects & sample, 1 / (1 + p.bg_multiple), dtype))
