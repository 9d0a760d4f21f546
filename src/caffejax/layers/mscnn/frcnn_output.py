"""FrcnnOutput: the detections in one image."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from ...errors import require
from ..boxes import non_max_suppression
from ..context import Context
from ..dtypes import promote
from ..registry import register
from ..types import OWN_IMAGES, Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .proposals import Measure, overlap_measure
from .regression import moved, normalization
from .shapes import require_one_number_of_rows, rows_of, with_four_axes


def frcnn_output(
    ctx: Context, probabilities: jax.Array, deltas: jax.Array, rois: jax.Array, size: jax.Array
) -> jax.Array:
    """Detections in one image: rows [image, x1, y1, x2, y2, class, score], by class, the best first.

    Bottoms are probabilities N x classes, deltas N x 4 * classes (N x 8 if not `cls_aware`), ROIs N x 5 or N x 6, and
    height and width of the image. Boxes are cut to the image; those of a class that reach `conf_thr` are suppressed by
    better ones. At most `max_det_num` are kept. The first row is always 0 and then -1. Rows of padding, last, are -1,
    and ROIs that begin with a negative number are none.
    """
    p, dtype = ctx.param, probabilities.dtype
    prob, boxes, there, corners = _inputs(ctx, probabilities, deltas, rois, size)
    n, classes = prob.shape
    boxes = jnp.concatenate([jnp.maximum(boxes[..., :2], 0), jnp.minimum(boxes[..., 2:], corners)], axis=-1)
    boxes = jnp.broadcast_to(jnp.swapaxes(boxes, 0, 1), (classes - 1, n, 4))
    scores = prob[:, 1:].T
    measure = overlap_measure(p.nms_type, 1.0)
    suppress = jax.vmap(partial(_suppress, measure, p.iou_thr))
    kept, boxes, scores = suppress(boxes, scores, there & (scores >= p.conf_thr))
    numbers = jnp.arange(1, classes, dtype=scores.dtype)[:, None]
    columns = [jnp.zeros_like(scores), *jnp.moveaxis(boxes, -1, 0), jnp.broadcast_to(numbers, scores.shape), scores]
    rows = jnp.stack(columns, axis=-1).reshape(-1, 7)
    kept = _best(kept.reshape(-1), rows[:, -1], p.max_det_num)
    order = jnp.argsort(~kept, stable=True)
    if p.max_det_num and not (isinstance(n, int) and n * (classes - 1) < p.max_det_num):
        order = jnp.concatenate([order, jnp.zeros(p.max_det_num, order.dtype)])[: p.max_det_num]
        there = jnp.arange(p.max_det_num) < jnp.sum(kept)
    else:
        there = kept[order]
    found = jnp.where(there[:, None], rows[order], -1)
    filler = jnp.full((1, 7), -1, rows.dtype).at[0, 0].set(0)
    return with_four_axes(jnp.concatenate([filler, found]).astype(dtype))


register(
    LayerType(
        Signature(
            "FrcnnOutput",
            bottoms=4,
            param="frcnn_output_param",
            in_place=False,
        ),
        Traced(frcnn_output),
        Gradient(exists=False),
        LayerTraits(pads_rows=True),
        docs=LayerDocs(
            origin="Cascade R-CNN",
            restrictions="`save_output_param` writes no files.",
            unsupported={"shard": "boxes suppress each other, whatever rows they are in", "joined": OWN_IMAGES},
        ),
    )
)


def _inputs(
    ctx: Context, probabilities: jax.Array, deltas: jax.Array, rois: jax.Array, size: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return probabilities (N, classes), boxes (N, classes - 1 or 1, 4), which are there, and the image's corner."""
    require_one_number_of_rows(probabilities=probabilities, deltas=deltas, rois=rois)
    prob = rows_of(lax.stop_gradient(promote(probabilities)), "bottom 0 (probabilities)")
    classes = prob.shape[1]
    require(classes > 1, f"needs background and one class or more, not probabilities of {classes} classes")
    aware = ctx.layer.bbox_reg_param.cls_aware
    given = rows_of(lax.stop_gradient(promote(deltas)), "bottom 1 (deltas)", 4 * classes if aware else 8)
    given = given.reshape(given.shape[0], classes if aware else 2, 4)[:, 1:]
    rows = rows_of(lax.stop_gradient(promote(rois)), "bottom 2 (ROIs)", 5, 6)
    require(size.shape[:1] == (1,), f"takes one image: bottom 3 must be 1 x 2, height and width, not {size.shape}")
    height, width = rows_of(lax.stop_gradient(promote(size)), "bottom 3 (height and width)", 2)[0]
    boxes = moved(rows[:, None, 1:5], normalization(ctx).undone(given))
    return prob, boxes, rows[:, 0] >= 0, jnp.stack([width, height]).astype(boxes.dtype)


def _suppress(
    measure: Measure, threshold: float, boxes: jax.Array, scores: jax.Array, valid: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Sort the boxes of a class by score; return which are kept, the boxes and the scores."""
    order = jnp.argsort(jnp.where(valid, -scores, jnp.inf), stable=True)
    boxes, scores, valid = boxes[order], scores[order], valid[order]
    return non_max_suppression(boxes, valid, threshold, measure=measure), boxes, scores


def _best(kept: jax.Array, scores: jax.Array, most: int) -> jax.Array:
    """Return which of those kept are among the best, no more than `most` unless that is 0."""
    if not most:
        return kept
    rank = jnp.argsort(jnp.argsort(jnp.where(kept, -scores, jnp.inf), stable=True))
    return kept & (rank < most)
