"""DetectionGroupAccuracy: figures on maps of class scores and deltas, several fields to a place."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ...errors import require
from ..context import Context
from ..dtypes import promote
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerType, Signature, Traced
from .fields import fields
from .figures import mean_overlap, shares_of_right_classes
from .multitask import labels_of
from .regression import bounds, normalization
from .shapes import images_of, require_pair


def detection_group_accuracy(ctx: Context, scores: jax.Array, deltas: jax.Array, truth: jax.Array) -> object:
    """The share of places whose class has the largest score, and that of those with an object; 1 x 1 x 1 x 2.

    Bottoms are as for DetectionGroupLoss. Places of label 0 and an overlap of `bg_threshold` or more are left out. A
    second top is the mean overlap of boxes with the objects, by sides x2 - x1 + 1. Without any to count, figures
    are -1.
    """
    p = ctx.param
    field = fields(p.field_w, p.field_h, p.stride)
    require_pair(scores.shape, deltas.shape)
    images_of(scores.shape[0], len(field.width))
    require(scores.shape[1] == p.cls_num, f"needs scores of cls_num {p.cls_num} classes, not {scores.shape[1]}")
    require(not p.objectness or p.cls_num == 2, f"objectness needs cls_num 2, not {p.cls_num}")
    labels = labels_of(truth, scores.shape, "bottom 2 (ground truth)")
    classes = jnp.minimum(labels.classes, 1) if p.objectness else labels.classes
    right = jnp.argmax(promote(scores), axis=1) == classes
    shares = shares_of_right_classes(ctx, right, labels, classes)
    if ctx.n_tops < 2:
        return shares
    boxes = field.decoded(promote(deltas), normalization(ctx), bounds(p))
    return shares, mean_overlap(ctx, boxes, labels, 1.0)


register(
    LayerType(
        Signature(
            "DetectionGroupAccuracy",
            bottoms=3,
            tops=(1, 2),
            param="detection_group_accuracy_param",
            in_place=False,
        ),
        Traced(detection_group_accuracy),
        Gradient(exists=False, indices=Indices((2,))),
        docs=LayerDocs(origin="Cascade R-CNN"),
    )
)
