"""Targets of MultiBoxLoss: matches of priors and ground truth, hard negative mining, and the loss of each prior."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ...kernels.vma import vary_as
from ...schema.caffe_pb2 import PriorBoxParameter
from .. import cross_replica
from ..boxes import areas, decode_offsets, encode_offsets, non_max_suppression, overlaps
from ..context import Context
from ..loss import loss_divisor, normalization, straight_through
from ..smooth_l1 import huber, huber_slope
from ..softmax import LOG_FLT_MIN

_LEAST = 1e-6  # smaller overlaps count as 0
_LEAST_AREA = 1e-5  # nms_param excludes smaller boxes
_PAIRED = 2.0  # the score of a best pair, more than any overlap


class Truth(NamedTuple):
    """Ground truth: images and labels (count,), boxes (count, 4). Ignored rows have the image -1."""

    image: jax.Array
    label: jax.Array
    box: jax.Array

    @classmethod
    def parse(cls, rows: jax.Array, *, difficult: bool) -> Truth:
        """Read rows of (image, label, instance, box, difficult); difficult rows are ignored without `difficult`."""
        counts = (rows[:, 0] >= 0) & (difficult | (rows[:, 7] == 0))
        return cls(jnp.where(counts, rows[:, 0], -1).astype(jnp.int32), rows[:, 1].astype(jnp.int32), rows[:, 3:7])


class Matches(NamedTuple):
    """The ground truth that priors are matched to; each array is (images, groups, priors).

    Attributes:
        truth: the index of the ground truth, -1 for none.
        overlap: the largest overlap with ground truth of the image.
        ignored: True for priors left out because they reach beyond the image.
    """

    truth: jax.Array
    overlap: jax.Array
    ignored: jax.Array


def match(
    truth: Truth, boxes: jax.Array, images: jax.Array, *, labels: int | None, threshold: float | None, inside_only: bool
) -> Matches:
    """Match priors to the ground truth of each image: first the best pairs, then priors with a large enough overlap.

    Ground truth is one list for all images, so that arrays over it need no image axis and images can be sharded.

    Args:
        truth: the ground truth.
        boxes: the boxes of the priors that each ground truth is compared with, (count or 1, priors, 4).
        images: the images' numbers, (images,).
        labels: if not None, ground truth of each label 0 .. labels - 1 is matched separately, in a group for each
            label. If None, there is one group.
        threshold: priors that are not in a best pair are matched, too, if their overlap is at least this; None: never.
        inside_only: whether boxes that reach beyond the image are left out.
    """
    overlap = overlaps(truth.box[:, None], boxes)
    counts = jnp.broadcast_to((truth.image >= 0)[:, None], overlap.shape)
    beyond = jnp.broadcast_to(jnp.any((boxes < 0) | (boxes > 1), axis=-1), overlap.shape) & inside_only
    overlap = jnp.where((overlap > _LEAST) & counts & ~beyond, overlap, 0.0)
    alike = truth.image[:, None] == truth.image
    if labels is not None:
        alike &= truth.label[:, None] == truth.label
    paired = _best_pairs(overlap, alike)[:, None] == jnp.arange(overlap.shape[1])
    groups = jnp.zeros_like(truth.label) if labels is None else truth.label
    score = jnp.where(paired, _PAIRED, overlap)
    least = _PAIRED if threshold is None else min(threshold, _PAIRED)
    return _match_images((truth.image, groups, score, overlap, beyond & counts), images, labels or 1, least)


def _best_pairs(overlap: jax.Array, alike: jax.Array) -> jax.Array:
    """Return the prior that each ground truth is paired with, (count,), -1 for none.

    In each step the pair with the largest overlap is removed. Among equal pairs the pair with the first prior is
    removed first, then the pair with the first ground truth. Each step of the loop removes a pair from every image.

    Args:
        overlap: (count, priors).
        alike: (count, count), True for ground truths that compete for the same priors.
    """
    number, prior = jnp.arange(overlap.shape[0]), jnp.arange(overlap.shape[1])

    def has_pairs(carry: tuple[jax.Array, jax.Array]) -> jax.Array:
        return jnp.any(carry[1] > 0)

    def step(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        pairs, left = carry
        best, at = jnp.max(left, axis=1), jnp.argmax(left, axis=1)
        earlier = (at < at[:, None]) | ((at == at[:, None]) & (number < number[:, None]))
        before = (best > best[:, None]) | ((best == best[:, None]) & earlier)
        leaves = (best > 0) & ~jnp.any(before & alike, axis=1)
        taken = jnp.max(jnp.where(alike & leaves, at, -1), axis=1)
        left = jnp.where(leaves[:, None] | (taken[:, None] == prior), 0.0, left)
        return jnp.where(leaves, at, pairs), left

    none = jnp.full_like(jnp.argmax(overlap, axis=1), -1)
    return lax.while_loop(has_pairs, step, (vary_as(none, overlap, alike), vary_as(overlap, alike)))[0]


def _match_images(rows: tuple[jax.Array, ...], images: jax.Array, groups: int, least: float) -> Matches:
    """Return the matches of the priors of each image from the scores of all ground truth.

    Args:
        rows: for each ground truth its image and group, (count,) each; scores, overlaps and masks, (count, priors)
            each.
        images: the images' numbers, (images,).
        groups: the number of groups.
        least: the smallest score at which a prior is matched.
    """
    group = jnp.arange(groups)

    def step(carry: tuple[jax.Array, ...], row: tuple[jax.Array, ...]) -> tuple[tuple[jax.Array, ...], None]:
        best, which, largest, ignored = carry
        number, image, own_group, score, overlap, beyond = row
        here = (images == image)[:, None, None] & (group == own_group)[:, None]
        better = here & (score > best)
        return (
            jnp.where(better, score, best),
            jnp.where(better, number, which),
            jnp.where(here, jnp.maximum(largest, overlap), largest),
            ignored | (here & beyond),
        ), None

    _, _, score, _, _ = rows
    zeros = jnp.zeros((images.shape[0], groups, score.shape[1]), score.dtype)
    fresh = (zeros, jnp.full(zeros.shape, -1, jnp.int32), zeros, jnp.zeros(zeros.shape, bool))
    numbered = (jnp.arange(score.shape[0], dtype=jnp.int32), *rows)
    start: tuple[jax.Array, ...] = tuple(vary_as(x, images, *numbered) for x in fresh)
    (best, which, largest, ignored), _ = lax.scan(step, start, numbered)
    return Matches(jnp.where(best >= least, which, -1), largest, ignored)


def select_hardest(losses: jax.Array, eligible: jax.Array, count: Any) -> jax.Array:
    """Return the mask of the `count` eligible entries with the largest losses in each row; the first of equal losses.

    Args:
        losses: (rows, n).
        eligible: (rows, n), False for entries that may not be selected.
        count: (rows,) or a number: the entries to select; more than the eligible entries selects all of them.

    Returns:
        (rows, n), True for the selected entries.
    """
    held = jnp.where(eligible, losses, -jnp.inf)
    count = jnp.minimum(count, jnp.sum(eligible, axis=1))
    ranked = jnp.sort(held, axis=1)
    # the smallest selected loss
    last = jnp.take_along_axis(ranked, jnp.clip(held.shape[1] - count, 0, held.shape[1] - 1)[:, None], axis=1)
    above, equal = eligible & (held > last), eligible & (held == last)
    capacity = (count - jnp.sum(above, axis=1))[:, None]
    return (above | (equal & (jnp.cumsum(equal, axis=1) <= capacity))) & (count > 0)[:, None]


def location_terms(p: Any, difference: jax.Array) -> jax.Array:
    """Return the losses (...) of offset differences (..., 4): half the sum of squares (L2), or the sum of smooth L1."""
    each = 0.5 * jnp.square(difference) if p.loc_loss_type == p.L2 else huber(difference)
    return jnp.sum(each, axis=-1)


def location_slopes(p: Any, difference: jax.Array) -> jax.Array:
    """Return the derivatives of `location_terms`, (..., 4)."""
    return difference if p.loc_loss_type == p.L2 else huber_slope(difference)


def class_terms(p: Any, scores: jax.Array, classes: jax.Array) -> jax.Array:
    """Return the cross-entropies (...) of scores (..., classes), by sigmoid (LOGISTIC) or softmax.

    `classes`, (..., classes), is 1 at the right classes, else 0.
    """
    if p.conf_loss_type == p.LOGISTIC:
        return jnp.sum(jax.nn.softplus(scores) - scores * classes, axis=-1)
    picked = jnp.sum(jnp.where(classes > 0, jax.nn.log_softmax(scores), 0), axis=-1)
    return -straight_through(picked, jnp.maximum(picked, LOG_FLT_MIN))


def class_slopes(p: Any, scores: jax.Array, classes: jax.Array) -> jax.Array:
    """Return the derivatives of `class_terms`, (..., classes)."""
    probabilities = jax.nn.sigmoid(scores) if p.conf_loss_type == p.LOGISTIC else jax.nn.softmax(scores)
    return probabilities - classes


class Predictions(NamedTuple):
    """Predicted locations (images, priors, 1 or classes, 4) and scores (images, priors, classes)."""

    locations: jax.Array
    scores: jax.Array


class Targets(NamedTuple):
    """Targets of the predictions, and masks of the predictions that count in the loss.

    Attributes:
        matched: (images, groups, priors), True for matched priors. Groups are the classes if each class is matched
            separately; otherwise there is one group.
        labels: (images, groups, priors), the class of the ground truth.
        offsets: (images, groups, priors, 4), the encoded ground truth.
        right: (images, groups, priors, 4), True for offsets without a loss: with bp_inside, coordinates beyond the
            image.
        scale: (priors, 4) or 1, a factor of the differences in the loss.
        classes: (images, priors, classes), 1 at each prior's class or classes, else 0, or as in the fork the number of
            the background if each class has its own probability (LOGISTIC).
        counted: (images, priors), True if the class loss of the prior counts.
        divisor: the divisor of both losses.
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
    """Return the targets of all priors: match priors with ground truth, and mine hard negatives.

    Args:
        ctx: the layer.
        mining: the mining type.
        predictions: the predictions.
        prior: (2, priors, 4), boxes and variances.
        label: (count, 8), ground truth of all images.
    """
    p, (locations, scores) = ctx.param, predictions
    truth, classes = Truth.parse(label, difficult=p.use_difficult_gt), scores.shape[2]
    boxes, variances = prior[0], None if p.encode_variance_in_target else prior[1]
    code, images = PriorBoxParameter.CodeType.Name(p.code_type), jnp.arange(scores.shape[0])
    by_prior = p.use_prior_for_matching
    matches = match(
        truth,
        boxes[None] if by_prior else decode_offsets(code, _select_for_truth(truth, locations), boxes, variances),
        images,
        labels=None if by_prior or p.share_location else classes,
        threshold=p.overlap_threshold if p.match_type == p.PER_PREDICTION else None,
        inside_only=p.ignore_cross_boundary_bbox,
    )
    matched, number = matches.truth >= 0, jnp.maximum(matches.truth, 0)
    truth_labels = jnp.full_like(truth.label, p.background_label_id + 1) if p.map_object_to_agnostic else truth.label
    labels = truth_labels[number]
    offsets = jnp.where(matched[..., None], encode_offsets(code, truth.box[number], boxes, variances), 0.0)
    targets = Targets(
        matched,
        labels,
        offsets,
        jnp.zeros(offsets.shape, bool),
        1 / prior[1] if p.encode_variance_in_target else 1.0,
        _classes(ctx, mining, matched, labels, scores),
        jnp.ones(scores.shape[:2], bool),
    )
    if p.bp_inside:
        reached = boxes if by_prior else decode_offsets(code, select_locations(locations, targets), boxes, variances)
        targets = targets._replace(right=jnp.broadcast_to((reached < 0) | (reached > 1), offsets.shape))
    if mining != p.NONE:
        with_truth = jnp.any(images[:, None] == truth.image, axis=1)
        decoded = boxes[None] if p.use_prior_for_nms else decode_offsets(code, locations[:, :, 0], boxes, variances)
        targets = _count_mined(p, mining, predictions, matches, targets, with_truth[:, None], decoded)
    if p.conf_loss_type == p.LOGISTIC:  # the fork fills the targets of other classes with the background's number
        filled = jnp.where(targets.classes > 0, targets.classes, p.background_label_id)
        targets = targets._replace(classes=filled.astype(scores.dtype))
    wrong = (truth.image >= 0) & (
        (truth_labels < 0) | (truth_labels >= classes) | (truth.label == p.background_label_id)
    )
    return targets._replace(divisor=jnp.where(jnp.any(wrong), jnp.nan, _divisor(ctx, targets)))


