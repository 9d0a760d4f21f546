"""DecodeBBox: the boxes that a stage of a cascade refined, for the next one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import require
from ..context import Context, Shape, Site
from ..dtypes import promote
from ..no_gradient import no_gradient
from ..on_host import promoted
from ..registry import register
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, OnHost, PerLayer, Signature, Traced
from .regression import moved, normalization
from .shapes import require_one_number_of_rows, require_rows, rows_of, with_four_axes


def make_decode_bbox(ctx: Context, site: Site) -> LayerType:
    """ROIs (N x 5) moved by their deltas for any object (N x 8, of which the last four count): rows [image, box].

    Sides are x2 - x1 + 1, and deltas of 0 leave a box as it is. In TRAIN it runs on the host, where boxes without
    sides are dropped, as are, with a third bottom (matched ground truth, whose last column is the overlap), ROIs that
    overlap it by `gt_iou_thr` or more.
    """
    if not ctx.training:
        return replace(ctx.type, implementation=Traced(decode))
    return replace(ctx.type, implementation=OnHost(decode_and_drop, decode_top_shapes, ragged=True))


def decode(ctx: Context, deltas: jax.Array, rois: jax.Array, *matched: jax.Array) -> jax.Array:
    """The ROIs moved. Rows of padding stay where they are."""
    require(not matched, "takes a third bottom, the matched ground truth, only in TRAIN")
    deltas, rows = _rows(deltas, rois)
    boxes = moved(promote(rows)[:, 1:], normalization(ctx).undone(promote(deltas)[:, 4:]))
    return with_four_axes(jnp.concatenate([rows[:, :1], boxes.astype(rows.dtype)], axis=1))


def decode_and_drop(ctx: Context, deltas: np.ndarray, rois: np.ndarray, *matched: np.ndarray) -> np.ndarray:
    given, rows = map(promoted, _rows(deltas, rois, *matched))
    boxes = moved(rows[:, 1:], normalization(ctx).undone(given[:, 4:], xp=np), xp=np)
    keep = np.all(boxes[:, 2:] >= boxes[:, :2], axis=1) & (rows[:, 0] >= 0)
    for found in matched:
        overlap = rows_of(promoted(found), "bottom 2 (matched ground truth)")[:, -1]
        keep &= overlap < ctx.layer.decode_bbox_param.gt_iou_thr
    require(np.any(keep), f"of {len(rows)} boxes none is left: all are without sides, or ground truth already")
    return np.asarray(with_four_axes(np.concatenate([rows[:, :1], boxes], axis=1)[keep].astype(rois.dtype)))


def decode_top_shapes(ctx: Context, deltas: Any, rois: Any, *matched: Any) -> list[Shape]:
    normalization(ctx)
    _require_rows(deltas, rois, *matched)
    return [(rois.shape[0], 5, 1, 1)]


register(
    LayerType(
        Signature("DecodeBBox", bottoms=(2, 3), param="decode_bbox_param", in_place=False),
        PerLayer(make_decode_bbox),
        Gradient(no_gradient, overrides_autodiff=True),
        LayerTraits(row_wise=lambda ctx: not ctx.training),
        docs=LayerDocs(origin="Cascade R-CNN", restrictions="In TRAIN it runs on the host."),
    )
)


def _rows(deltas: Any, rois: Any, *matched: Any) -> tuple[Any, Any]:
    _require_rows(deltas, rois, *matched)
    return rows_of(deltas, "bottom 0 (deltas)", 8), rows_of(rois, "bottom 1 (ROIs)", 5)


def _require_rows(deltas: Any, rois: Any, *matched: Any) -> None:
    require_one_number_of_rows(deltas=deltas, rois=rois, **dict(zip(("matched",), matched, strict=False)))
    require_rows(deltas.shape, "bottom 0 (deltas)", 8)
    require_rows(rois.shape, "bottom 1 (ROIs)", 5)
