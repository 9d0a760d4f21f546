"""BboxAccuracy: how well boxes fit their ground truth, before and after they are moved."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .. import across
from ..boxes import overlaps
from ..context import Context
from ..dtypes import promote
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerType, Signature, Traced
from .regression import moved, normalization
from .shapes import require_one_number_of_rows, rows_of

_GROUND_TRUTH = 0.975  # an ROI that overlaps by more is taken for ground truth itself, and left out


def bbox_accuracy(ctx: Context, deltas: jax.Array, rois: jax.Array, matched: jax.Array) -> object:
    """Mean overlap of boxes, moved by their deltas, with matched ground truth; a second top is that of the ROIs.

    Bottoms are deltas N x 4 * classes (N x 8 if not `cls_aware`), ROIs N x 5, and rows [label, box, overlap]. Only rows
    with a label above 0 and an overlap up to 0.975 count; without any, tops are -1.
    """
    require_one_number_of_rows(deltas=deltas, rois=rois, matched=matched)
    aware = ctx.layer.bbox_reg_param.cls_aware
    given = rows_of(promote(deltas), "bottom 0 (deltas)", *(() if aware else (8,)))
    rows, truth = rows_of(promote(rois), "bottom 1 (ROIs)", 5), rows_of(promote(matched), "bottom 2 (ground truth)", 6)
    label = truth[:, 0].astype(jnp.int32)
    counts = (truth[:, 0] > 0) & (truth[:, -1] <= _GROUND_TRUTH) & (rows[:, 0] >= 0)
    first = 4 * (label if aware else jnp.minimum(label, 1))
    own = jnp.take_along_axis(given, first[:, None] + jnp.arange(4), axis=1)  # NaN for a class that there is not
    total = across.total(ctx, jnp.sum(counts, dtype=given.dtype))
    boxes = moved(rows[:, 1:], normalization(ctx).undone(own)), rows[:, 1:]
    fits = [jnp.where(counts & (label > 0), overlaps(box, truth[:, 1:5], 1.0, touching=True), 0) for box in boxes]
    sums = [across.total(ctx, jnp.sum(fit)) for fit in fits]
    found = [jnp.where(total > 0, s / jnp.maximum(total, 1), -1).reshape(1, 1, 1, 1) for s in sums]
    return tuple(found[: ctx.n_tops])


register(
    LayerType(
        Signature("BboxAccuracy", bottoms=3, tops=(1, 2), in_place=False),
        Traced(bbox_accuracy),
        Gradient(exists=False, indices=Indices((1, 2))),
        docs=LayerDocs(origin="Cascade R-CNN"),
    )
)
