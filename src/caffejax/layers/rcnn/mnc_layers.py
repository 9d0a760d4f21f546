"""Layers of MNC: MaskPooling and MaskResize, and the built-in Python layers MaskLayer and StageBridgeLayer."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import require
from ...kernels.host_constant import host_constant
from ..context import Context
from ..dtype_policy import promote
from ..helpers import check_plane_size, no_gradient
from ..registry import define_layer
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .roi_utils import are_rows_of_five
from .rpn_proposals import clip_boxes, decode_boxes, require_image


def mask_layer(ctx: Context, masks: jax.Array) -> jax.Array:
    """Reshape each row of size * size values to a mask: (N, size * size) becomes (N, 1, size, size).

    This is MNC's MaskLayer in TEST.
    """
    side = math.isqrt(math.prod(masks.shape[1:]))
    require(
        side > 0 and side**2 == math.prod(masks.shape[1:]),
        f"rows must be square masks, but the bottom has shape {masks.shape}",
    )
    return masks.reshape(masks.shape[0], 1, side, side)


def mask_layer_backward(ctx: Context, masks: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy.reshape(masks.shape)


MASK_LAYER = LayerType(
    Signature("Python", param="python_param", in_place=False),
    Traced(mask_layer),
    Gradient(mask_layer_backward),
    LayerTraits(row_wise=True, dtype_policy="bottoms"),
    docs=LayerDocs(origin="MNC"),
)


def mask_pooling(ctx: Context, data: jax.Array, mask: jax.Array) -> jax.Array:
    """Multiply each channel of features (N, C, H, W) by masks (N, 1, H, W)."""
    expected = (*data.shape[:1], 1, *data.shape[2:])
    require(len(data.shape) == 4, f"bottom 0 must be N x C x H x W, not {data.shape}")
    require(mask.shape == expected, f"the masks, bottom 1, must have shape {expected}, not {mask.shape}")
    return data * mask


def mask_pooling_backward(
    ctx: Context, data: jax.Array, mask: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    return dy * mask, jnp.sum(promote(dy) * promote(data), axis=1, keepdims=True)


define_layer(
    Signature("MaskPooling", bottoms=2, in_place=False),
    Traced(mask_pooling),
    Gradient(mask_pooling_backward),
    LayerTraits(row_wise=True, dtype_policy="bottoms", spatial_map="same"),
    docs=LayerDocs(origin="MNC"),
)


def mask_resize(ctx: Context, x: jax.Array) -> jax.Array:
    """Resize (N, C, H, W) to (N, C, output_height, output_width) by bilinear samples at index * size / output size.

    A sample more than half a cell beyond the last cell is 0. As in MNC, the gradient of a cell is the sum over only two
    samples along each axis. If the mask is enlarged, this gradient is not the derivative.
    """
    rows, columns = _weights(ctx, x, backward=False)
    return jnp.einsum("ih,nchw,jw->ncij", rows, promote(x), columns).astype(x.dtype)


def mask_resize_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    rows, columns = _weights(ctx, x, backward=True)
    return jnp.einsum("ih,ncij,jw->nchw", rows, promote(dy), columns).astype(x.dtype)


define_layer(
    Signature("MaskResize", param="mask_resize_param", in_place=False),
    Traced(mask_resize),
    Gradient(mask_resize_backward, overrides_autodiff=True),
    LayerTraits(row_wise=True, dtype_policy="bottoms"),
    docs=LayerDocs(origin="MNC"),
)


def _weights(ctx: Context, x: jax.Array, backward: bool) -> tuple[jax.Array, jax.Array]:
    require(len(x.shape) == 4, f"the bottom must be N x C x H x W, not {x.shape}")
    sizes = ctx.param.output_height, ctx.param.output_width
    require(min(sizes) > 0, f"output_height and output_width must be > 0, not {sizes}")
    check_plane_size(sizes, x.shape)
    dtype = jnp.promote_types(x.dtype, jnp.float32)
    rows, columns = (
        host_constant(partial(_resize_matrix, n, m, backward), (m, n), dtype)
        for n, m in zip(x.shape[2:], sizes, strict=True)
    )
    return rows, columns


def _resize_matrix(n: int, size: int, backward: bool) -> np.ndarray:
    """Return the weight of each of n cells in each of `size` samples along an axis, (size, n).

    If `backward` is true, return the weights of the gradient, in which each cell has weights in only two samples.
    """
    cell, sample = np.arange(n), np.arange(size)[:, None]
    position = sample * n / size
    weights = np.maximum(0, 1 - np.abs(np.minimum(position, n - 1) - cell)) * (position <= n - 0.5)
    first = cell * size // n
    return weights * ((sample == first) | (sample == first + 1)) if backward else weights


def stage_bridge_layer(
    ctx: Context, rois: jax.Array, deltas: jax.Array, scores: jax.Array, im_info: jax.Array
) -> jax.Array:
    """Move each ROI of one image by the deltas of its best class, and clip it to the image.

    Bottoms: regions of interest (ROIs), (N, 5), with rows 0, x1, y1, x2, y2; deltas (N, 4 * classes); scores (N,
    classes); height and width of the image (1, 2). The top has the shape of the ROIs. This is MNC's StageBridgeLayer in
    TEST.
    """
    require(are_rows_of_five(rois), f"the ROIs, bottom 0, must have five values in each row, not shape {rois.shape}")
    require(
        len(scores.shape) >= 2
        and scores.shape[0] == rois.shape[0]
        and scores.size == scores.shape[0] * scores.shape[1],
        f"the scores, bottom 2, must have a row for each of {rois.shape[0]} ROIs, not shape {scores.shape}",
    )
    rows, classes = scores.shape[:2]
    require(classes > 0, "the scores, bottom 2, have no classes")
    require(
        deltas.shape[:2] == (rows, 4 * classes) and deltas.size == rows * 4 * classes,
        f"bottom 1 must have 4 deltas for each of {classes} classes, {(rows, 4 * classes)}, not shape {deltas.shape}",
    )
    require_image(im_info, 2)
    regions, image = promote(rois).reshape(rows, 5), promote(im_info).reshape(im_info.shape[:2])[0]
    best = jnp.argmax(scores.reshape(rows, classes), axis=1)
    best_deltas = jnp.take_along_axis(promote(deltas).reshape(rows, classes, 4), best[:, None, None], axis=1)[:, 0]
    boxes = clip_boxes(decode_boxes(regions[:, 1:], best_deltas), image[0], image[1])
    padding = jnp.minimum(regions[:, :1], 0)  # padding rows do not move
    return jnp.concatenate([padding, jnp.where(padding < 0, regions[:, 1:], boxes)], axis=1).astype(rois.dtype)


STAGE_BRIDGE_LAYER = LayerType(
    Signature("Python", bottoms=4, param="python_param", in_place=False),
    Traced(stage_bridge_layer),
    Gradient(no_gradient, overrides_autodiff=True, stops_gradient=True),
    LayerTraits(pads_rows=True),
    docs=LayerDocs(origin="MNC", restrictions="As in the TEST phase."),
)
