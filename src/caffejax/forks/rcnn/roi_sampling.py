"""ROIAlign and ROIWarping, which sample maps bilinearly in the bins of regions of interest (ROIs)."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.layers.types import Indices
from ...core.ops.vma import vary_as
from ...core.schema.caffe_pb2 import ROIPoolingParameter, ROIWarpingParameter
from .roi_utils import (
    read_pooled_size,
    replace_missing_images,
    require_maps_and_rois,
    round_nearest,
    split_rois,
    widen_boxes,
)


class AxisWeights(NamedTuple):
    """Weights of bilinear interpolation along one axis of the maps, at n points for each of R regions.

    Attributes:
        cells: two arrays (R, n) of int32, the indices of the two cells beside each point.
        weights: two arrays (R, n), the weights of these cells.
    """

    cells: tuple[jax.Array, jax.Array]
    weights: tuple[jax.Array, jax.Array]


def bilinear_weights(position: jax.Array, length: int) -> AxisWeights:
    """Return the two cells beside each position along an axis, and their weights. Cells outside the axis have weight 0.

    Args:
        position: (R, n), in cells.
        length: the number of cells of the axis.
    """
    low = jnp.floor(position)
    cells = low, low + 1
    weights = low + 1 - position, position - low
    inside_weights = (jnp.where((c >= 0) & (c < length), w, 0) for c, w in zip(cells, weights, strict=True))
    clipped_cells = (jnp.clip(c, 0, length - 1).astype(jnp.int32) for c in cells)
    return AxisWeights((next(clipped_cells), next(clipped_cells)), (next(inside_weights), next(inside_weights)))


def sample_bilinear(x: jax.Array, image_index: jax.Array, rows: AxisWeights, columns: AxisWeights) -> jax.Array:
    """Return bilinear samples of maps at all pairs of a row and a column of each region, (R, C, rows, columns).

    Args:
        x: the maps (N, C, H, W).
        image_index: (R,), the index of the map of each region.
        rows, columns: the weights of the samples along height and width.
    """
    channels_last = jnp.moveaxis(x, 1, -1)
    total: jax.Array | None = None
    for i, j in itertools.product((0, 1), (0, 1)):
        index = image_index[:, None, None], rows.cells[i][:, :, None], columns.cells[j][:, None, :]
        weight = rows.weights[i][:, :, None, None] * columns.weights[j][:, None, :, None]
        product = weight * promote(channels_last.at[index].get(mode="promise_in_bounds"))
        total = product if total is None else total + product
    assert total is not None
    return jnp.moveaxis(total, -1, 1)


def scatter_grad(
    dy: jax.Array, x: jax.Array, image_index: jax.Array, rows: AxisWeights, columns: AxisWeights
) -> jax.Array:
    """Return the gradient of `sample_bilinear` with respect to the maps, (N, C, H, W).

    dy is the gradient of the samples, (R, C, rows, columns).
    """
    zeros = vary_as(jnp.zeros(x.shape, jnp.promote_types(x.dtype, jnp.float32)), dy, image_index, rows.weights[0])
    (dx,) = jax.linear_transpose(lambda x: sample_bilinear(x, image_index, rows, columns), zeros)(
        dy.astype(zeros.dtype)
    )
    return dx.astype(x.dtype)


@register(
    "ROIAlign",
    bottoms=2,
    param="roi_pooling_param",
    in_place=False,
    indices=Indices((1,), ignores_gradient=True),
    row_wise=True,
    row_bottoms=(1,),
    dtype_policy="bottoms",
    origin="MS-CNN",
    restrictions="Detectron's form, with several samples in each bin, is a different layer.",
)
def roi_align(p: ROIPoolingParameter, data: jax.Array, rois: jax.Array) -> jax.Array:
    """Sample a map bilinearly at the corners of the bins of each region.

    Bottoms: maps (N, C, H, W), and ROIs (R, 5) with rows image, x1, y1, x2, y2. The top has shape (R, C, pooled_h + 1,
    pooled_w + 1). Boxes are extended on every side by `pad_ratio` times their sides and multiplied by `spatial_scale`,
    without rounding. The center of a cell is half a cell from its border. Samples outside the map are 0, and so are all
    samples of boxes without width or height. Values of an image that does not exist are NaN. No gradient reaches the
    boxes.
    """
    image_index, rows, columns, nan_offset = _read_align_weights(p, data, rois)
    return (sample_bilinear(promote(data), image_index, rows, columns) + nan_offset).astype(data.dtype)


@roi_align.backward
def roi_align_backward(
    p: ROIPoolingParameter, data: jax.Array, rois: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    image_index, rows, columns, _ = _read_align_weights(p, data, rois)
    return scatter_grad(dy, data, image_index, rows, columns), None


def _read_align_weights(
    p: ROIPoolingParameter, data: jax.Array, rois: jax.Array
) -> tuple[jax.Array, AxisWeights, AxisWeights, jax.Array]:
    """Return each region's image index, the weights of its samples along height and width, and an offset of its values.

    The image indices have shape (R,). The offset, (R, 1, 1, 1), is 0, or NaN if the region's image does not exist.
    """
    require_maps_and_rois(data, rois)
    pooled_h, pooled_w = read_pooled_size(p)
    image_index, boxes = split_rois(rois)
    image_index, nan_offset = replace_missing_images(image_index, data.shape)
    x1, y1, x2, y2 = jnp.moveaxis(widen_boxes(boxes, p.pad_ratio) * p.spatial_scale, 1, 0)
    is_nonempty = (x2 > x1) & (y2 > y1)
    rows = _make_align_weights(y1, y2, pooled_h, data.shape[2], is_nonempty)
    columns = _make_align_weights(x1, x2, pooled_w, data.shape[3], is_nonempty)
    return image_index, rows, columns, nan_offset[:, None, None, None]


def _make_align_weights(low: jax.Array, high: jax.Array, n: int, length: int, valid: jax.Array) -> AxisWeights:
    position = _sample_positions(low, high - low, n, n + 1) - 0.5
    return _masked_weights(position, _is_near(position, length) & valid[:, None], length)


def _sample_positions(start: jax.Array, size: jax.Array, n: int, count: int) -> jax.Array:
    """Return start + i * size / n for 0 <= i < count, (R, count). `start` and `size` have shape (R,)."""
    # Boxes often end at the border of the map, where rounding decides whether the last sample counts. So each operation
    # must round as in C. XLA would multiply by the reciprocal of a constant divisor, and fuse a product into a sum.
    step = (size / jnp.where(size > 0, n, 1))[:, None]
    return start[:, None] + jnp.maximum(jnp.arange(count) * step, 0)


def _is_near(position: jax.Array, length: int) -> jax.Array:
    """Return whether each position is at most half a cell outside an axis of `length` cells."""
    return (position >= -0.5) & (position <= length - 0.5)


def _masked_weights(position: jax.Array, mask: jax.Array, length: int) -> AxisWeights:
    """Return the bilinear weights of positions, (R, n), after clipping the positions to the axis.

    The weights are 0 where the mask, (R, n), is False.
    """
    cells, weights = bilinear_weights(
        jnp.where(mask, jnp.clip(position, 0, length - 1), 0), length
    )  # NaN positions have weight 0
    return AxisWeights(cells, (jnp.where(mask, weights[0], 0), jnp.where(mask, weights[1], 0)))


@register(
    "ROIWarping",
    bottoms=2,
    param="roi_warping_param",
    in_place=False,
    overrides_autodiff=True,
    row_wise=True,
    row_bottoms=(1,),
    dtype_policy="bottoms",
    origin="MNC",
)
def roi_warping(p: ROIWarpingParameter, data: jax.Array, rois: jax.Array) -> jax.Array:
    """Sample a map bilinearly at the start of each bin of a region.

    Bottoms: maps (N, C, H, W), and ROIs (R, 5) with rows image, x1, y1, x2, y2. The top has shape (R, C, pooled_h,
    pooled_w). Corners are multiplied by `spatial_scale` and rounded. Samples more than half a cell outside the map are
    0. Values of an image that does not exist are NaN.

    The gradient is computed as in the fork. It reaches the boxes as if they were not rounded, except from samples in
    the last row or column. For the gradient, the sides of a region are one cell longer than in the forward pass, and a
    cell gets gradient only from bins of this longer region that are near the cell.
    """
    image_index, corners = _round_corners(p, data, rois)
    image_index, nan_offset = replace_missing_images(image_index, data.shape)
    rows, columns = _make_warp_weights(_bin_starts(p, corners), data)
    return (sample_bilinear(promote(data), image_index, rows, columns) + nan_offset[:, None, None, None]).astype(
        data.dtype
    )


@roi_warping.backward
def roi_warping_backward(
    p: ROIWarpingParameter, data: jax.Array, rois: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    image_index, corners = _round_corners(p, data, rois)
    image_index, _ = replace_missing_images(image_index, data.shape)
    positions = _bin_starts(p, corners)
    rows, columns = _make_warp_weights(positions, data)
    near_weights = [_limit_to_near_bins(a, corners[:, 1 - k], corners[:, 3 - k]) for k, a in enumerate((rows, columns))]
    dx = scatter_grad(dy, data, image_index, near_weights[0], near_weights[1])
    inner_rows, inner_columns = _drop_last_cell(rows), _drop_last_cell(columns)
    row_slopes = sample_bilinear(promote(data), image_index, _weight_derivatives(rows), inner_columns)
    column_slopes = sample_bilinear(promote(data), image_index, inner_rows, _weight_derivatives(columns))
    height, width = data.shape[2:]
    d_y1, d_y2 = _corner_diffs(
        jnp.sum(dy * row_slopes, axis=(1, 3)), positions[0], height, corners[:, 1], corners[:, 3]
    )
    d_x1, d_x2 = _corner_diffs(
        jnp.sum(dy * column_slopes, axis=(1, 2)), positions[1], width, corners[:, 0], corners[:, 2]
    )
    diffs = jnp.stack([jnp.zeros_like(d_x1), d_x1, d_y1, d_x2, d_y2], axis=1) * p.spatial_scale
    return dx, diffs.reshape(rois.shape)


def _round_corners(p: ROIWarpingParameter, data: jax.Array, rois: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the image index of each region, (R,), and its rounded corners x1, y1, x2, y2 in cells, (R, 4)."""
    require_maps_and_rois(data, rois)
    image_index, boxes = split_rois(rois)
    return image_index, round_nearest(boxes * p.spatial_scale)


