"""ROIPooling and PSROIPooling, which compute maxima and averages over the bins of regions of interest (ROIs)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from ...base.errors import require
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.layers.types import Indices
from ...core.schema.caffe_pb2 import PSROIPoolingParameter, ROIPoolingParameter
from .rectangle_op import Rectangles, rectangle_maxima, scatter_maxima_diff
from .roi_utils import (
    divide_into_bins,
    read_pooled_size,
    replace_missing_images,
    require_maps_and_rois,
    round_nearest,
    split_rois,
    widen_boxes,
)


@register(
    "ROIPooling",
    bottoms=2,
    param="roi_pooling_param",
    in_place=False,
    indices=Indices((1,), ignores_gradient=True),
    row_wise=True,
    row_bottoms=(1,),
    dtype_policy="bottoms",
    origin="py-faster-rcnn",
    restrictions="Bins have exact borders; the fork's float32 arithmetic may add a row or column.",
)
def roi_pooling(p: ROIPoolingParameter, data: jax.Array, rois: jax.Array) -> jax.Array:
    """Compute the maxima over pooled_h x pooled_w bins of each region of a feature map.

    Bottoms: maps (N, C, H, W), and ROIs (R, 5) with rows image, x1, y1, x2, y2. The top has shape (R, C, pooled_h,
    pooled_w). Boxes are extended on every side by `pad_ratio` times their sides, multiplied by `spatial_scale`, and
    rounded to cells. Neighbouring bins may share cells. Empty bins are 0. Values of an image that does not exist are
    NaN.
    """
    rectangles, nan_offset = _read_roi_bins(p, data, rois)
    return rectangle_maxima(data, rectangles) + nan_offset.astype(data.dtype)


@roi_pooling.backward
def roi_pooling_backward(
    p: ROIPoolingParameter, data: jax.Array, rois: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    return scatter_maxima_diff(dy, data, _read_roi_bins(p, data, rois)[0]), None


def _read_roi_bins(p: ROIPoolingParameter, data: jax.Array, rois: jax.Array) -> tuple[Rectangles, jax.Array]:
    """Return the bins of the regions, and an offset that is added to the values of each region, (R, 1, 1, 1).

    The offset is 0, or NaN if the region's image does not exist.
    """
    require_maps_and_rois(data, rois)
    pooled_h, pooled_w = read_pooled_size(p)
    image_index, boxes = split_rois(rois)
    corners = round_nearest(widen_boxes(boxes, p.pad_ratio) * p.spatial_scale)
    sizes = jnp.maximum(corners[:, 2:] - corners[:, :2] + 1, 1)
    first_row, end_row = divide_into_bins(corners[:, 1], sizes[:, 1], pooled_h, data.shape[2])
    first_column, end_column = divide_into_bins(corners[:, 0], sizes[:, 0], pooled_w, data.shape[3])
    image_index, nan_offset = replace_missing_images(image_index, data.shape)
    return Rectangles(image_index, first_row, end_row, first_column, end_column), nan_offset[:, None, None, None]


_MIN_SIDE = 0.1  # cells; the shortest side of a region


@register(
    "PSROIPooling",
    bottoms=2,
    param="psroi_pooling_param",
    in_place=False,
    indices=Indices((1,), ignores_gradient=True),
    row_wise=True,
    row_bottoms=(1,),
    dtype_policy="bottoms",
    origin="R-FCN",
    restrictions="Bins have exact borders; the fork's float32 arithmetic may add a row or column.",
)
def psroi_pooling(p: PSROIPoolingParameter, data: jax.Array, rois: jax.Array) -> jax.Array:
    """Compute averages over group_size x group_size bins of each region, with separate channels for each bin.

    Bottoms: maps (N, output_dim * group_size**2, H, W), and ROIs (R, 5) with rows image, x1, y1, x2, y2. The top has
    shape (R, output_dim, group_size, group_size). Bin (i, j) of channel c averages channel (c * group_size + i) *
    group_size + j of the map. Corners are rounded before they are scaled. Empty bins are 0. Values of an image that
    does not exist are NaN.
    """
    row_mask, column_mask, area, nan_offset = _read_psroi_bins(p, data, rois)
    group_size = p.group_size
    maps = promote(data).reshape(data.shape[0], -1, group_size, group_size, *data.shape[2:])

    def pool_row(row: tuple[jax.Array, jax.Array]) -> jax.Array:
        maps, row_mask = row  # (N, C, group, H, W) and (R, N, H); sum along the height, then along the width
        return jnp.einsum("rcjw,rjw->rcj", jnp.einsum("rnh,ncjhw->rcjw", row_mask, maps), column_mask)

    sums = lax.map(pool_row, (jnp.moveaxis(maps, 2, 0), jnp.moveaxis(row_mask, 1, 0)))
    return (jnp.moveaxis(sums, 0, 2) / area + nan_offset).astype(data.dtype)


@psroi_pooling.backward
def psroi_pooling_backward(
    p: PSROIPoolingParameter, data: jax.Array, rois: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    row_mask, column_mask, area, _ = _read_psroi_bins(p, data, rois)

    def spread_row(row: tuple[jax.Array, jax.Array]) -> jax.Array:
        dy, row_mask = row
        return jnp.einsum("rnh,rcjw->ncjhw", row_mask, jnp.einsum("rcj,rjw->rcjw", dy, column_mask))

    bin_diffs = jnp.moveaxis(promote(dy) / area, 2, 0)
    rows = lax.map(spread_row, (bin_diffs, jnp.moveaxis(row_mask, 1, 0)))
    return jnp.moveaxis(rows, 0, 2).reshape(data.shape).astype(data.dtype), None


def _read_psroi_bins(
    p: PSROIPoolingParameter, data: jax.Array, rois: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return masks of the rows and columns of cells in each bin, the areas of the bins, and offsets of the values.

    The masks have the shapes (R, group, N, H) and (R, group, W). The areas, (R, 1, group, group), are at least 1. The
    offsets, (R, 1, 1, 1), are 0, or NaN if the region's image does not exist.
    """
    require_maps_and_rois(data, rois)
    require(
        p.group_size > 0 and p.output_dim > 0,
        f"group_size and output_dim must be > 0, not {p.group_size} and {p.output_dim}",
    )
    channels = p.output_dim * p.group_size**2
    require(
        data.shape[1] == channels,
        f"needs output_dim * group_size**2 = {channels} channels, but bottom 0 has {data.shape[1]}",
    )
    image_index, boxes = split_rois(rois)
    image_index, nan_offset = replace_missing_images(image_index, data.shape)
    start, end = round_nearest(boxes[:, :2]) * p.spatial_scale, (round_nearest(boxes[:, 2:]) + 1) * p.spatial_scale
    size = jnp.maximum(end - start, _MIN_SIDE)
    first_row, end_row = divide_into_bins(start[:, 1], size[:, 1], p.group_size, data.shape[2])
    first_column, end_column = divide_into_bins(start[:, 0], size[:, 0], p.group_size, data.shape[3])
    is_in_image = image_index[:, None] == jnp.arange(data.shape[0])
    dtype = jnp.promote_types(data.dtype, jnp.float32)
    row_mask = (_range_mask(first_row, end_row, data.shape[2])[:, :, None] & is_in_image[:, None, :, None]).astype(
        dtype
    )
    column_mask = _range_mask(first_column, end_column, data.shape[3]).astype(dtype)
    area = jnp.maximum(end_row - first_row, 0)[:, :, None] * jnp.maximum(end_column - first_column, 0)[:, None, :]
    return row_mask, column_mask, jnp.maximum(area, 1)[:, None].astype(dtype), nan_offset[:, None, None, None]


def _range_mask(low: jax.Array, high: jax.Array, length: int) -> jax.Array:
    cell = jnp.arange(length)
    return (cell >= low[:, :, None]) & (cell < high[:, :, None])