def select_locations(locations: jax.Array, targets: Targets) -> jax.Array:
    """Return the predicted locations that the loss compares with targets, (images, groups, priors, 4).

    With one group and locations for each class, these are the locations of the matched class.
    """
    by_class = jnp.swapaxes(locations, 1, 2)
    groups, classes = targets.labels.shape[1], by_class.shape[1]
    if groups == classes:
        return by_class
    is_label = targets.labels == jnp.arange(classes)[:, None]
    return jnp.sum(jnp.where(is_label[..., None], by_class, 0), axis=1, keepdims=True)


def offset_differences(locations: jax.Array, targets: Targets) -> jax.Array:
    """Return predicted minus target offsets times `scale`, (images, groups, priors, 4); 0 where `right`."""
    return jnp.where(targets.right, 0, (select_locations(locations, targets) - targets.offsets) * targets.scale)


def _select_for_truth(truth: Truth, locations: jax.Array) -> jax.Array:
    """Return the predicted locations for the image and class of each ground truth, (count, priors, 4).

    Rows are selected by a product with a 0/1 matrix: with sharded images it needs one sum over devices instead of a
    gather.
    """
    image = (truth.image[:, None] == jnp.arange(locations.shape[0])).astype(locations.dtype)
    group = jnp.ones((truth.label.shape[0], 1), locations.dtype)
    if locations.shape[2] > 1:
        group = (truth.label[:, None] == jnp.arange(locations.shape[2])).astype(locations.dtype)
    return jnp.einsum("tn,tc,npcx->tpx", image, group, locations, precision="highest")


