"""HardMining: the rows of each image that score highest."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import require
from ..context import Context, Shape
from ..no_gradient import no_gradient
from ..on_host import promoted
from ..registry import register
from ..types import Gradient, LayerDocs, LayerType, OnHost, Signature
from .shapes import four_long, require_rows, rows_of, with_four_axes


def hard_mining(ctx: Context, scores: np.ndarray, rois: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
    """Of ROIs (N x 5) and further bottoms, the `num_roi_per_image` rows of each image that score highest, in order.

    Bottom 0 holds the scores, such as losses. Where images have fewer, others' rows make up for it. Tops have as many
    rows as that makes for `num_image` images, or all. No gradient passes.
    """
    p = ctx.param
    images = rows_of(rois, "bottom 1 (ROIs)", 5)[:, 0].astype(int)
    there = images >= 0
    require(
        np.all(images < p.num_image),
        f"ROIs must be of images 0 to {p.num_image - 1} (num_image {p.num_image}), not {images.max(initial=0)}",
    )
    numbers, ranked = np.arange(len(images)), promoted(scores).reshape(-1)
    order = np.lexsort((-numbers, -ranked, images))  # of equal scores the last row comes first
    order = order[there[order]]
    first = np.searchsorted(images[order], images[order])
    rank = np.arange(len(order)) - first
    left = order[rank >= p.num_roi_per_image]
    chosen = order[rank < p.num_roi_per_image]
    more = left[np.lexsort((-left, -ranked[left]))][: _most(ctx, int(there.sum())) - len(chosen)]
    rows = np.sort(np.concatenate([chosen, more]))
    return tuple(with_four_axes(x)[rows] for x in (rois, *others))


def hard_mining_top_shapes(ctx: Context, scores: Any, rois: Any, *others: Any) -> list[Shape]:
    p = ctx.param
    require(p.num_image > 0 and p.num_roi_per_image > 0, "num_image and num_roi_per_image must be above 0")
    require(ctx.n_tops == 1 + len(others), f"needs a top for each bottom but the scores: {ctx.n_tops}")
    for i, x in enumerate((rois, *others), 1):
        require(x.shape[:1] == scores.shape[:1], f"bottom {i} must have as many rows as there are scores: {x.shape}")
    require(all(n == 1 for n in scores.shape[1:]), f"bottom 0 must have one score per row, not shape {scores.shape}")
    require_rows(rois.shape, "bottom 1 (ROIs)", 5)
    rows = _most(ctx, rois.shape[0])
    return [(rows, *four_long(x.shape)[1:]) for x in (rois, *others)]


register(
    LayerType(
        Signature("HardMining", bottoms=(2, None), tops=(1, None), param="hard_mining_param", in_place=False),
        OnHost(hard_mining, hard_mining_top_shapes, ragged=True),
        Gradient(no_gradient, overrides_autodiff=True),
        docs=LayerDocs(origin="Cascade R-CNN"),
    )
)


def _most(ctx: Context, rows: int) -> int:
    return int(min(ctx.param.num_image * ctx.param.num_roi_per_image, rows))