def _bin_starts(p: ROIWarpingParameter, corners: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the rows and the columns at which bins start, (R, pooled_h) and (R, pooled_w), in cells."""
    x1, y1, x2, y2 = (corners[:, i] for i in range(4))
    pooled_h, pooled_w = read_pooled_size(p)
    height, width = jnp.maximum(y2 - y1, 0), jnp.maximum(x2 - x1, 0)
    return _sample_positions(y1, height, pooled_h, pooled_h), _sample_positions(x1, width, pooled_w, pooled_w)


def _make_warp_weights(positions: tuple[jax.Array, jax.Array], data: jax.Array) -> tuple[AxisWeights, AxisWeights]:
    """Return the weights of the samples along height and width, at the positions that `_bin_starts` returns."""
    rows, columns = (_masked_weights(p, _is_near(p, n), n) for p, n in zip(positions, data.shape[2:], strict=True))
    return rows, columns


def _limit_to_near_bins(axis_weights: AxisWeights, low: jax.Array, high: jax.Array) -> AxisWeights:
    """Return the weights, set to 0 where the fork does not count the bin as near the cell.

    The fork's backward pass determines the bins near a cell with regions that are one cell longer than in the forward
    pass. Bin k is near a cell c <= high if floor((c - low - 1) / s - 1) <= k < ceil((c - low + 1) / s), where s = (high
    - low + 1) / n is the size of one of the n bins.

    Args:
        axis_weights: the weights along one axis.
        low, high: (R,), the first and the last cell of each region along this axis.
    """
    n = axis_weights.cells[0].shape[1]
    bin_index, size = jnp.arange(n), jnp.maximum(high - low + 1, 1)[:, None]
    bin_size = size / jnp.where(size > 0, n, 1)  # rounded as in C, see `_sample_positions`

    def limit_weight(cell: jax.Array, weight: jax.Array) -> jax.Array:
        offset = cell - low[:, None]
        is_near = (bin_index >= jnp.floor((offset - 1) / bin_size - 1)) & (
            bin_index < jnp.ceil((offset + 1) / bin_size)
        )
        return jnp.where(is_near & (cell <= high[:, None]), weight, 0)

    first_weight, second_weight = map(limit_weight, axis_weights.cells, axis_weights.weights)
    return AxisWeights(axis_weights.cells, (first_weight, second_weight))


def _drop_last_cell(axis_weights: AxisWeights) -> AxisWeights:
    """Return the weights, set to 0 for samples in the last cell of the axis, which have no second cell."""
    first_weight, second_weight = (
        jnp.where(axis_weights.cells[0] < axis_weights.cells[1], weight, 0) for weight in axis_weights.weights
    )
    return AxisWeights(axis_weights.cells, (first_weight, second_weight))


def _weight_derivatives(axis_weights: AxisWeights) -> AxisWeights:
    """Return the derivatives of the weights with respect to the position, with the cells to which they belong.

    The derivatives are -1 and 1, or 0 for samples in the last cell or outside the map.
    """
    first_weight, second_weight = _drop_last_cell(axis_weights).weights
    is_interior = jnp.where(first_weight + second_weight > 0, 1.0, 0.0)
    return AxisWeights(axis_weights.cells, (-is_interior, is_interior))


def _corner_diffs(
    diff: jax.Array, position: jax.Array, length: int, low: jax.Array, high: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the gradients of the low and the high end of each region along an axis, (R,) each.

    Args:
        diff: (R, n), the gradients of the positions.
        position: (R, n), the positions of the samples in cells.
        length: the number of cells of the axis.
        low, high: (R,), the ends of the regions in cells.
    """
    fraction = (jnp.clip(position, 0, length - 1) - low[:, None]) / jnp.maximum(high - low + 1, 1)[:, None]
    return jnp.sum(diff * (1 - fraction), axis=1), jnp.sum(diff * fraction, axis=1)