def _classes(ctx: Context, mining: int, matched: jax.Array, labels: jax.Array, scores: jax.Array) -> jax.Array:
    p, number = ctx.param, jnp.arange(scores.shape[2])
    if p.conf_loss_type == p.LOGISTIC and mining == p.NONE:  # an unmatched prior has no class, not even background
        of_match = matched[..., None] & (labels[..., None] == number)
        return _shift_classes(ctx, jnp.any(of_match, axis=1).astype(scores.dtype))
    label = jnp.max(jnp.where(matched, labels, -1), axis=1)
    label = jnp.where(jnp.any(matched, axis=1), label, p.background_label_id)
    return (label[..., None] == number).astype(scores.dtype)


def _shift_classes(ctx: Context, classes: jax.Array) -> jax.Array:
    """Return the masks of classes (images, priors, classes) at the positions where the fork writes them.

    The fork advances its pointer by `priors` numbers for each image, but an image has `priors * classes` numbers. So
    the classes of later images are written into the rows of the first images.
    """
    if not classes.size:
        return classes
    images, priors, _ = classes.shape
    first = cross_replica.axis_index(ctx) * images
    index = (first + jnp.arange(images))[:, None] * priors + jnp.arange(classes[0].size)
    moved = (
        jnp.zeros(cross_replica.axis_size(ctx) * classes.size, classes.dtype).at[index].max(classes.reshape(images, -1))
    )
    all_images = jnp.minimum(cross_replica.psum(ctx, moved), 1)
    return jax.lax.dynamic_slice_in_dim(all_images, first * classes[0].size, classes.size).reshape(classes.shape)


