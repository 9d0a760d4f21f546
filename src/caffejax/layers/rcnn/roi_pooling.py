"""ROIPooling: maxima over the bins of each region of interest."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..context import Context
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .maxima import Rectangles, maxima, spread
from .rois import bins, images_in, numbers, pooled_size, require_maps_and_rois, rounded, widened


def roi_pooling(ctx: Context, data: jax.Array, rois: jax.Array) -> jax.Array:
    """Maxima over pooled_h x pooled_w bins of each region of a map: R x C x pooled_h x pooled_w.

    Rows of the second bottom are image, x1, y1, x2, y2. Their corners, widened by `pad_ratio` of the sides, times
    `spatial_scale` are rounded, and bins may share cells. An empty bin gives 0, an image that is not there NaN.
    """
    where, wrong = _bins(ctx, data, rois)
    return maxima(data, where) + wrong.astype(data.dtype)


def roi_pooling_backward(
    ctx: Context, data: jax.Array, rois: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    return spread(dy, data, _bins(ctx, data, rois)[0]), None


register(
    LayerType(
        Signature("ROIPooling", bottoms=2, param="roi_pooling_param", in_place=False),
        Traced(roi_pooling),
        Gradient(roi_pooling_backward, indices=Indices((1,), ignores_gradient=True)),
        LayerTraits(row_wise=True, row_bottoms=(1,), dtype_policy="bottoms"),
        docs=LayerDocs(
            origin="py-faster-rcnn",
            restrictions="Bins have exact borders, where the fork's float32 may count one more row or column.",
        ),
    )
)


def _bins(ctx: Context, data: jax.Array, rois: jax.Array) -> tuple[Rectangles, jax.Array]:
    """Return the bins, and what to add to the values of each region."""
    require_maps_and_rois(data, rois)
    pooled_h, pooled_w = pooled_size(ctx.param)
    image, boxes = numbers(rois)
    corners = rounded(widened(boxes, ctx.param.pad_ratio) * ctx.param.spatial_scale)
    sizes = jnp.maximum(corners[:, 2:] - corners[:, :2] + 1, 1)
    top, bottom = bins(corners[:, 1], sizes[:, 1], pooled_h, data.shape[2])
    left, right = bins(corners[:, 0], sizes[:, 0], pooled_w, data.shape[3])
    image, wrong = images_in(image, data.shape)
    return Rectangles(image, top, bottom, left, right), wrong[:, None, None, None]
