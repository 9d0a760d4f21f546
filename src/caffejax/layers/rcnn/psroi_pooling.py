"""PSROIPooling: averages over the bins of each region of interest, each bin's of a channel of its own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from ...errors import require
from ..context import Context
from ..dtypes import promote
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .rois import bins, images_in, numbers, require_maps_and_rois, rounded

_LEAST = 0.1  # of a region's sides, in cells


def psroi_pooling(ctx: Context, data: jax.Array, rois: jax.Array) -> jax.Array:
    """Averages over group_size x group_size bins of each region, bin (i, j) of map channel (c * group + i) * group + j.

    The top is R x output_dim x group_size x group_size. Corners are rounded before they are scaled. An empty bin
    gives 0, an image that is not there NaN.
    """
    in_row, in_column, area, wrong = _bins(ctx, data, rois)
    groups = ctx.param.group_size
    maps = promote(data).reshape(data.shape[0], -1, groups, groups, *data.shape[2:])

    def row_of_bins(given: tuple[jax.Array, jax.Array]) -> jax.Array:
        maps, in_row = given  # (N, C, group, H, W), (R, N, H): sums along the columns of cells, then along the rows
        return jnp.einsum("rcjw,rjw->rcj", jnp.einsum("rnh,ncjhw->rcjw", in_row, maps), in_column)

    sums = lax.map(row_of_bins, (jnp.moveaxis(maps, 2, 0), jnp.moveaxis(in_row, 1, 0)))
    return (jnp.moveaxis(sums, 0, 2) / area + wrong).astype(data.dtype)


def psroi_pooling_backward(
    ctx: Context, data: jax.Array, rois: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    in_row, in_column, area, _ = _bins(ctx, data, rois)

    def row_of_bins(given: tuple[jax.Array, jax.Array]) -> jax.Array:
        dy, in_row = given
        return jnp.einsum("rnh,rcjw->ncjhw", in_row, jnp.einsum("rcj,rjw->rcjw", dy, in_column))

    shares = jnp.moveaxis(promote(dy) / area, 2, 0)
    found = lax.map(row_of_bins, (shares, jnp.moveaxis(in_row, 1, 0)))
    return jnp.moveaxis(found, 0, 2).reshape(data.shape).astype(data.dtype), None


register(
    LayerType(
        Signature("PSROIPooling", bottoms=2, param="psroi_pooling_param", in_place=False),
        Traced(psroi_pooling),
        Gradient(psroi_pooling_backward, indices=Indices((1,), ignores_gradient=True)),
        LayerTraits(row_wise=True, row_bottoms=(1,), dtype_policy="bottoms"),
        docs=LayerDocs(
            origin="R-FCN",
            restrictions="Bins have exact borders, where the fork's float32 may count one more row or column.",
        ),
    )
)


def _bins(ctx: Context, data: jax.Array, rois: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return 1 for cells in a bin: (R, group, N, H) and (R, group, W); the bins' areas; what to add to the values."""
    require_maps_and_rois(data, rois)
    p = ctx.param
    require(p.group_size > 0 and p.output_dim > 0, "group_size and output_dim must be > 0")
    channels = p.output_dim * p.group_size**2
    require(
        data.shape[1] == channels,
        f"needs output_dim * group_size**2 = {channels} channels, but bottom 0 has {data.shape[1]}",
    )
    image, boxes = numbers(rois)
    image, wrong = images_in(image, data.shape)
    start, end = rounded(boxes[:, :2]) * p.spatial_scale, (rounded(boxes[:, 2:]) + 1) * p.spatial_scale
    size = jnp.maximum(end - start, _LEAST)
    top, bottom = bins(start[:, 1], size[:, 1], p.group_size, data.shape[2])
    left, right = bins(start[:, 0], size[:, 0], p.group_size, data.shape[3])
    of_image = image[:, None] == jnp.arange(data.shape[0])
    dtype = jnp.promote_types(data.dtype, jnp.float32)
    in_row = (_between(top, bottom, data.shape[2])[:, :, None] & of_image[:, None, :, None]).astype(dtype)
    in_column = _between(left, right, data.shape[3]).astype(dtype)
    area = jnp.maximum(bottom - top, 0)[:, :, None] * jnp.maximum(right - left, 0)[:, None, :]
    return in_row, in_column, jnp.maximum(area, 1)[:, None].astype(dtype), wrong[:, None, None, None]


def _between(low: jax.Array, high: jax.Array, length: int) -> jax.Array:
    cell = jnp.arange(length)
    return (cell >= low[:, :, None]) & (cell < high[:, :, None])