def _count_mined(
    p: Any,
    mining: int,
    predictions: Predictions,
    matches: Matches,
    targets: Targets,
    with_truth: jax.Array,
    boxes: jax.Array,
) -> Targets:
    """Return the targets with hard examples only.

    MAX_NEGATIVE counts the matches, and the hardest negatives of each image. HARD_EXAMPLE counts the hardest priors of
    each image, matched or not. With nms_param only boxes that no harder one overlaps are examples.

    Args:
        p: the settings.
        mining: the mining type.
        predictions: the predictions.
        matches: the matches of the priors, in one group.
        targets: the targets of all priors.
        with_truth: (images, 1), whether an image has ground truth.
        boxes: (images or 1, priors, 4), the boxes that nms_param compares.
    """
    losses = class_terms(p, predictions.scores, targets.classes)
    matched, free = targets.matched[:, 0], ~targets.matched[:, 0] & ~matches.ignored[:, 0]
    if mining == p.MAX_NEGATIVE:
        eligible = free & with_truth & (matches.overlap[:, 0] < p.neg_overlap)
        ratio = jnp.asarray(p.neg_pos_ratio, jnp.float32)
        count = (jnp.sum(matched, axis=1).astype(jnp.float32) * ratio).astype(jnp.int32)
        eligible &= _unsuppressed_mask(p, losses, eligible, boxes)
        return targets._replace(counted=matched | select_hardest(losses, eligible, count))
    located = location_terms(p, offset_differences(predictions.locations, targets))[:, 0]
    losses, eligible = losses + jnp.where(matched, located, 0), jnp.broadcast_to(with_truth, matched.shape)
    hard = select_hardest(losses, eligible & _unsuppressed_mask(p, losses, eligible, boxes), p.sample_size)
    return targets._replace(matched=(matched & hard)[:, None], counted=hard & (matched | free))


