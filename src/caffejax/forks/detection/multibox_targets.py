"""Targets of MultiBoxLoss: the matches of priors to ground truth, mined hard examples, and the losses of each prior."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ...core.layers import cross_replica
from ...core.layers.context import Context
from ...core.layers.loss_helpers import in_valid_rows, loss_divisor, normalization_mode, num_items, straight_through
from ...core.layers.softmax import LOG_FLT_MIN
from ...core.ops.vma import vary_as
from ...core.schema.caffe_pb2 import PriorBoxParameter
from ..rcnn.smooth_l1 import huber, huber_slope
from .boxes import areas, decode_offsets, encode_offsets, non_max_suppression, overlaps
from .refinement import Refinement

_MIN_OVERLAP = 1e-6  # smaller overlaps count as 0
_MIN_AREA = 1e-5  # nms_param excludes smaller boxes
_PAIR_SCORE = 2.0  # the score of a best pair, more than any overlap


class Truth(NamedTuple):
    """Ground truth of all images in one list.

    Attributes:
        image_index: (count,), int32, the image index, or -1 for rows that are ignored.
        label: (count,), int32.
        box: (count, 4), (x1, y1, x2, y2) as fractions of the image.
    """

    image_index: jax.Array
    label: jax.Array
    box: jax.Array

    @classmethod
    def parse(cls, rows: jax.Array, *, uses_difficult: bool) -> Truth:
        """Convert the rows of a label bottom, (count, 8), to ground truth.

        The columns are image, label, instance, x1, y1, x2, y2 and difficult. Difficult rows are ignored if
        `uses_difficult` is false.
        """
        is_used = (rows[:, 0] >= 0) & (uses_difficult | (rows[:, 7] == 0))
        return cls(jnp.where(is_used, rows[:, 0], -1).astype(jnp.int32), rows[:, 1].astype(jnp.int32), rows[:, 3:7])


class Matches(NamedTuple):
    """The ground truth that priors are matched to. Each array has shape (images, groups, priors).

    The groups are the labels if the ground truth of each label is matched separately; otherwise there is one group.

    Attributes:
        truth_index: the index of the matched ground truth, or -1 for unmatched priors.
        overlap: the prior's largest overlap with ground truth of the image and group.
        is_ignored: True for priors that are ignored because they extend beyond the image.
    """

    truth_index: jax.Array
    overlap: jax.Array
    is_ignored: jax.Array


def match(
    truth: Truth,
    boxes: jax.Array,
    image_indices: jax.Array,
    *,
    num_labels: int | None,
    threshold: float | None,
    inside_only: bool,
) -> Matches:
    """Match priors to the ground truth of each image: first the best pairs, then priors with a sufficient overlap.

    The ground truth of all images is one list, so arrays with an axis for ground truth have no axis for images. This
    allows the images to be sharded.

    Args:
        truth: the ground truth.
        boxes: (count or 1, priors, 4), the boxes of the priors; with `count`, a separate box for each ground truth.
        image_indices: the image indices, (images,).
        num_labels: if not None, the number of labels; the ground truth of each label is then matched separately, in one
            group per label. If None, there is one group.
        threshold: priors outside the best pairs are matched if their overlap is at least this. If None, they are never
            matched.
        inside_only: whether to ignore priors that extend beyond the image.
    """
    overlap = overlaps(truth.box[:, None], boxes)
    valid = jnp.broadcast_to((truth.image_index >= 0)[:, None], overlap.shape)
    is_outside = jnp.broadcast_to(jnp.any((boxes < 0) | (boxes > 1), axis=-1), overlap.shape) & inside_only
    overlap = jnp.where((overlap > _MIN_OVERLAP) & valid & ~is_outside, overlap, 0.0)
    is_competing = truth.image_index[:, None] == truth.image_index
    if num_labels is not None:
        is_competing &= truth.label[:, None] == truth.label
    is_pair = _match_best_pairs(overlap, is_competing)[:, None] == jnp.arange(overlap.shape[1])
    group_index = jnp.zeros_like(truth.label) if num_labels is None else truth.label
    score = jnp.where(is_pair, _PAIR_SCORE, overlap)
    min_score = _PAIR_SCORE if threshold is None else min(threshold, _PAIR_SCORE)
    return _match_images(
        (truth.image_index, group_index, score, overlap, is_outside & valid), image_indices, num_labels or 1, min_score
    )


def _match_best_pairs(overlap: jax.Array, is_competing: jax.Array) -> jax.Array:
    """Match ground truths to priors, best pairs first; return the index of each ground truth's prior, or -1, (count,).

    Among ground truths that compete for the same priors, each step matches the pair with the largest overlap. Its prior
    and its ground truth take no part in further steps. If overlaps are equal, the pair with the lower prior index comes
    first, then the pair with the lower ground-truth index.

    Args:
        overlap: (count, priors), the overlap of each ground truth with each prior.
        is_competing: (count, count), True for pairs of ground truths that compete for the same priors.
    """
    truth_index, prior_index = jnp.arange(overlap.shape[0]), jnp.arange(overlap.shape[1])

    def has_pairs(carry: tuple[jax.Array, jax.Array]) -> jax.Array:
        return jnp.any(carry[1] > 0)

    def step(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        paired_priors, remaining_overlap = carry
        largest_overlap, best_prior = jnp.max(remaining_overlap, axis=1), jnp.argmax(remaining_overlap, axis=1)
        is_earlier = (best_prior < best_prior[:, None]) | (
            (best_prior == best_prior[:, None]) & (truth_index < truth_index[:, None])
        )
        ranks_higher = (largest_overlap > largest_overlap[:, None]) | (
            (largest_overlap == largest_overlap[:, None]) & is_earlier
        )
        is_removed = (largest_overlap > 0) & ~jnp.any(ranks_higher & is_competing, axis=1)
        removed_prior = jnp.max(jnp.where(is_competing & is_removed, best_prior, -1), axis=1)
        remaining_overlap = jnp.where(
            is_removed[:, None] | (removed_prior[:, None] == prior_index), 0.0, remaining_overlap
        )
        return jnp.where(is_removed, best_prior, paired_priors), remaining_overlap

    no_priors = jnp.full_like(jnp.argmax(overlap, axis=1), -1)
    return lax.while_loop(has_pairs, step, (vary_as(no_priors, overlap, is_competing), vary_as(overlap, is_competing)))[
        0
    ]


def _match_images(rows: tuple[jax.Array, ...], image_indices: jax.Array, num_groups: int, min_score: float) -> Matches:
    """Match each prior of each image and group to the ground truth with the best score, or to none.

    Args:
        rows: five arrays with one row for each ground truth: its image index, (count,); its group, (count,); its score
            for each prior, (count, priors); its overlap with each prior, (count, priors); and whether each prior is
            ignored because it extends beyond the image, (count, priors).
        image_indices: the image indices, (images,).
        num_groups: the number of groups; priors are matched separately for each group.
        min_score: the smallest score at which a prior is matched.

    Returns:
        The matches; each of their arrays has shape (images, groups, priors).
    """
    group_ids = jnp.arange(num_groups)

    def step(carry: tuple[jax.Array, ...], row: tuple[jax.Array, ...]) -> tuple[tuple[jax.Array, ...], None]:
        best_score, best_truth, largest_overlap, is_ignored = carry
        truth_index, image_index, truth_group, score, overlap, is_outside = row
        is_group = (image_indices == image_index)[:, None, None] & (group_ids == truth_group)[:, None]
        is_better = is_group & (score > best_score)
        return (
            jnp.where(is_better, score, best_score),
            jnp.where(is_better, truth_index, best_truth),
            jnp.where(is_group, jnp.maximum(largest_overlap, overlap), largest_overlap),
            is_ignored | (is_group & is_outside),
        ), None

    _, _, score, _, _ = rows
    zeros = jnp.zeros((image_indices.shape[0], num_groups, score.shape[1]), score.dtype)
    initial = (zeros, jnp.full(zeros.shape, -1, jnp.int32), zeros, jnp.zeros(zeros.shape, bool))
    indexed_rows = (jnp.arange(score.shape[0], dtype=jnp.int32), *rows)
    start: tuple[jax.Array, ...] = tuple(vary_as(x, image_indices, *indexed_rows) for x in initial)
    (best_score, best_truth, largest_overlap, is_ignored), _ = lax.scan(step, start, indexed_rows)
    return Matches(jnp.where(best_score >= min_score, best_truth, -1), largest_overlap, is_ignored)


def select_hardest(losses: jax.Array, eligible: jax.Array, count: Any) -> jax.Array:
    """Return the mask (rows, n) of the `count` eligible entries with the largest losses in each row.

    Among equal losses, the first are selected.

    Args:
        losses: (rows, n).
        eligible: (rows, n), False for entries that must not be selected.
        count: (rows,) or a number: how many entries to select. If there are fewer eligible entries, all of them are
            selected.

    Returns:
        (rows, n), True for the selected entries.
    """
    eligible_losses = jnp.where(eligible, losses, -jnp.inf)
    count = jnp.minimum(count, jnp.sum(eligible, axis=1))
    sorted_losses = jnp.sort(eligible_losses, axis=1)
    # the smallest selected loss
    smallest_loss = jnp.take_along_axis(
        sorted_losses, jnp.clip(eligible_losses.shape[1] - count, 0, eligible_losses.shape[1] - 1)[:, None], axis=1
    )
    is_larger, is_equal = eligible & (eligible_losses > smallest_loss), eligible & (eligible_losses == smallest_loss)
    capacity = (count - jnp.sum(is_larger, axis=1))[:, None]
    return (is_larger | (is_equal & (jnp.cumsum(is_equal, axis=1) <= capacity))) & (count > 0)[:, None]


def location_losses(p: Any, difference: jax.Array) -> jax.Array:
    """Return the loss (...) of differences (..., 4): half the sum of their squares (L2), or the sum of smooth L1."""
    losses = 0.5 * jnp.square(difference) if p.loc_loss_type == p.L2 else huber(difference)
    return jnp.sum(losses, axis=-1)


def location_gradients(p: Any, difference: jax.Array) -> jax.Array:
    """Return the derivatives (..., 4) of `location_losses` with respect to the differences."""
    return difference if p.loc_loss_type == p.L2 else huber_slope(difference)


def class_losses(p: Any, scores: jax.Array, class_targets: jax.Array) -> jax.Array:
    """Return the cross-entropy (...) of scores (..., classes), after a sigmoid (LOGISTIC) or a softmax.

    `class_targets`, (..., classes), is 1 for target classes and 0 for other classes.
    """
    if p.conf_loss_type == p.LOGISTIC:
        return jnp.sum(jax.nn.softplus(scores) - scores * class_targets, axis=-1)
    log_probability = jnp.sum(jnp.where(class_targets > 0, jax.nn.log_softmax(scores), 0), axis=-1)
    return -straight_through(log_probability, jnp.maximum(log_probability, LOG_FLT_MIN))


def class_gradients(p: Any, scores: jax.Array, class_targets: jax.Array) -> jax.Array:
    """Return the derivatives (..., classes) of `class_losses` with respect to the scores."""
    probabilities = jax.nn.sigmoid(scores) if p.conf_loss_type == p.LOGISTIC else jax.nn.softmax(scores)
    return probabilities - class_targets


class Predictions(NamedTuple):
    """Predicted locations, (images, priors, 1 or classes, 4), and class scores, (images, priors, classes)."""

    locations: jax.Array
    scores: jax.Array


class Targets(NamedTuple):
    """Targets of the predictions, and masks of the predictions that contribute to the loss.

    Attributes:
        is_matched: (images, groups, priors), True for matched priors. If each class is matched separately, the groups
            are the classes; otherwise there is one group.
        labels: (images, groups, priors), the class of the matched ground truth.
        offsets: (images, groups, priors, 4), the matched box, encoded as offsets from the prior.
        ignored_offsets: (images, groups, priors, 4), True for offsets that have no loss. With bp_inside, these are the
            coordinates that lie beyond the image.
        scale: (priors, 4) or 1, the factor by which the loss multiplies the differences.
        class_targets: (images, priors, classes), 1 for each prior's class or classes, 0 for other classes. With
            LOGISTIC, the value for other classes is the index of the background, as in the fork.
        has_class_loss: (images, priors), True for priors that contribute to the class loss.
        divisor: the divisor of the loss of locations and of the loss of classes.
    """

    is_matched: jax.Array
    labels: jax.Array
    offsets: jax.Array
    ignored_offsets: jax.Array
    scale: Any
    class_targets: jax.Array
    has_class_loss: jax.Array
    divisor: Any = 1.0


def find_targets(
    ctx: Context,
    mining_type: int,
    predictions: Predictions,
    prior: jax.Array,
    label: jax.Array,
    refinement: Refinement,
) -> Targets:
    """Return the targets of all priors, after matching priors to ground truth and mining hard examples.

    Args:
        ctx: the layer.
        mining_type: the value of the setting mining_type.
        predictions: the predictions.
        prior: (2, priors, 4), boxes and variances.
        label: (count, 8), ground truth of all images.
        refinement: what RefineDet's further bottoms hold. Refined priors replace the priors in matching and in the
            encoding of targets; nms_param, predicted boxes that are matched, and the losses that HARD_EXAMPLE ranks
            are of the priors themselves, as in the fork.
    """
    p, (locations, scores) = ctx.param, predictions
    truth, num_classes = Truth.parse(label, uses_difficult=p.use_difficult_gt), scores.shape[2]
    if num_classes == 2 and (p.HasField("objectness_score") or refinement.objectness is not None):
        truth = truth._replace(label=jnp.minimum(truth.label, 1))  # any object
    boxes, variances = prior[0], None if p.encode_variance_in_target else prior[1]
    code_type, image_indices = PriorBoxParameter.CodeType.Name(p.code_type), jnp.arange(scores.shape[0])
    matches_priors = p.use_prior_for_matching
    anchors, candidates = boxes, boxes[None]
    if refinement.offsets is not None:
        refined = refinement.refine_priors(code_type, boxes, variances)
        anchors, candidates = refined[:, None], _select_truth_locations(truth, refined[:, :, None])
    matches = match(
        truth,
        candidates
        if matches_priors
        else decode_offsets(code_type, _select_truth_locations(truth, locations), boxes, variances),
        image_indices,
        num_labels=None if matches_priors or p.share_location else num_classes,
        threshold=p.overlap_threshold if p.match_type == p.PER_PREDICTION else None,
        inside_only=p.ignore_cross_boundary_bbox,
    )
    is_matched, truth_index = matches.truth_index >= 0, jnp.maximum(matches.truth_index, 0)
    truth_labels = jnp.full_like(truth.label, p.background_label_id + 1) if p.map_object_to_agnostic else truth.label
    labels = truth_labels[truth_index]
    targets = Targets(
        is_matched,
        labels,
        jnp.zeros((*is_matched.shape, 4), truth.box.dtype),
        jnp.zeros((*is_matched.shape, 4), bool),
        1 / prior[1] if p.encode_variance_in_target else 1.0,
        _make_class_targets(ctx, mining_type, is_matched, labels, scores),
        in_valid_rows(ctx, jnp.ones(scores.shape[:2], bool)),
    )

    def set_offsets(targets: Targets, anchors: jax.Array) -> Targets:
        offsets = encode_offsets(code_type, truth.box[truth_index], anchors, variances)
        targets = targets._replace(offsets=jnp.where(is_matched[..., None], offsets, 0.0))
        if not p.bp_inside:
            return targets
        target_boxes = (
            anchors
            if matches_priors
            else decode_offsets(code_type, select_locations(locations, targets), anchors, variances)
        )
        ignored_offsets = jnp.broadcast_to((target_boxes < 0) | (target_boxes > 1), offsets.shape)
        return targets._replace(ignored_offsets=ignored_offsets)

    targets = set_offsets(targets, anchors)
    if mining_type != p.NONE:
        has_truth = jnp.any(image_indices[:, None] == truth.image_index, axis=1)
        decoded_boxes = (
            boxes[None] if p.use_prior_for_nms else decode_offsets(code_type, locations[:, :, 0], boxes, variances)
        )
        losses = class_losses(p, scores, targets.class_targets)
        if mining_type == p.HARD_EXAMPLE:
            unrefined_targets = targets if refinement.offsets is None else set_offsets(targets, boxes)
            matched_losses = location_losses(p, offset_differences(locations, unrefined_targets))[:, 0]
            losses += jnp.where(is_matched[:, 0], matched_losses, 0)
        may_be_hard = jnp.broadcast_to(has_truth[:, None] & refinement.has_object(p.objectness_score), losses.shape)
        targets = _mine_examples(p, mining_type, losses, matches, targets, may_be_hard, decoded_boxes)
    if p.conf_loss_type == p.LOGISTIC:  # the fork fills the targets of other classes with the index of the background
        filled_targets = jnp.where(targets.class_targets > 0, targets.class_targets, p.background_label_id)
        targets = targets._replace(class_targets=filled_targets.astype(scores.dtype))
    is_invalid = (truth.image_index >= 0) & (
        (truth_labels < 0) | (truth_labels >= num_classes) | (truth.label == p.background_label_id)
    )
    return targets._replace(divisor=jnp.where(jnp.any(is_invalid), jnp.nan, _compute_divisor(ctx, targets)))


def select_locations(locations: jax.Array, targets: Targets) -> jax.Array:
    """Return the predicted locations that the loss compares with the targets, (images, groups, priors, 4).

    If there are locations for each class but only one group, the locations of the matched class are selected.
    """
    class_locations = jnp.swapaxes(locations, 1, 2)
    num_groups, num_classes = targets.labels.shape[1], class_locations.shape[1]
    if num_groups == num_classes:
        return class_locations
    is_label = targets.labels == jnp.arange(num_classes)[:, None]
    return jnp.sum(jnp.where(is_label[..., None], class_locations, 0), axis=1, keepdims=True)


def offset_differences(locations: jax.Array, targets: Targets) -> jax.Array:
    """Return how far predictions are off: (predicted - target) * scale, (images, groups, priors, 4), 0 if ignored."""
    return jnp.where(
        targets.ignored_offsets, 0, (select_locations(locations, targets) - targets.offsets) * targets.scale
    )


def _select_truth_locations(truth: Truth, locations: jax.Array) -> jax.Array:
    """Return the predicted locations for the image and class of each ground truth, (count, priors, 4).

    Rows are selected by a product with a 0/1 matrix instead of indexing. If images are sharded, the product needs only
    one sum over devices, whereas indexing would need a gather.
    """
    image_one_hot = (truth.image_index[:, None] == jnp.arange(locations.shape[0])).astype(locations.dtype)
    group_one_hot = jnp.ones((truth.label.shape[0], 1), locations.dtype)
    if locations.shape[2] > 1:
        group_one_hot = (truth.label[:, None] == jnp.arange(locations.shape[2])).astype(locations.dtype)
    return jnp.einsum("tn,tc,npcx->tpx", image_one_hot, group_one_hot, locations, precision="highest")


def _make_class_targets(
    ctx: Context, mining_type: int, is_matched: jax.Array, labels: jax.Array, scores: jax.Array
) -> jax.Array:
    p, class_ids = ctx.param, jnp.arange(scores.shape[2])
    if (
        p.conf_loss_type == p.LOGISTIC and mining_type == p.NONE
    ):  # an unmatched prior has no class, and is not background either
        is_matched_class = is_matched[..., None] & (labels[..., None] == class_ids)
        return _shift_class_targets(ctx, jnp.any(is_matched_class, axis=1).astype(scores.dtype))
    label = jnp.max(jnp.where(is_matched, labels, -1), axis=1)
    label = jnp.where(jnp.any(is_matched, axis=1), label, p.background_label_id)
    return (label[..., None] == class_ids).astype(scores.dtype)


def _shift_class_targets(ctx: Context, class_targets: jax.Array) -> jax.Array:
    """Return `class_targets`, (images, priors, classes), with its ones at the positions to which the fork writes them.

    For each image, the fork advances its pointer by priors instead of priors * classes. So it writes the classes of
    later images into the rows of the first images.
    """
    if not class_targets.size:
        return class_targets
    num_images, num_priors, _ = class_targets.shape
    first_image = cross_replica.axis_index(ctx) * num_images
    index = (first_image + jnp.arange(num_images))[:, None] * num_priors + jnp.arange(class_targets[0].size)
    shifted_targets = (
        jnp.zeros(cross_replica.axis_size(ctx) * class_targets.size, class_targets.dtype)
        .at[index]
        .max(class_targets.reshape(num_images, -1))
    )
    all_images = jnp.minimum(cross_replica.psum(ctx, shifted_targets), 1)
    return jax.lax.dynamic_slice_in_dim(all_images, first_image * class_targets[0].size, class_targets.size).reshape(
        class_targets.shape
    )


def _mine_examples(
    p: Any,
    mining_type: int,
    losses: jax.Array,
    matches: Matches,
    targets: Targets,
    may_be_hard: jax.Array,
    boxes: jax.Array,
) -> Targets:
    """Return the targets, restricted to hard examples.

    MAX_NEGATIVE selects all matched priors, and the hardest negatives of each image. HARD_EXAMPLE selects the hardest
    priors of each image, whether they are matched or not. With nms_param, a prior is excluded if it overlaps a harder
    prior too much.

    Args:
        p: the settings.
        mining_type: the value of the setting mining_type.
        losses: (images, priors), the loss of each prior.
        matches: the matches of the priors, in one group.
        targets: the targets of all priors.
        may_be_hard: (images, priors), False for priors of images without ground truth, and for those that RefineDet's
            objectness_score excludes.
        boxes: (images or 1, priors, 4), the boxes that nms_param compares.
    """
    is_matched, is_unmatched = targets.is_matched[:, 0], ~targets.is_matched[:, 0] & ~matches.is_ignored[:, 0]
    losses = jnp.where(jnp.isnan(losses), jnp.inf, losses)  # the hardest, since NaN should come out of the loss
    if mining_type == p.MAX_NEGATIVE:
        eligible = is_unmatched & may_be_hard & (matches.overlap[:, 0] < p.neg_overlap)
        ratio = jnp.asarray(p.neg_pos_ratio, jnp.float32)
        count = (jnp.sum(is_matched, axis=1).astype(jnp.float32) * ratio).astype(jnp.int32)
        eligible &= _mask_unsuppressed(p, losses, eligible, boxes)
        return targets._replace(has_class_loss=is_matched | select_hardest(losses, eligible, count))
    eligible = may_be_hard & _mask_unsuppressed(p, losses, may_be_hard, boxes)
    is_hard = select_hardest(losses, eligible, p.sample_size)
    return targets._replace(
        is_matched=(is_matched & is_hard)[:, None], has_class_loss=is_hard & (is_matched | is_unmatched)
    )


def _mask_unsuppressed(p: Any, losses: jax.Array, eligible: jax.Array, boxes: jax.Array) -> jax.Array:
    """Return the mask (images, priors) of eligible priors that remain after the non-maximum suppression of nms_param.

    A prior is suppressed if its box overlaps the box of a prior with a larger loss by more than nms_threshold. As in
    the fork, boxes with an area below 1e-5 are excluded, and so are all priors if `top_k` has its default of 0.
    """
    if not p.HasField("nms_param") or p.nms_param.nms_threshold <= 0:
        return eligible

    def mask_image(losses: jax.Array, eligible: jax.Array, boxes: jax.Array) -> jax.Array:
        order = jnp.argsort(jnp.where(eligible, -losses, jnp.inf), stable=True)
        order = order[: p.nms_param.top_k] if p.nms_param.top_k >= 0 else order
        valid = (eligible & ~(areas(boxes) < _MIN_AREA))[order]  # boxes of NaN stay, as in the fork
        selected = non_max_suppression(boxes[order], valid, p.nms_param.nms_threshold)
        return jnp.zeros_like(eligible).at[order].set(selected)

    mask: jax.Array = jax.vmap(mask_image)(losses, eligible, jnp.broadcast_to(boxes, (*losses.shape, 4)))
    return mask


def _compute_divisor(ctx: Context, targets: Targets) -> jax.Array | float:
    if normalization_mode(ctx.layer.loss_param, "VALID") == "VALID":
        return cross_replica.global_count(ctx, targets.is_matched)
    return loss_divisor(ctx, targets.has_class_loss, "VALID", num_items(ctx, targets.has_class_loss.shape[:1]))
