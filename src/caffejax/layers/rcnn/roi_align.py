"""ROIAlign: bilinear samples at the corners of the bins of each region of interest."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..context import Context
from ..dtypes import promote
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .rois import images_in, numbers, pooled_size, require_maps_and_rois, widened
from .samples import Along, beside, sampled, spread


def roi_align(ctx: Context, data: jax.Array, rois: jax.Array) -> jax.Array:
    """Bilinear samples of a map at the corners of each region's bins: R x C x (pooled_h + 1) x (pooled_w + 1).

    Boxes, widened by `pad_ratio` of their sides, are scaled and not rounded. A cell's centre is half a cell from its
    border; samples outside of the map, and of boxes without width or height, are 0. No gradient reaches the boxes.
    """
    image, rows, columns, wrong = _points(ctx, data, rois)
    return (sampled(promote(data), image, rows, columns) + wrong).astype(data.dtype)


def roi_align_backward(
    ctx: Context, data: jax.Array, rois: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    image, rows, columns, _ = _points(ctx, data, rois)
    return spread(dy, data, image, rows, columns), None


register(
    LayerType(
        Signature("ROIAlign", bottoms=2, param="roi_pooling_param", in_place=False),
        Traced(roi_align),
        Gradient(roi_align_backward, indices=Indices((1,), ignores_gradient=True)),
        LayerTraits(row_wise=True, row_bottoms=(1,), dtype_policy="bottoms"),
        docs=LayerDocs(
            origin="MS-CNN", restrictions="Detectron's form, with several samples in each bin, is another layer."
        ),
    )
)


def _points(ctx: Context, data: jax.Array, rois: jax.Array) -> tuple[jax.Array, Along, Along, jax.Array]:
    """Return the images, the rows and columns of the samples, and what to add to the values of each region."""
    require_maps_and_rois(data, rois)
    pooled_h, pooled_w = pooled_size(ctx.param)
    image, boxes = numbers(rois)
    image, wrong = images_in(image, data.shape)
    x1, y1, x2, y2 = jnp.moveaxis(widened(boxes, ctx.param.pad_ratio) * ctx.param.spatial_scale, 1, 0)
    there = (x2 > x1) & (y2 > y1)
    rows = _along(y1, y2, pooled_h, data.shape[2], there)
    columns = _along(x1, x2, pooled_w, data.shape[3], there)
    return image, rows, columns, wrong[:, None, None, None]


def _along(low: jax.Array, high: jax.Array, n: int, length: int, there: jax.Array) -> Along:
    # Boxes often end where the map does, and a last digit decides whether their last sample counts. So each operation
    # rounds by itself, as in C: XLA multiplies by the reciprocal of a constant, and fuses a product into a sum.
    step = ((high - low) / jnp.where(there, n, 1))[:, None]
    position = low[:, None] + jnp.maximum(jnp.arange(n + 1) * step, 0) - 0.5
    counts = (position >= -0.5) & (position <= length - 0.5) & there[:, None]
    cells, weights = beside(jnp.where(counts, jnp.clip(position, 0, length - 1), 0), length)  # NaN is in no cell
    return Along(cells, (jnp.where(counts, weights[0], 0), jnp.where(counts, weights[1], 0)))