def _unsuppressed_mask(p: Any, losses: jax.Array, eligible: jax.Array, boxes: jax.Array) -> jax.Array:
    """Return the mask of eligible priors (images, priors) that no box with a larger loss overlaps too much.

    As in the fork, boxes with an area below 1e-5 are not eligible. `top_k` is 0 by default, and then no prior remains.
    """
    if not p.HasField("nms_param") or p.nms_param.nms_threshold <= 0:
        return eligible

    def image_mask(losses: jax.Array, eligible: jax.Array, boxes: jax.Array) -> jax.Array:
        order = jnp.argsort(jnp.where(eligible, -losses, jnp.inf), stable=True)
        order = order[: p.nms_param.top_k] if p.nms_param.top_k >= 0 else order
        valid = (eligible & (areas(boxes) >= _LEAST_AREA))[order]
        selected = non_max_suppression(boxes[order], valid, p.nms_param.nms_threshold)
        return jnp.zeros_like(eligible).at[order].set(selected)

    kept: jax.Array = jax.vmap(image_mask)(losses, eligible, jnp.broadcast_to(boxes, (*losses.shape, 4)))
    return kept


def _divisor(ctx: Context, targets: Targets) -> jax.Array | float:
    if normalization(ctx.layer.loss_param, "VALID") == "VALID":
        return cross_replica.global_count(ctx, targets.matched)
    return loss_divisor(ctx, targets.counted, "VALID", targets.counted.shape[0])
