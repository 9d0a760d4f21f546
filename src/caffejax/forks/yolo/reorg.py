"""Reorg and AssistedExcitation, layers that change the feature maps of YOLO."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...base.errors import require
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.layers.types import Indices
from ...core.schema.caffe_pb2 import ReorgParameter
from .prediction_map import read_ground_truth


@register(
    "Reorg",
    param="reorg_param",
    in_place=False,
    row_wise=True,
    dtype_policy="bottoms",
    data_movement="all",
    origin="MobileNet-YOLO",
)
def reorg(p: ReorgParameter, x: jax.Array) -> jax.Array:
    """Reorder (N, C, H, W) to (N, C s^2, H/s, W/s) like darknet, where s = `stride`. `reverse` inverts the operation.

    Darknet reads the values of an image as C/s^2 planes of sH x sW, splits the planes into blocks of s x s, and writes
    each position of a block as C/s^2 planes. This differs from the usual space-to-depth operation.
    """
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (images, channels, height, width), not shape {x.shape}")
    s, (n, channels, height, width) = p.stride, x.shape
    require(s > 0, f"reorg_param.stride must be 1 or more, not {s}")
    require(channels % (s * s) == 0, f"needs a number of channels divisible by stride^2 = {s * s}, not shape {x.shape}")
    if p.reverse:
        return _reorder(x, s, inverts=True).reshape(n, channels // (s * s), height * s, width * s)
    require(
        height % s == 0 and width % s == 0, f"needs height and width divisible by stride = {s}, not shape {x.shape}"
    )
    return _reorder(x, s, inverts=False).reshape(n, channels * s * s, height // s, width // s)


@reorg.backward
def reorg_backward(p: ReorgParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return _reorder(dy.reshape(x.shape), p.stride, inverts=not p.reverse)


def _reorder(x: jax.Array, s: int, inverts: bool) -> jax.Array:
    """Return the values of each image in Reorg's order, in the shape of x. `inverts` inverts the operation."""
    n, channels, height, width = x.shape
    num_planes = channels // (s * s)
    if inverts:
        return x.reshape(n, s, s, num_planes, height, width).transpose(0, 3, 4, 1, 5, 2).reshape(x.shape)
    return x.reshape(n, num_planes, height, s, width, s).transpose(0, 3, 5, 1, 2, 4).reshape(x.shape)


@register(
    "AssistedExcitation",
    bottoms=3,
    in_place=False,
    indices=Indices((1, 2), ignores_gradient=True),
    deviation="The third bottom gets no gradient.",
    row_wise=True,
    spatial_map="same",
    origin="MobileNet-YOLO",
    restrictions="The addition does not fade during training: the fork multiplies it by "
    "cos(pi / 2 * iter / max_iter), which a net does not know. All images are excited; in the fork, which "
    "indexes the masks wrongly, only the first is.",
)
def assisted_excitation(x: jax.Array, labels: jax.Array, mean: jax.Array) -> jax.Array:
    """Add a map to the cells of labelled boxes in each channel of x.

    Bottoms: x (N, C, H, W), labels, and the map (N, 1, H, W) or (N, H, W), which usually is the mean of x. Labels are
    rows (class, x, y, width, height) for each image, up to the first row with x = 0. Coordinates are fractions of the
    image, and (x, y) is the center. Each box covers at least one cell. Only bottom 0 gets a gradient.
    """
    require(len(x.shape) == 4, f"bottom 0 must have 4 axes (images, channels, height, width), not shape {x.shape}")
    expected_shape = (x.shape[0], 1, *x.shape[2:])
    require(
        tuple(mean.shape) in (expected_shape, (x.shape[0], *x.shape[2:])),
        f"bottom 2 must have one channel, shape {expected_shape}, not {mean.shape}",
    )
    excitation = jnp.where(_make_box_mask(x, labels), lax.stop_gradient(promote(mean)).reshape(expected_shape), 0)
    return (promote(x) + excitation).astype(x.dtype)


@assisted_excitation.backward
def assisted_excitation_backward(
    x: jax.Array, labels: jax.Array, mean: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None, None]:
    return dy, None, None


def _make_box_mask(x: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mask (N, 1, H, W) of the cells that at least one labelled box covers."""
    height, width = x.shape[2:]
    grid_size = np.array([width, height])
    objects = read_ground_truth(x.shape, labels, grid_size)
    centers, half_sizes = objects.boxes[..., :2], objects.boxes[..., 2:] / 2
    # the first cell of each box and the cell after its last cell, truncated towards 0
    low = jnp.clip(((centers - half_sizes) * grid_size).astype(jnp.int32), 0, grid_size - 1)
    high = jnp.clip(((centers + half_sizes) * grid_size + 0.95).astype(jnp.int32), low + 1, grid_size)
    rows, columns = jnp.arange(height), jnp.arange(width)
    row_mask = (rows >= low[..., 1:]) & (rows < high[..., 1:])
    column_mask = (columns >= low[..., :1]) & (columns < high[..., :1])
    return jnp.any(
        (objects.valid[..., None, None] & row_mask[..., None] & column_mask[..., None, :]), axis=1, keepdims=True
    )
