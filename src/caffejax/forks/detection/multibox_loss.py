"""MultiBoxLoss: the loss of boxes and classes predicted for priors."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import require
from ...core.layers.context import Context, LayerDefinition
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.layers.types import Indices, LayerType, Traced
from ...core.schema.caffe_pb2 import MultiBoxLossParameter
from .multibox_targets import (
    Predictions,
    Targets,
    class_gradients,
    class_losses,
    find_targets,
    location_gradients,
    location_losses,
    offset_differences,
    select_locations,
)
from .prior_box import read_predictions
from .refinement import Refinement

IncludedLosses = tuple[bool, bool]  # whether to include the losses of (locations, classes)


def sample_truth(
    p: MultiBoxLossParameter, random: Any, loc: Any, conf: Any, prior: Any, label: Any, *_refinement: Any
) -> np.ndarray:
    """Return random ground truth with the shape of `label`, for checks of gradients.

    The boxes are inside the images, are not difficult, and have any label except background.
    """
    num_boxes = math.prod(label.shape) // 8
    rows = np.zeros((num_boxes, 8))
    classes = np.array([c for c in range(p.num_classes) if c != p.background_label_id] or [0])
    rows[:, 0] = np.arange(num_boxes) % max(conf.shape[0], 1)
    rows[:, 1] = classes[random.integers(len(classes), size=(num_boxes,))]
    rows[:, 3:5] = random.uniform(0, 0.6, size=(num_boxes, 2))
    rows[:, 5:7] = rows[:, 3:5] + random.uniform(0.1, 0.4, size=(num_boxes, 2))
    return rows.reshape(label.shape)


@register(
    "MultiBoxLoss",
    bottoms=(4, 6),
    param="multibox_loss_param",
    loss=True,
    per_layer=True,
    indices=Indices((2, 3), sample=sample_truth),
    exempt_from_force_backward=(2, 3, 4, 5),
    deviation="Below FLT_MIN the probability is clamped, which the gradient ignores.",
    counts_rows=True,
    row_bottoms=(0, 1, 4, 5),
    origin="SSD",
    restrictions="NVIDIA's ignore_difficult_gt is refused. With RefineDet's bottoms, so are share_location: false and "
    "mining with nms_param, with which RefineDet fails.",
)
def make_multibox_loss(p: MultiBoxLossParameter, definition: LayerDefinition, *, ctx: Context) -> LayerType:
    """Compute the loss of the boxes and classes predicted for priors, with hard negative mining, as a scalar.

    Bottoms: locations (images, priors * 4), or (images, priors * classes * 4) if share_location is false; confidences
    (images, priors * classes); priors (the default boxes of PriorBox) and their variances (1, 2, priors * 4); ground
    truth (1, 1, boxes, 8) with rows (image, label, instance, x1, y1, x2, y2, difficult). Ground truth with image -1 is
    ignored. The loss is loc_weight times the loss of the locations, plus the loss of the confidences. It is divided by
    the number of matched priors, unless loss_param sets a different normalization. The loss of the locations or of the
    confidences is omitted if `propagate_down` is false for this bottom. With LOGISTIC and without mining, the fork
    reads the classes of all images except the first from wrong rows, and so does this layer.

    RefineDet adds two bottoms of its first stage: the probabilities of background and object (images, priors * 2), and
    offsets (images, priors * 4), which move the priors before they are matched and before targets are encoded. Priors
    whose probability of an object is below objectness_score are not mined. They get no gradient. With num_classes 2,
    and such a bottom or with objectness_score set, labels above 1 mean class 1.
    """
    propagate_flags = list(definition.layer.propagate_down)[:2]
    included_losses = (propagate_flags[:1] != [False], propagate_flags[1:] != [False])
    gradient = replace(
        ctx.type.gradient,
        backward=partial(multibox_loss_backward, included_losses=included_losses),
        overrides_autodiff=p.encode_variance_in_target,  # as in the fork, the gradient ignores variances
    )
    return replace(
        ctx.type, implementation=Traced(partial(multibox_loss, included_losses=included_losses)), gradient=gradient
    )


def multibox_loss(
    p: MultiBoxLossParameter,
    loc: jax.Array,
    conf: jax.Array,
    prior: jax.Array,
    label: jax.Array,
    *refinement: jax.Array,
    included_losses: IncludedLosses,
    ctx: Context,
) -> jax.Array:
    """Return (loc_weight * loss of the locations + loss of the classes) / divisor, as a scalar.

    Args:
        p: the settings.
        loc, conf, prior, label, refinement: the bottoms.
        included_losses: two bools: whether to include the loss of the locations, and whether to include the loss of the
            classes.
        ctx: the layer.
    """
    (locations, scores), targets = _read_predictions_and_targets(ctx, loc, conf, prior, label, *refinement)
    loss = jnp.zeros((), scores.dtype)
    if included_losses[0]:
        terms = location_losses(p, offset_differences(locations, targets))
        loss += p.loc_weight * jnp.sum(jnp.where(targets.is_matched, terms, 0))
    if included_losses[1]:
        loss += jnp.sum(jnp.where(targets.has_class_loss, class_losses(p, scores, targets.class_targets), 0))
    return loss / targets.divisor


@make_multibox_loss.backward
def multibox_loss_backward(
    p: MultiBoxLossParameter,
    loc: jax.Array,
    conf: jax.Array,
    prior: jax.Array,
    label: jax.Array,
    *refinement: jax.Array,
    y: jax.Array,
    dy: jax.Array,
    included_losses: IncludedLosses,
    ctx: Context,
) -> tuple[jax.Array | None, ...]:
    (locations, scores), targets = _read_predictions_and_targets(ctx, loc, conf, prior, label, *refinement)
    factor = dy / targets.divisor
    d_loc = d_conf = None
    if included_losses[0]:
        has_loss = targets.is_matched[..., None] & ~targets.ignored_offsets
        slopes = p.loc_weight * jnp.where(has_loss, location_gradients(p, offset_differences(locations, targets)), 0)
        transpose = jax.linear_transpose(lambda x: select_locations(x, targets), locations)
        d_loc = (factor * transpose(slopes)[0]).reshape(loc.shape).astype(loc.dtype)
    if included_losses[1]:
        slopes = jnp.where(targets.has_class_loss[..., None], class_gradients(p, scores, targets.class_targets), 0)
        d_conf = (factor * slopes).reshape(conf.shape).astype(conf.dtype)
    return d_loc, d_conf, None, None, *(None for _ in refinement)


def _read_predictions_and_targets(
    ctx: Context, loc: jax.Array, conf: jax.Array, prior: jax.Array, label: jax.Array, *refinement: jax.Array
) -> tuple[Predictions, Targets]:
    mining_type = _check_settings(ctx.param, is_refined=bool(refinement))
    p = ctx.param
    require(
        len(label.shape) >= 2 and label.shape[-1] == 8,
        f"bottom 3 must hold ground truth in rows of 8, (1, 1, boxes, 8), not have shape {label.shape}",
    )
    num_groups = 1 if p.share_location else p.num_classes
    locations, scores, priors = read_predictions(loc, conf, prior, num_groups, p.num_classes)
    predictions = Predictions(locations, scores)
    constant_predictions = Predictions(*map(jax.lax.stop_gradient, predictions))
    truth = promote(label).reshape(-1, 8)
    if 0 in label.shape or 0 in conf.shape:
        truth = jnp.full((1, 8), -1, truth.dtype)  # a placeholder row that belongs to no image
    priors, truth = jax.lax.stop_gradient((priors, truth))
    first_stage = Refinement.parse(jax.lax.stop_gradient(refinement), 4, conf.shape[0], priors.shape[1])
    return predictions, find_targets(ctx, mining_type, constant_predictions, priors, truth, first_stage)


def _check_settings(p: Any, *, is_refined: bool) -> int:
    """Return mining_type, or NONE if do_neg_mining is false, after checking that the settings are valid."""
    background = p.background_label_id
    require(p.num_classes > 0, f"multibox_loss_param needs num_classes above 0, not {p.num_classes}")
    require(
        not p.HasField("ignore_difficult_gt"), "multibox_loss_param.ignore_difficult_gt is not supported; remove it"
    )
    require(
        background < p.num_classes or p.conf_loss_type == p.LOGISTIC,
        f"background_label_id {background} is not one of the {p.num_classes} classes",
    )
    require(
        not p.map_object_to_agnostic or p.num_classes == 2,
        f"map_object_to_agnostic needs num_classes: 2, not {p.num_classes}",
    )
    mining_type = p.mining_type
    if p.HasField("do_neg_mining") and p.do_neg_mining != (mining_type != p.NONE):
        require(not p.HasField("mining_type"), "do_neg_mining contradicts mining_type; remove do_neg_mining")
        mining_type = p.NONE
    if mining_type != p.NONE:
        require(p.share_location, "mining needs share_location: true; otherwise set mining_type: NONE")
        require(p.neg_pos_ratio > 0, f"neg_pos_ratio must be positive: {p.neg_pos_ratio}")
        require(p.sample_size > 0, f"sample_size must be positive: {p.sample_size}")
    if is_refined:
        require(p.share_location, "RefineDet's bottoms need share_location: true")
        require(
            mining_type == p.NONE or not (p.HasField("nms_param") and p.nms_param.nms_threshold > 0),
            "RefineDet's bottoms and nms_param cannot be combined; remove nms_param",
        )
    return int(mining_type)
