"""Built-in Python layers of py-faster-rcnn that make training targets: AnchorTargetLayer and ProposalTargetLayer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...base.errors import require
from ...core.layers.bucketed_random import bucketed_draw, fold_in
from ...core.layers.context import Context, Shape
from ...core.layers.declaration import declare
from ...core.layers.dtype_policy import promote
from ...core.layers.param_str import parse_param_str
from ...core.layers.row_padding import PaddedRows, valid_rows, without_count
from ...core.schema.caffe_pb2 import PythonParameter
from ..detection.boxes import overlaps
from .roi_utils import has_rows_of_five
from .rpn_proposals import (
    ANCHOR_SETTINGS,
    encode_boxes,
    make_base_anchors_from_settings,
    require_one_image,
    shift_anchors,
)

_ANCHOR_DEFAULTS: dict[str, Any] = {
    **ANCHOR_SETTINGS,
    "allowed_border": 0,
    "rpn_batchsize": 256,
    "rpn_fg_fraction": 0.5,
    "rpn_positive_overlap": 0.7,
    "rpn_negative_overlap": 0.3,
    "rpn_clobber_positives": False,
    "rpn_bbox_inside_weights": (1.0, 1.0, 1.0, 1.0),
    "rpn_positive_weight": -1.0,
}


@declare(
    "Python",
    bottoms=(3, 4),
    tops=4,
    param="python_param",
    in_place=False,
    stops_gradient=True,
    counts_rows=True,
    row_bottoms=(1,),
    takes_one_image=True,
    origin="py-faster-rcnn",
    restrictions="One image, as in the original. A ground-truth box that overlaps no anchor does not make any "
    "anchor positive.",
)
def anchor_target_layer(
    p: PythonParameter, scores: jax.Array, truth: jax.Array, im_info: jax.Array, *_image: jax.Array, key: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Label anchors, and compute their box targets, to train a region proposal network (RPN).

    Bottoms: scores (1, channels, H, W), whose values are not used; ground-truth boxes (M, 5) with rows x1, y1, x2, y2,
    class, where rows with class 0 are padding; im_info, which begins with height and width of the image. Tops: labels
    (1, 1, A * H, W), then targets, inside weights and outside weights, (1, 4A, H, W) each, where A is the number of
    anchors of a cell. Anchors are boxes of fixed sizes at each cell of the map. A label is 1 (positive), 0 (negative)
    or -1 (ignored). In SmoothL1Loss, inside weights multiply the differences from the targets, and outside weights
    multiply the losses.

    param_str contains pvanet's `ratios`, SSH's `base_size`, and settings of py-faster-rcnn's cfg in lower case.
    """
    s = parse_param_str(p.param_str, _ANCHOR_DEFAULTS)
    return make_anchor_targets(s, make_base_anchors_from_settings(s), scores, truth, im_info, key)


