"""Layers of MNC: MaskPooling and MaskResize, and the built-in Python layers MaskLayer and StageBridgeLayer."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import require
from ...core.layers.declaration import declare, register
from ...core.layers.dtype_policy import promote
from ...core.ops.host_constant import host_constant
from ...core.schema.caffe_pb2 import MaskResizeParameter
from ..general.settings_checks import check_plane_size
from .roi_utils import has_rows_of_five
from .rpn_proposals import clip_boxes, decode_boxes, require_one_image


@declare("Python", param="python_param", in_place=False, row_wise=True, dtype_policy="bottoms", origin="MNC")
def mask_layer(masks: jax.Array) -> jax.Array:
    """Reshape each row of size * size values to a mask: (N, size * size) becomes (N, 1, size, size).

    This is MNC's MaskLayer in TEST.
    """
    side = math.isqrt(math.prod(masks.shape[1:]))
    require(
        side > 0 and side**2 == math.prod(masks.shape[1:]),
        f"rows must be square masks, but the bottom has shape {masks.shape}",
    )
    return masks.reshape(masks.shape[0], 1, side, side)


@mask_layer.backward
def mask_layer_backward(masks: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy.reshape(masks.shape)


@register(
    "MaskPooling", bottoms=2, in_place=False, row_wise=True, dtype_policy="bottoms", spatial_map="same", origin="MNC"
)
def mask_pooling(data: jax.Array, mask: jax.Array) -> jax.Array:
    """Multiply each channel of features (N, C, H, W) by masks (N, 1, H, W)."""
    expected = (*data.shape[:1], 1, *data.shape[2:])
    require(len(data.shape) == 4, f"bottom 0 must be N x C x H x W, not {data.shape}")
    require(mask.shape == expected, f"the masks, bottom 1, must have shape {expected}, not {mask.shape}")
    return data * mask


@mask_pooling.backward
def mask_pooling_backward(
    data: jax.Array, mask: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    return dy * mask, jnp.sum(promote(dy) * promote(data), axis=1, keepdims=True)


@register(
    "MaskResize",
    param="mask_resize_param",
    in_place=False,
    overrides_autodiff=True,
    row_wise=True,
    dtype_policy="bottoms",
    origin="MNC",
)
def mask_resize(p: MaskResizeParameter, x: jax.Array) -> jax.Array:
    """Resize (N, C, H, W) to (N, C, output_height, output_width) by bilinear samples at index * size / output size.

    A sample more than half a cell beyond the last cell is 0. As in MNC, the gradient of a cell is the sum over only two
    samples along each axis. If the mask is enlarged, this gradient is not the derivative.
    """
    rows, columns = _make_resize_matrices(p, x, is_backward=False)
    return jnp.einsum("ih,nchw,jw->ncij", rows, promote(x), columns).astype(x.dtype)


@mask_resize.backward
def mask_resize_backward(p: MaskResizeParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    rows, columns = _make_resize_matrices(p, x, is_backward=True)
    return jnp.einsum("ih,ncij,jw->nchw", rows, promote(dy), columns).astype(x.dtype)


def _make_resize_matrices(p: MaskResizeParameter, x: jax.Array, is_backward: bool) -> tuple[jax.Array, jax.Array]:
    require(len(x.shape) == 4, f"the bottom must be N x C x H x W, not {x.shape}")
    sizes = p.output_height, p.output_width
    require(min(sizes) > 0, f"output_height and output_width must be > 0, not {sizes}")
    check_plane_size(sizes, x.shape)
    dtype = jnp.promote_types(x.dtype, jnp.float32)
    rows, columns = (
        host_constant(partial(_make_resize_matrix, n, m, is_backward), (m, n), dtype)
        for n, m in zip(x.shape[2:], sizes, strict=True)
    )
    return rows, columns


def _make_resize_matrix(length: int, size: int, is_backward: bool) -> np.ndarray:
    """Return the weight of each of the `length` cells in each of `size` samples along an axis, (size, length).

    If `is_backward` is true, return the weights of the gradient, in which each cell has weights in only two samples.
    """
    cell, sample = np.arange(length), np.arange(size)[:, None]
    position = sample * length / size
    weights = np.maximum(0, 1 - np.abs(np.minimum(position, length - 1) - cell)) * (position <= length - 0.5)
    first_sample = cell * size // length
    return weights * ((sample == first_sample) | (sample == first_sample + 1)) if is_backward else weights


@declare(
    "Python",
    bottoms=4,
    param="python_param",
    in_place=False,
    stops_gradient=True,
    pads_rows=True,
    origin="MNC",
    restrictions="As in the TEST phase.",
)
def stage_bridge_layer(rois: jax.Array, deltas: jax.Array, scores: jax.Array, im_info: jax.Array) -> jax.Array:
    """Move each ROI of one image by the deltas of its best class, and clip it to the image.

    Bottoms: regions of interest (ROIs), (N, 5), with rows 0, x1, y1, x2, y2; deltas (N, 4 * classes); scores (N,
    classes); height and width of the image (1, 2). The top has the shape of the ROIs. This is MNC's StageBridgeLayer in
    TEST.
    """
    require(has_rows_of_five(rois), f"the ROIs, bottom 0, must have five values in each row, not shape {rois.shape}")
    require(
        len(scores.shape) >= 2
        and scores.shape[0] == rois.shape[0]
        and scores.size == scores.shape[0] * scores.shape[1],
        f"the scores, bottom 2, must have a row for each of {rois.shape[0]} ROIs, not shape {scores.shape}",
    )
    num_rois, num_classes = scores.shape[:2]
    require(num_classes > 0, "the scores, bottom 2, have no classes")
    require(
        deltas.shape[:2] == (num_rois, 4 * num_classes) and deltas.size == num_rois * 4 * num_classes,
        f"bottom 1 must have 4 deltas for each of {num_classes} classes, {(num_rois, 4 * num_classes)}, "
        f"not shape {deltas.shape}",
    )
    require_one_image(im_info, 2)
    regions, image_size = promote(rois).reshape(num_rois, 5), promote(im_info).reshape(im_info.shape[:2])[0]
    best_class = jnp.argmax(scores.reshape(num_rois, num_classes), axis=1)
    best_deltas = jnp.take_along_axis(
        promote(deltas).reshape(num_rois, num_classes, 4), best_class[:, None, None], axis=1
    )[:, 0]
    boxes = clip_boxes(decode_boxes(regions[:, 1:], best_deltas), image_size[0], image_size[1])
    image_index = jnp.minimum(regions[:, :1], 0)  # padding rows do not move
    return jnp.concatenate([image_index, jnp.where(image_index < 0, regions[:, 1:], boxes)], axis=1).astype(rois.dtype)
