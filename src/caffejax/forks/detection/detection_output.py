"""DetectionOutput, which decodes predicted boxes, suppresses overlapping boxes of each class, and selects the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...base.errors import require
from ...core.layers.context import Context, LayerDefinition, Shape
from ...core.layers.declaration import register
from ...core.layers.row_padding import strip_padding
from ...core.layers.types import (
    IMAGE_INDICES_PER_DEVICE,
    HostFunction,
    LayerType,
    Traced,
)
from ...core.ops.implementations import find_form, register_forms
from ...core.schema.caffe_pb2 import DetectionOutputParameter, PriorBoxParameter
from .boxes import decode_offsets, non_max_suppression
from .prior_box import read_predictions
from .refinement import Refinement
from .result_files import ResultFiles, writes_files


@register(
    "DetectionOutput",
    bottoms=(3, 5),
    param="detection_output_param",
    in_place=False,
    fork_settings=("normalized", "input_width", "input_height"),
    per_layer=True,
    differentiable=False,
    pads_rows=True,
    origin="SSD",
    unsupported={"shard": "the boxes of all images form one list", "joint_batch": IMAGE_INDICES_PER_DEVICE},
    restrictions="visualize has no effect. Settings of other forks are refused. If the layer writes files, it runs "
    "on the host.",
)
def make_detection_output(p: DetectionOutputParameter, definition: LayerDefinition, *, ctx: Context) -> LayerType:
    """Select detections by non-maximum suppression, as rows (image, label, score, x1, y1, x2, y2).

    Bottoms: locations, confidences and priors, as for MultiBoxLoss, and RefineDet's: the probabilities of background
    and object of its first stage (images, priors * 2), and offsets (images, priors * 4). The offsets move the priors
    before the boxes are decoded. A prior whose probability of an object is below objectness_score has the confidence 1
    for class 0, and 0 for others. A single further bottom with another number of axes than 2 is ignored, as in SSD.

    The top has shape (1, 1, rows, 7). Rows are sorted by image and label, and by falling score. Compiled code returns a
    static number of rows. For each image this is keep_top_k if it is set, otherwise top_k (by default the number of
    priors) for each label. Detections come first, then padding rows of -1. If no image has a detection, the first rows
    are (image, -1, ...), one for each image.

    If save_output_param has output_directory, label_map_file and name_size_file, the layer runs on the host and also
    writes files. OpenCV's setting clip limits boxes to the image before suppression. With OpenVINO's `normalized:
    false`, the priors are rows of ROIs (image, x1, y1, x2, y2), in pixels of an image of input_width x input_height.
    """
    if not writes_files(p.save_output_param):
        return replace(
            ctx.type,
            implementation=Traced(detection_output, top_shapes=detection_output_top_shapes),
        )
    files = ResultFiles(p, definition)

    @cache
    def choose_detect() -> Callable[..., Any]:  # when the layer runs, because the question starts JAX
        suppress = find_form("non_max_suppression", "host")
        is_available = suppress is not None and suppress(np.zeros((0, 4), np.float32), 0.5, 1.0) is not None
        return partial(detect_on_host, p) if is_available else jax.jit(partial(detection_output, p))

    def detect_and_save(*bottoms: Any) -> np.ndarray:
        top = strip_padding(np.asarray(choose_detect()(*bottoms)))
        files.add(top[0, 0], len(bottoms[0]))
        return top

    def top_shapes(*bottoms: Any) -> list[Shape]:
        return [jax.eval_shape(partial(detection_output, p), *bottoms).shape]

    implementation = HostFunction(detect_and_save, top_shapes, ragged_axis=2, position=files, output=files.output)
    return replace(ctx.type, implementation=implementation)


def detection_output(p: Any, loc: jax.Array, conf: jax.Array, prior: jax.Array, *refinement: jax.Array) -> jax.Array:
    """Return the detections as rows (image, label, score, x1, y1, x2, y2), (1, 1, rows, 7), then padding rows of -1."""
    boxes, scores = _read_bottoms(p, loc, conf, prior, *refinement)
    num_priors = scores.shape[1]
    labels = np.asarray([label for label in range(p.num_classes) if label != p.background_label_id], np.int32)
    min_score = p.confidence_threshold if p.HasField("confidence_threshold") else np.finfo(np.float32).min
    boxes = jnp.swapaxes(boxes, 1, 2)
    top_k = min(_read_top_k(p, num_priors), num_priors)
    scores, best_indices = lax.top_k(jnp.swapaxes(scores, 1, 2)[:, labels], top_k)
    boxes = jnp.take_along_axis(boxes if p.share_location else boxes[:, labels], best_indices[..., None], axis=2)
    suppress = partial(non_max_suppression, threshold=p.nms_param.nms_threshold, eta=p.nms_param.eta)
    selected = jax.vmap(jax.vmap(suppress))(boxes, scores > min_score)  # (images, labels, top_k)
    image = jnp.arange(scores.shape[0], dtype=scores.dtype)[:, None, None]
    label = jnp.asarray(labels, scores.dtype)[:, None]
    columns = (jnp.broadcast_to(x, scores.shape)[..., None] for x in (image, label, scores))
    rows = jnp.concatenate([*columns, boxes], axis=-1).reshape(scores.shape[0], -1, 7)
    return _join_rows(*_keep_top_k(rows, selected.reshape(rows.shape[:2]), p.keep_top_k))[None, None].astype(loc.dtype)


def detection_output_top_shapes(p: Any, loc: Any, conf: Any, prior: Any, *refinement: Any) -> list[Shape] | None:
    sizes = [math.prod(x.shape) for x in (loc, conf, prior)]
    _check_settings(p)
    if not p.normalized or _is_refinement(refinement):
        return None
    num_images, num_priors = (conf.shape or (0,))[0], sizes[2] // 8
    num_groups = 1 if p.share_location else p.num_classes
    if len(prior.shape) < 3 or prior.shape[:2] != (1, 2) or not num_priors or (loc.shape or (0,))[0] != num_images:
        return None
    if sizes != [num_images * num_priors * num_groups * 4, num_images * num_priors * p.num_classes, num_priors * 8]:
        return None
    num_labels = p.num_classes - (0 <= p.background_label_id < p.num_classes)
    num_rows = num_labels * min(_read_top_k(p, num_priors), num_priors)
    return [(1, 1, num_images * (p.keep_top_k if 0 < p.keep_top_k < num_rows else num_rows), 7)]


def _read_top_k(p: Any, num_priors: int) -> int:
    """Return the maximum number of boxes of a class before suppression.

    It is top_k or, if top_k is not set or -1, `num_priors`.
    """
    return p.nms_param.top_k if p.nms_param.HasField("top_k") and p.nms_param.top_k >= 0 else num_priors


def detect_on_host(p: Any, loc: np.ndarray, conf: np.ndarray, prior: np.ndarray, *refinement: Any) -> np.ndarray:
    """Compute `detection_output` on the host with NumPy, without compilation."""
    boxes, scores = _read_bottoms(p, loc, conf, prior, *refinement)
    suppress = find_form("non_max_suppression", "host")
    assert suppress is not None
    labels = [label for label in range(p.num_classes) if label != p.background_label_id]
    min_score = p.confidence_threshold if p.HasField("confidence_threshold") else np.finfo(np.float32).min
    num_images, num_priors, _ = scores.shape
    top_k = min(_read_top_k(p, num_priors), num_priors)
    max_rows = len(labels) * top_k
    num_rows = max_rows if not 0 < p.keep_top_k < max_rows else p.keep_top_k
    top = np.full((num_images * num_rows, 7), -1, np.promote_types(loc.dtype, np.float32))
    end = 0
    for image_index in range(num_images):
        rows_by_label = []
        for label in labels:
            label_scores = scores[image_index, :, label]
            best_indices = _top_indices(label_scores, np.flatnonzero(label_scores > min_score), top_k)
            label_boxes = boxes[image_index, best_indices, 0 if p.share_location else label]
            selected = suppress(label_boxes, p.nms_param.nms_threshold, p.nms_param.eta)
            image_and_label = np.broadcast_to(np.asarray([image_index, label], top.dtype), (len(selected), 2))
            rows_by_label.append(
                np.concatenate(
                    [image_and_label, label_scores[best_indices[selected], None], label_boxes[selected]], axis=1
                )
            )
        image_rows = np.concatenate(rows_by_label)
        if len(image_rows) > num_rows:
            image_rows = image_rows[np.sort(_top_indices(image_rows[:, 2], np.arange(len(image_rows)), num_rows))]
        top[end : end + len(image_rows)] = image_rows
        end += len(image_rows)
    if not end:
        top[:num_images, 0] = np.arange(num_images)
    return top[None, None].astype(loc.dtype)


register_forms("host", {detection_output: detect_on_host})


def _top_indices(scores: np.ndarray, candidates: np.ndarray, count: int) -> np.ndarray:
    """Return the `count` indices in `candidates` with the largest scores, largest first.

    Indices with equal scores keep their order.
    """
    return candidates[np.argsort(-scores[candidates], kind="stable")[:count]]


def _keep_top_k(rows: jax.Array, selected: jax.Array, limit: int) -> tuple[jax.Array, jax.Array]:
    """Return the `limit` best selected rows of each image in their original order, and the mask of selected rows.

    Args:
        rows: (images, n, 7).
        selected: (images, n), False for suppressed rows.
        limit: the maximum number of rows of an image. If it is not positive, or at least n, all rows are returned.
    """
    if not 0 < limit < rows.shape[1]:
        return rows, selected
    _, best_indices = lax.top_k(jnp.where(selected, rows[..., 2], -jnp.inf), limit)
    order = jnp.sort(best_indices, axis=1)
    return jnp.take_along_axis(rows, order[..., None], axis=1), jnp.take_along_axis(selected, order, axis=1)


def _join_rows(rows: jax.Array, selected: jax.Array) -> jax.Array:
    """Return the rows of all images as one list (images * n, 7): the selected rows first, then padding rows of -1.

    If no row is selected, the first rows are (image, -1, ...), one for each image.

    Args:
        rows: (images, n, 7).
        selected: (images, n), False for suppressed rows.
    """
    num_images, selected, rows = rows.shape[0], selected.reshape(-1), rows.reshape(-1, 7)
    sorted_rows = jnp.where(selected[:, None], rows, -1)[jnp.argsort(~selected, stable=True)]
    row_index = jnp.arange(rows.shape[0])
    empty_rows = (
        jnp.full_like(rows, -1).at[:, 0].set(jnp.where(row_index < num_images, row_index, -1).astype(rows.dtype))
    )
    return jnp.where(jnp.any(selected[None], axis=1), sorted_rows, empty_rows)  # OpenCV 5 fails on arrays without axes


def _read_bottoms(p: Any, loc: Any, conf: Any, prior: Any, *refinement: Any) -> tuple[Any, Any]:
    """Return the predicted boxes and their scores.

    Returns:
        boxes (x1, y1, x2, y2), (images, priors, 1 or classes, 4), and scores (images, priors, classes).
    """
    _check_settings(p)
    if not p.normalized:
        conf, prior = _read_rois(p, conf, prior)
    num_groups = 1 if p.share_location else p.num_classes
    locations, scores, priors = read_predictions(loc, conf, prior, num_groups, p.num_classes)
    if not _is_refinement(refinement):
        refinement = ()
    require(len(refinement) < 2 or p.share_location, "RefineDet's bottoms need share_location: true")
    first_stage = Refinement.parse(refinement, 3, *scores.shape[:2])
    code_type = PriorBoxParameter.CodeType.Name(p.code_type)
    variances = None if p.variance_encoded_in_target else priors[1]
    anchors = first_stage.refine_priors(code_type, priors[0], variances)[..., None, :]
    variances = None if variances is None else variances[:, None]
    boxes = decode_offsets(code_type, locations, anchors, variances)
    return boxes.clip(0, 1) if p.clip else boxes, first_stage.mask_scores(p.objectness_score, scores)


def _is_refinement(bottoms: Sequence[Any]) -> bool:
    """Return whether the bottoms after the third are RefineDet's, not the image that SSD's layer ignores."""
    return len(bottoms) == 2 or (len(bottoms) == 1 and len(bottoms[0].shape) == 2)


def _read_rois(p: Any, conf: Any, rois: Any) -> tuple[Any, Any]:
    """Return confidences and priors for R ROIs, which are rows (image, x1, y1, x2, y2) in pixels.

    The priors have shape (1, 2, 4 * R), as PriorBox returns them. The confidences keep their shape; they become -inf
    for padding rows, whose image index is negative.
    """
    xp: Any = np if isinstance(rois, np.ndarray) else jnp
    n = math.prod(rois.shape) // 5
    require(
        p.variance_encoded_in_target and n > 0 and math.prod(rois.shape) == 5 * n,
        "with normalized: false the priors must be ROIs, rows of 5 values, and variance_encoded_in_target must be "
        f"true; the shape is {rois.shape}, and the setting is {str(p.variance_encoded_in_target).lower()}",
    )
    require(
        conf.shape[0] == 1 and math.prod(conf.shape) == n * p.num_classes,
        f"confidences must be of one image, {p.num_classes} for each of {n} ROIs, but have shape {conf.shape}",
    )
    rows = rois.reshape(n, 5)
    boxes = rows[:, 1:] / xp.asarray([p.input_width, p.input_height] * 2, rows.dtype)
    scores = xp.where(rows[:, :1] >= 0, conf.reshape(n, -1), -xp.inf).astype(conf.dtype)
    return scores.reshape(conf.shape), xp.broadcast_to(boxes.reshape(-1), (1, 2, 4 * n))


def _check_settings(p: Any) -> None:
    nms = p.nms_param
    for name in ("ratio_permute", "no_permute", "tflite_detection", "arm_conf_no_concat", "arm_loc_no_concat"):
        require(not getattr(p, name), f"detection_output_param.{name} of a different fork is not supported; remove it")
    require(not p.scale_xywh, "detection_output_param.scale_xywh of a different fork is not supported; remove it")
    require(
        p.num_classes > (p.background_label_id == 0),
        f"num_classes must include at least one class besides the background, but is {p.num_classes}",
    )
    require(
        p.background_label_id >= 0 or not p.share_location,
        f"background_label_id: {p.background_label_id} needs share_location: false, because the SSD fork "
        "gives shared boxes the label -1, and would drop them as background",
    )
    require(nms.nms_threshold >= 0, f"nms_threshold must not be negative: {nms.nms_threshold}")
    require(0 < nms.eta <= 1, f"eta must be more than 0 and no more than 1: {nms.eta}")
    require(nms.top_k != 0 or not nms.HasField("top_k"), "top_k is 0, but must be positive, or -1 for all boxes")
    require(p.keep_top_k != 0, "keep_top_k is 0, but must be positive, or -1 for all boxes")
