"""DetectionAccuracy: figures on a map that holds class scores and deltas."""

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
from .shapes import require_scores_and_deltas


def detection_accuracy(ctx: Context, x: jax.Array, truth: jax.Array) -> object:
    """The share of places whose class is among the top_k, and that of those with an object; 1 x 1 x 1 x 2.

    Bottoms are as for DetectionLoss. Places of label 0 and an overlap of `bg_threshold` or more are left out. A second
    top is the mean overlap of boxes with the objects, by sides x2 - x1. Without any to count, figures are -1.
    """
    p = ctx.param
    field = fields([p.field_w], [p.field_h], p.downsample_rate, "downsample_rate")
    require_scores_and_deltas(p, x.shape)
    require(1 <= p.top_k <= p.cls_num, f"top_k must lie between 1 and cls_num {p.cls_num}, not be {p.top_k}")
    require(not p.objectness or p.cls_num == 2, f"objectness needs cls_num 2, not {p.cls_num}")
    labels = labels_of(truth, x.shape, "bottom 1 (ground truth)")
    x = promote(x)
    scores, classes = x[:, : p.cls_num], jnp.minimum(labels.classes, 1) if p.objectness else labels.classes
    numbers = jnp.arange(p.cls_num)[:, None, None]
    own = jnp.max(jnp.where(numbers == classes[:, None], scores, -jnp.inf), axis=1, keepdims=True)
    before = (scores > own) | ((scores == own) & (numbers > classes[:, None]))  # of equal scores the last comes first
    right = (jnp.sum(before, axis=1) < p.top_k) & (classes >= 0) & (classes < p.cls_num)
    shares = shares_of_right_classes(ctx, right, labels, classes)
    if ctx.n_tops < 2:
        return shares
    boxes = field.decoded(x[:, p.cls_num :], normalization(ctx), bounds(p))
    return shares, mean_overlap(ctx, boxes, labels, 0.0)


register(
    LayerType(
        Signature(
            "DetectionAccuracy",
            bottoms=2,
            tops=(1, 2),
            param="detection_accuracy_param",
            in_place=False,
        ),
        Traced(detection_accuracy),
        Gradient(exists=False, indices=Indices((1,))),
        docs=LayerDocs(origin="MS-CNN"),
    )
)