def make_anchor_targets(
    s: dict[str, Any], base_anchors: np.ndarray, scores: jax.Array, truth: jax.Array, im_info: jax.Array, key: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return the tops of `anchor_target_layer`.

    Args:
        s: the settings.
        base_anchors: (A, 4), the anchors of the first cell.
        scores, truth, im_info: the bottoms.
        key: the random key.
    """
    require(
        len(s["rpn_bbox_inside_weights"]) == 4,
        f"rpn_bbox_inside_weights must be four numbers, not {len(s['rpn_bbox_inside_weights'])}",
    )
    require(
        len(scores.shape) == 4 and scores.shape[0] == 1,
        f"bottom 0 must be 1 x C x H x W, for one image, not {scores.shape}",
    )
    require_truth(truth)
    require_one_image(im_info, 2)
    height, width = scores.shape[2:]
    shifted_anchors = shift_anchors(base_anchors, (height, width), s["feat_stride"])
    boxes = shifted_anchors.reshape(-1, 4)
    truth, image_size = (lax.stop_gradient(promote(x)) for x in (truth.reshape(truth.shape[0], 5), im_info.ravel()))
    labels, matched_boxes = _label_anchors(s, boxes, truth, image_size)
    sampled_labels = _sample_labels(labels, s["rpn_batchsize"], s["rpn_fg_fraction"], key)
    inside_weights = jnp.where(
        (sampled_labels == 1)[:, None], jnp.asarray(s["rpn_bbox_inside_weights"], jnp.float32), 0.0
    )
    targets = jnp.where(
        _is_inside(boxes, image_size, s["allowed_border"])[:, None], encode_boxes(boxes, matched_boxes), 0.0
    )
    outside_weights = jnp.broadcast_to(
        _compute_outside_weights(sampled_labels, s["rpn_positive_weight"])[:, None], targets.shape
    )

    def to_maps(values: jax.Array) -> jax.Array:  # (H * W * A, n) to (1, A * n, H, W)
        return jnp.transpose(values.reshape(height, width, -1), (2, 0, 1))[None]

    return (
        to_maps(sampled_labels[:, None]).reshape(1, 1, -1, width),
        to_maps(targets),
        to_maps(inside_weights),
        to_maps(outside_weights),
    )


def require_truth(truth: Any) -> None:
    """Raise `LayerError` unless a bottom of ground-truth boxes has one or more rows of five values."""
    require(
        has_rows_of_five(truth) and truth.shape[0] > 0,
        f"ground-truth boxes must be one or more rows x1, y1, x2, y2, class, not shape {truth.shape}",
    )


def _is_inside(boxes: jax.Array, image_size: jax.Array, border: int) -> jax.Array:
    low_inside = jnp.all(boxes[:, :2] >= -border, axis=1)
    return low_inside & (boxes[:, 2] < image_size[1] + border) & (boxes[:, 3] < image_size[0] + border)


def _label_anchors(
    s: dict[str, Any], boxes: jax.Array, truth: jax.Array, image_size: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the label of each anchor, and the ground-truth box that it overlaps most.

    The labels, (anchors,), are 1 (positive), 0 (negative) or -1 (ignored). The boxes have shape (anchors, 4).

    Args:
        s: the settings of param_str.
        boxes: (anchors, 4), the anchors in pixels.
        truth: (M, 5), rows x1, y1, x2, y2, class.
        image_size: height and width of the image.
    """
    is_inside, is_truth = _is_inside(boxes, image_size, s["allowed_border"]), truth[:, 4] >= 1
    overlap = overlaps(boxes[:, None], truth[:, :4], 1.0)
    overlap = jnp.where(is_inside[:, None] & is_truth, overlap, -1.0)
    largest_overlap, nearest_truth = jnp.max(overlap, axis=1), jnp.argmax(overlap, axis=1)
    largest_truth_overlap = jnp.max(overlap, axis=0)
    is_positive = jnp.any((overlap == largest_truth_overlap) & (largest_truth_overlap > 0), axis=1) | (
        largest_overlap >= s["rpn_positive_overlap"]
    )
    is_negative = largest_overlap < s["rpn_negative_overlap"]
    is_preferred, is_fallback = (is_negative, is_positive) if s["rpn_clobber_positives"] else (is_positive, is_negative)
    labels = jnp.where(is_preferred, 0.0 if s["rpn_clobber_positives"] else 1.0, -1.0)
    labels = jnp.where(is_fallback & ~is_preferred, 1.0 if s["rpn_clobber_positives"] else 0.0, labels)
    return jnp.where(is_inside, labels, -1.0), truth[nearest_truth, :4]


def _sample_labels(labels: jax.Array, batch_size: int, fraction: float, key: jax.Array) -> jax.Array:
    """Return the labels of a random sample of at most `batch_size` anchors, and -1 for all other anchors, (anchors,).

    At most fraction * batch_size of the sampled anchors are positive.
    """
    random_values = jax.random.uniform(key, (2, *labels.shape))
    is_positive = _masked_sample(labels == 1, random_values[0], int(fraction * batch_size))
    is_negative = _masked_sample(labels == 0, random_values[1], batch_size - jnp.sum(is_positive))
    return jnp.where(is_positive, 1.0, jnp.where(is_negative, 0.0, -1.0))


def _masked_sample(eligible: jax.Array, random_values: jax.Array, n: Any) -> jax.Array:
    rank = jnp.argsort(jnp.argsort(jnp.where(eligible, random_values, 2.0)))
    return eligible & (rank < n)


def _compute_outside_weights(labels: jax.Array, positive_weight: float) -> jax.Array:
    """Return the outside weight of each anchor, (anchors,). Ignored anchors (label -1) get 0.

    If positive_weight is negative, all other anchors have equal weights whose sum is 1. Otherwise, the weights of
    positives have the sum positive_weight, and the weights of negatives have the sum 1 - positive_weight.
    """
    is_positive, is_negative = labels == 1, labels == 0
    if positive_weight < 0:
        return (is_positive | is_negative) / jnp.maximum(jnp.sum(is_positive | is_negative), 1)
    require(0 < positive_weight < 1, f"rpn_positive_weight must be below 1, or negative, not {positive_weight}")
    class_weights = (
        positive_weight / jnp.maximum(jnp.sum(is_positive), 1),
        (1 - positive_weight) / jnp.maximum(jnp.sum(is_negative), 1),
    )
    return jnp.where(is_positive, class_weights[0], jnp.where(is_negative, class_weights[1], 0.0))


_PROPOSAL_DEFAULTS: dict[str, Any] = {
    "num_classes": 21,
    "agnostic": None,
    "batch_size": 128,
    "fg_fraction": 0.25,
    "fg_thresh": 0.5,
    "bg_thresh_hi": 0.5,
    "bg_thresh_lo": 0.1,
    "bbox_inside_weights": (1.0, 1.0, 1.0, 1.0),
    "bbox_normalize_targets_precomputed": False,
    "bbox_normalize_means": (0.0, 0.0, 0.0, 0.0),
    "bbox_normalize_stds": (0.1, 0.1, 0.2, 0.2),
}


@declare(
    "Python",
    bottoms=(2, 3),
    tops=5,
    param="python_param",
    in_place=False,
    on_host=True,
    ragged_axis=0,
    stops_gradient=True,
    takes_one_image=True,
    origin="py-faster-rcnn",
    restrictions="One image, as in the original.",
    unsupported={"shard": "the sampled rows are of all devices"},
)
def proposal_target_layer(
    p: PythonParameter, rois: np.ndarray, truth: np.ndarray, *_image: np.ndarray, ctx: Context
) -> tuple[np.ndarray, ...]:
    """Sample regions of interest (ROIs), and return them with their classes, box targets and weights.

    The n sampled ROIs have shape (n, 5), the classes (n,), and the box targets, inside weights and outside weights (n,
    4 * classes) each. In SmoothL1Loss, inside weights multiply the differences from the targets, and outside weights
    multiply the losses. The ROIs are sampled from bottom 0 (N, 5) and the ground-truth boxes, bottom 1 (M, 5) with rows
    x1, y1, x2, y2, class, where rows with class 0 are padding. A third bottom is ignored; in MNC it is the size of the
    image. param_str contains settings of py-faster-rcnn's cfg in lower case.

    With R-FCN's `agnostic`, by default if num_classes is 2, the targets of all objects have the columns of class 1, and
    classes have no limit. With R-FCN's batch_size -1, all positives are returned, then all negatives.

    An ROI of another image than 0, or a class of num_classes or more, is an error, and NaN in code that JAX traces.
    """
    return sample_proposal_targets(_read_proposal_settings(p), rois, truth, ctx)


def sample_proposal_targets(
    s: dict[str, Any], rois: np.ndarray, truth: np.ndarray, ctx: Context
) -> tuple[np.ndarray, ...]:
    """Return the tops of `proposal_target_layer` for its settings and bottoms."""
    rois, truth = (np.asarray(x.reshape(len(x), 5), np.float32) for x in (rois, truth))
    image_index, classes = np.rint(rois[:, 0]), np.rint(truth[:, 4])
    require(
        not np.any(image_index > 0),
        "all ROIs must belong to image 0, because the layer takes one image, "
        f"not to image {image_index.max(initial=0):g}",
    )
    require(
        s["agnostic"] or not np.any(classes >= s["num_classes"]),
        f"the class of a ground-truth box must be below num_classes {s['num_classes']}, not {classes.max():g}",
    )
    tops, num_rows = _sample_rois(s, rois, truth, *_draw(ctx, len(rois), len(truth)), np)
    return tuple(top[:num_rows] for top in tops)


@proposal_target_layer.traced
def proposal_target_layer_traced(
    p: PythonParameter, rois: Any, truth: Any, *_image: Any, ctx: Context
) -> tuple[tuple[Any, ...], Any]:
    return trace_proposal_targets(_read_proposal_settings(p), rois, truth, ctx)


def trace_proposal_targets(s: dict[str, Any], rois: Any, truth: Any, ctx: Context) -> tuple[tuple[Any, ...], Any]:
    """Return what `HostFunction.traced` of `proposal_target_layer` does for its settings and bottoms."""
    is_valid = valid_rows(rois)[:, None]
    truth = truth.zero_padding() if isinstance(truth, PaddedRows) else truth
    rois, truth = (lax.stop_gradient(promote(x.reshape(x.shape[0], 5))) for x in (without_count(rois), truth))
    rois = jnp.where(is_valid, rois, -1)
    tops, num_rows = _sample_rois(s, rois, truth, *_draw(ctx, rois.shape[0], truth.shape[0]), jnp)
    is_refused = jnp.any(jnp.rint(rois[:, 0]) > 0)
    if not s["agnostic"]:
        is_refused |= jnp.any(jnp.rint(truth[:, 4]) >= s["num_classes"])
    return tuple(jnp.where(is_refused, jnp.nan, top) for top in tops), num_rows


@proposal_target_layer.top_shapes
def proposal_target_layer_top_shapes(p: PythonParameter, rois: Any, truth: Any, *_image: Any) -> list[Shape]:
    return find_proposal_target_shapes(_read_proposal_settings(p), rois, truth)


def find_proposal_target_shapes(s: dict[str, Any], rois: Any, truth: Any) -> list[Shape]:
    """Return the largest shapes of the tops of `proposal_target_layer` for its settings and bottoms."""
    require(has_rows_of_five(rois), f"ROIs must be rows image, x1, y1, x2, y2, not shape {rois.shape}")
    require_truth(truth)
    num_rois = _max_num_rows(s, rois.shape[0] + truth.shape[0])
    num_columns = 4 * s["num_classes"]
    return [(num_rois, 5), (num_rois,), (num_rois, num_columns), (num_rois, num_columns), (num_rois, num_columns)]


def _read_proposal_settings(p: PythonParameter) -> dict[str, Any]:
    mnc_settings = {"bp_all": 0}  # which only affects masks
    return check_proposal_target_settings(parse_param_str(p.param_str, _PROPOSAL_DEFAULTS | mnc_settings))


def check_proposal_target_settings(s: dict[str, Any]) -> dict[str, Any]:
    """Return settings of `proposal_target_layer`, or raise `LayerError` if they are out of range."""
    require(s["num_classes"] > 1, f"num_classes, background included, must be at least 2, not {s['num_classes']}")
    require(s["batch_size"] > 0 or s["batch_size"] == -1, f"batch_size must be > 0, or -1, not {s['batch_size']}")
    require(0 <= s["fg_fraction"] <= 1, f"fg_fraction must be between 0 and 1, not {s['fg_fraction']}")
    require(s["batch_size"] > 0 or s["fg_fraction"] > 0, "with batch_size -1, fg_fraction must be > 0")
    if s["agnostic"] is None:
        s["agnostic"] = s["num_classes"] == 2
    require(isinstance(s["agnostic"], bool), f"agnostic must be True or False, not {s['agnostic']!r}")
    for name in ("bbox_inside_weights", "bbox_normalize_means", "bbox_normalize_stds"):
        require(len(s[name]) == 4, f"{name} must be four numbers, not {len(s[name])}")
    require(
        all(std > 0 for std in s["bbox_normalize_stds"]),
        f"bbox_normalize_stds must be > 0, not {s['bbox_normalize_stds']}",
    )
    return s


def _max_num_rows(s: dict[str, Any], num_boxes: Any) -> Any:
    """Return the largest number of sampled ROIs, of `num_boxes` ROIs and ground-truth boxes."""
    if s["batch_size"] > 0:
        return s["batch_size"]
    may_be_both = s["bg_thresh_hi"] > s["fg_thresh"]  # a positive is then a negative, too
    return num_boxes * (1 + may_be_both)


def _draw(ctx: Context, num_rois: Any, num_truth: Any) -> tuple[jax.Array, jax.Array]:
    """Return random numbers in [0, 1): two for each ROI (num_rois, 2), and two for each ground-truth box.

    With JAX's default keys, the numbers of a row do not change if rows of padding are added.
    """
    roi_draws, truth_draws = (
        bucketed_draw(jax.random.uniform, fold_in(ctx.key, np.uint32(i)), (n, 2))
        for i, n in enumerate((num_rois, num_truth))
    )
    return roi_draws, truth_draws


def _sample_rois(
    s: dict[str, Any], rois: Any, truth: Any, roi_draws: Any, truth_draws: Any, xp: Any
) -> tuple[tuple[Any, ...], Any]:
    """Return the tops with `_max_num_rows` rows, zeros after the sampled ROIs, and the number of sampled ROIs.

    Args:
        s: the settings of param_str.
        rois: (N, 5), rows image, x1, y1, x2, y2. Rows with another image than 0 are left out.
        truth: (M, 5), rows x1, y1, x2, y2, class. Rows with a class below 1 are left out.
        roi_draws, truth_draws: random numbers, two for each row. The positives with the smallest first numbers are
            sampled, and the negatives with the smallest second numbers.
        xp: `numpy` or `jax.numpy`.
    """
    is_truth = xp.rint(truth[:, 4]) >= 1
    boxes, draws = xp.concatenate([rois[:, 1:], truth[:, :4]]), xp.concatenate([roi_draws, truth_draws])
    is_candidate = xp.concatenate([xp.rint(rois[:, 0]) == 0, is_truth])
    overlap = xp.where(is_truth, overlaps(boxes[:, None], truth[:, :4], 1.0), -1.0)
    largest_overlap = xp.maximum(xp.max(overlap, axis=1), 0.0)
    is_positive = is_candidate & (largest_overlap >= s["fg_thresh"])
    is_negative = is_candidate & (largest_overlap < s["bg_thresh_hi"]) & (largest_overlap >= s["bg_thresh_lo"])
    max_rows = _max_num_rows(s, boxes.shape[0])
    max_positives = round(s["fg_fraction"] * max_rows) if s["batch_size"] > 0 else max_rows
    num_positives = xp.minimum(xp.sum(is_positive), max_positives)
    num_rows = num_positives + xp.minimum(xp.sum(is_negative), max_rows - num_positives)
    positives, negatives = (
        xp.argsort(xp.where(mask, draws[:, i], 2.0), stable=True) for i, mask in enumerate((is_positive, is_negative))
    )
    row = xp.arange(max_rows)
    index = xp.where(
        row < num_positives,
        xp.take(positives, row, mode="clip"),
        xp.take(negatives, xp.maximum(row - num_positives, 0), mode="clip"),
    )
    has_truth = (row < num_positives)[:, None]
    matched_truth = xp.take(truth, xp.take(xp.argmax(overlap, axis=1), index), axis=0)
    sampled_boxes = xp.where((row < num_rows)[:, None], xp.take(boxes, index, axis=0), 0)
    deltas = encode_boxes(xp.where(has_truth, sampled_boxes, matched_truth[:, :4]), matched_truth[:, :4], xp)
    if s["bbox_normalize_targets_precomputed"]:
        deltas = (deltas - np.float32(s["bbox_normalize_means"])) / np.float32(s["bbox_normalize_stds"])
    target_class = 1 if s["agnostic"] else xp.rint(matched_truth[:, 4:])
    is_class = has_truth & (target_class == xp.arange(s["num_classes"]))
    targets, inside_weights = (
        xp.where(is_class[:, :, None], x, np.float32(0)).reshape(max_rows, -1)
        for x in (deltas[:, None], np.float32(s["bbox_inside_weights"]))
    )
    rois = xp.pad(sampled_boxes, ((0, 0), (1, 0)))
    labels = xp.where(has_truth[:, 0], matched_truth[:, 4], 0)
    return (rois, labels, targets, inside_weights, (inside_weights > 0).astype(np.float32)), num_rows
