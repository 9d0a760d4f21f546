"""What MultiBoxLoss compares predictions with: the ground truth that priors are matched to, and mined negatives."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...schema.caffe_pb2 import PriorBoxParameter
from .. import across
from ..boxes import decode_offsets, encode_offsets
from ..context import Context
from ..loss import loss_divisor, normalization
from .matching import Matches, Truth, match
from .mining import hardest
from .multibox_terms import class_terms, location_terms


class Predictions(NamedTuple):
    """What was predicted: locations (images, priors, 1 or classes, 4), scores (images, priors, classes)."""

    locations: jax.Array
    scores: jax.Array


class Targets(NamedTuple):
    """What predictions are compared with, and which of them count.

    Attributes:
        matched: whether a prior is matched, (images, groups, priors). Groups are the classes where each is matched by
            itself; else there is one.
        labels: the class of its ground truth, likewise.
        offsets: where its ground truth is, (images, groups, priors, 4).
        right: which of the predicted offsets are not looked at and count as right, likewise.
        scale: what offsets are multiplied by in the loss, (priors, 4) or 1.
        classes: 1 at each prior's class or classes, (images, priors, classes).
        counted: whether these count, (images, priors).
        divisor: what losses are divided by.
    """

    matched: jax.Array
    labels: jax.Array
    offsets: jax.Array
    right: jax.Array
    scale: Any
    classes: jax.Array
    counted: jax.Array
    divisor: Any = 1.0


def find_targets(ctx: Context, mining: int, predictions: Predictions, prior: jax.Array, label: jax.Array) -> Targets:
    """Match priors (2, priors, 4), their boxes and variances, with ground truth (count, 8), and mine."""
    p, (locations, scores) = ctx.param, predictions
    truth, classes = Truth.of(label, difficult=p.use_difficult_gt), scores.shape[2]
    boxes, variances = prior[0], None if p.encode_variance_in_target else prior[1]
    code, images = PriorBoxParameter.CodeType.Name(p.code_type), jnp.arange(scores.shape[0])
    by_prior = p.use_prior_for_matching
    matches = match(
        truth,
        boxes[None] if by_prior else decode_offsets(code, _of_truth(truth, locations), boxes, variances),
        images,
        labels=None if by_prior or p.share_location else classes,
        threshold=p.overlap_threshold if p.match_type == p.PER_PREDICTION else None,
        inside_only=p.ignore_cross_boundary_bbox,
    )
    matched, number = matches.truth >= 0, jnp.maximum(matches.truth, 0)
    own = jnp.full_like(truth.label, p.background_label_id + 1) if p.map_object_to_agnostic else truth.label
    labels = own[number]
    offsets = jnp.where(matched[..., None], encode_offsets(code, truth.box[number], boxes, variances), 0.0)
    found = Targets(
        matched,
        labels,
        offsets,
        jnp.zeros(offsets.shape, bool),
        1 / prior[1] if p.encode_variance_in_target else 1.0,
        _classes(ctx, mining, matched, labels, scores),
        jnp.ones(scores.shape[:2], bool),
    )
    if p.bp_inside:
        seen = boxes if by_prior else decode_offsets(code, chosen(locations, found), boxes, variances)
        found = found._replace(right=jnp.broadcast_to((seen < 0) | (seen > 1), offsets.shape))
    if mining != p.NONE:
        with_truth = jnp.any(images[:, None] == truth.image, axis=1)
        found = _mined(p, mining, predictions, matches, found, with_truth[:, None])
    wrong = (truth.image >= 0) & ((own < 0) | (own >= classes) | (truth.label == p.background_label_id))
    return found._replace(divisor=jnp.where(jnp.any(wrong), jnp.nan, _divisor(ctx, found)))


def chosen(locations: jax.Array, targets: Targets) -> jax.Array:
    """Return of the predicted locations those to be compared, (images, groups, priors, 4)."""
    by_class = jnp.swapaxes(locations, 1, 2)
    groups, classes = targets.labels.shape[1], by_class.shape[1]
    if groups == classes:
        return by_class
    own = targets.labels == jnp.arange(classes)[:, None]
    return jnp.sum(jnp.where(own[..., None], by_class, 0), axis=1, keepdims=True)


def differences(locations: jax.Array, targets: Targets) -> jax.Array:
    """Return predicted offsets less the right ones, scaled, (images, groups, priors, 4)."""
    return jnp.where(targets.right, 0, (chosen(locations, targets) - targets.offsets) * targets.scale)


def _of_truth(truth: Truth, locations: jax.Array) -> jax.Array:
    """Return what was predicted for each ground truth's image and class, (count, priors, 4).

    It is a product with ones and zeros: sums pass between devices where rows would have to.
    """
    image = (truth.image[:, None] == jnp.arange(locations.shape[0])).astype(locations.dtype)
    group = jnp.ones((truth.label.shape[0], 1), locations.dtype)
    if locations.shape[2] > 1:
        group = (truth.label[:, None] == jnp.arange(locations.shape[2])).astype(locations.dtype)
    return jnp.einsum("tn,tc,npcx->tpx", image, group, locations, precision="highest")


def _classes(ctx: Context, mining: int, matched: jax.Array, labels: jax.Array, scores: jax.Array) -> jax.Array:
    p, number = ctx.param, jnp.arange(scores.shape[2])
    if p.conf_loss_type == p.LOGISTIC and mining == p.NONE:  # what is not matched is of no class, not of background
        of_match = matched[..., None] & (labels[..., None] == number)
        return _moved_up(ctx, jnp.any(of_match, axis=1).astype(scores.dtype))
    label = jnp.max(jnp.where(matched, labels, -1), axis=1)
    label = jnp.where(jnp.any(matched, axis=1), label, p.background_label_id)
    return (label[..., None] == number).astype(scores.dtype)


def _moved_up(ctx: Context, classes: jax.Array) -> jax.Array:
    """Return classes (images, priors, classes) where the fork has them, which takes the next image `priors` on.

    That is short of its row by `priors * (classes - 1)`: later images' classes come to lie among those of the first.
    """
    if not classes.size:
        return classes
    images, priors, _ = classes.shape
    first = across.number(ctx) * images
    place = (first + jnp.arange(images))[:, None] * priors + jnp.arange(classes[0].size)
    moved = jnp.zeros(across.devices(ctx) * classes.size, classes.dtype).at[place].max(classes.reshape(images, -1))
    all_images = jnp.minimum(across.total(ctx, moved), 1)
    return jax.lax.dynamic_slice_in_dim(all_images, first * classes[0].size, classes.size).reshape(classes.shape)


def _mined(
    p: Any, mining: int, predictions: Predictions, matches: Matches, found: Targets, with_truth: jax.Array
) -> Targets:
    """Count the hardest negatives besides the matches, or of both the hardest."""
    losses = class_terms(p, predictions.scores, found.classes)
    matched, free = found.matched[:, 0], ~found.matched[:, 0] & ~matches.ignored[:, 0]
    if mining == p.MAX_NEGATIVE:
        eligible = free & with_truth & (matches.overlap[:, 0] < p.neg_overlap)
        ratio = jnp.asarray(p.neg_pos_ratio, jnp.float32)
        count = (jnp.sum(matched, axis=1).astype(jnp.float32) * ratio).astype(jnp.int32)
        return found._replace(counted=matched | hardest(losses, eligible, count))
    located = location_terms(p, differences(predictions.locations, found))[:, 0]
    hard = hardest(losses + jnp.where(matched, located, 0), jnp.broadcast_to(with_truth, matched.shape), p.sample_size)
    return found._replace(matched=(matched & hard)[:, None], counted=hard & (matched | free))


def _divisor(ctx: Context, found: Targets) -> jax.Array | float:
    if normalization(ctx.layer.loss_param, "VALID") == "VALID":
        return across.count(ctx, found.matched)
    return loss_divisor(ctx, found.counted, "VALID", found.counted.shape[0])
