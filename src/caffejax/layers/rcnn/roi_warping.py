"""ROIWarping: one bilinear sample for each bin of a region of interest, whose corners get gradients as well."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..context import Context
from ..dtypes import promote
from ..registry import register
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .rois import images_in, numbers, pooled_size, require_maps_and_rois, rounded
from .samples import Along, beside, sampled, spread


def roi_warping(ctx: Context, data: jax.Array, rois: jax.Array) -> jax.Array:
    """One bilinear sample of a map where each bin of a region begins: R x C x pooled_h x pooled_w.

    Corners are scaled and rounded. The gradient reaches the regions too, as if they were not; it takes their sides
    for one cell longer than the values do, and each cell's comes only from the bins that would then be near.
    """
    image, corners = _corners(ctx, data, rois)
    image, wrong = images_in(image, data.shape)
    rows, columns = (beside(p, n) for p, n in zip(_positions(ctx, corners), data.shape[2:], strict=True))
    return (sampled(promote(data), image, rows, columns) + wrong[:, None, None, None]).astype(data.dtype)


def roi_warping_backward(
    ctx: Context, data: jax.Array, rois: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    image, corners = _corners(ctx, data, rois)
    image, _ = images_in(image, data.shape)
    positions = _positions(ctx, corners)
    rows, columns = (beside(p, n) for p, n in zip(positions, data.shape[2:], strict=True))
    near = [_near(a, corners[:, 1 - k], corners[:, 3 - k]) for k, a in enumerate((rows, columns))]
    dx = spread(dy, data, image, near[0], near[1])
    by_row = jnp.sum(dy * sampled(promote(data), image, _slope(rows), columns), axis=1)
    by_column = jnp.sum(dy * sampled(promote(data), image, rows, _slope(columns)), axis=1)
    y1, y2 = _by_corners(jnp.sum(by_row, axis=2), positions[0], corners[:, 1], corners[:, 3])
    x1, x2 = _by_corners(jnp.sum(by_column, axis=1), positions[1], corners[:, 0], corners[:, 2])
    diffs = jnp.stack([jnp.zeros_like(x1), x1, y1, x2, y2], axis=1) * ctx.param.spatial_scale
    return dx, diffs.reshape(rois.shape)


register(
    LayerType(
        Signature("ROIWarping", bottoms=2, param="roi_warping_param", in_place=False),
        Traced(roi_warping),
        Gradient(roi_warping_backward, overrides_autodiff=True),
        LayerTraits(row_wise=True, row_bottoms=(1,), dtype_policy="bottoms"),
        docs=LayerDocs(origin="MNC"),
    )
)


def _corners(ctx: Context, data: jax.Array, rois: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the images, and the rounded corners (R, 4) in cells."""
    require_maps_and_rois(data, rois)
    image, boxes = numbers(rois)
    return image, rounded(boxes * ctx.param.spatial_scale)


def _positions(ctx: Context, corners: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return where the bins begin, (R, pooled_h) and (R, pooled_w)."""
    x1, y1, x2, y2 = (corners[:, i, None] for i in range(4))
    pooled_h, pooled_w = pooled_size(ctx.param)
    return y1 + jnp.arange(pooled_h) * (y2 - y1) / pooled_h, x1 + jnp.arange(pooled_w) * (x2 - x1) / pooled_w


def _near(along: Along, low: jax.Array, high: jax.Array) -> Along:
    """Return the same with weight 0 where a bin, of a region one cell longer, would not be near the cell."""
    n = along.cells[0].shape[1]
    number, size = jnp.arange(n), (high - low + 1)[:, None]

    def weight(cell: jax.Array, weight: jax.Array) -> jax.Array:
        from_start = cell - low[:, None]
        return jnp.where(((number + 1) * size > from_start * n) & (number * size < (from_start + 1) * n), weight, 0)

    first, second = map(weight, along.cells, along.weights)
    return Along(along.cells, (first, second))


def _slope(along: Along) -> Along:
    """Return the cells beside the points with the weights' derivatives."""
    there = jnp.ones_like(along.weights[0])
    return Along(along.cells, (-there, there))


def _by_corners(diff: jax.Array, position: jax.Array, low: jax.Array, high: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the diffs of both ends of regions, of those of the points between."""
    part = (position - low[:, None]) / (high - low + 1)[:, None]
    return jnp.sum(diff * (1 - part), axis=1), jnp.sum(diff * part, axis=1)
