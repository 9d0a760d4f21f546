"""Helpers for boxes in MS-CNN and Cascade R-CNN: checks of bottoms, anchor grids, and box deltas with their bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import require
from ...core.layers.context import Context
from ...core.layers.helpers import as_nchw, pad_to_four_axes


def require_columns(shape: Any, name: str, *columns: int) -> int:
    """Return the number of values in each row of a bottom of shape (rows, ...).

    Args:
        shape: the shape.
        name: the name of the bottom in messages.
        columns: the numbers that are allowed; by default any number.

    Raises:
        LayerError: if the shape has fewer than two axes, or the number of values is not allowed.
    """
    size = math.prod(shape[1:])
    require(len(shape) >= 2, f"{name} must have at least 2 axes, (rows, ...), not shape {tuple(shape)}")
    require(
        not columns or size in columns,
        f"{name} must have rows of {' or '.join(map(str, columns))} values, not shape {tuple(shape)}",
    )
    return size


def read_rows(x: Any, name: str, *columns: int) -> Any:
    """Return a bottom as (rows, columns). The arguments `name` and `columns` are those of `require_columns`."""
    return x.reshape(x.shape[0], require_columns(x.shape, name, *columns))


def require_equal_rows(**bottoms: Any) -> None:
    """Raise `LayerError` unless all bottoms, passed by name, have the same size of axis 0."""
    scalars = [name for name, x in bottoms.items() if not x.shape]
    require(not scalars, f"bottoms must have rows, but {' and '.join(scalars)} have no axes")
    num_rows = {name: x.shape[0] for name, x in bottoms.items()}
    require(len(set(num_rows.values())) == 1, f"bottoms must have equal numbers of rows, not {num_rows}")


def expand_to_four_axes(x: Any) -> Any:
    """Return an array with axes of size 1 appended until it has four axes, like blobs of the forks."""
    return x.reshape(pad_to_four_axes(x.shape))


def count_images(num_items: Any, num_anchors: int, name: str = "bottom 0") -> Any:
    """Return the number of images in a batch that contains one item for each image and each anchor.

    Args:
        num_items: the number of items, which may be symbolic.
        num_anchors: the number of anchors.
        name: the name of the bottom in messages.

    Raises:
        LayerError: if the number of items is not a multiple of the number of anchors.
    """
    is_static = isinstance(num_items, int)
    require(
        not is_static or num_items % num_anchors == 0,
        f"{name} has {num_items} items, which is not a multiple of {num_anchors} box shapes (field_w, field_h)",
    )
    return num_items // num_anchors


def group_by_image(x: Any, num_images: Any, num_anchors: int) -> Any:
    """Reshape x from (images * anchors, ...) to (images, anchors, ...), where `num_images` may be symbolic."""
    if isinstance(num_images, int):
        return x.reshape(num_images, num_anchors, *x.shape[1:])
    # a reshape cannot divide a symbolic number of images
    return x[jnp.arange(num_images)[:, None] * num_anchors + jnp.arange(num_anchors)]


def ungroup_images(x: Any, num_items: Any, num_anchors: int) -> Any:
    """Reshape x from (images, anchors, ...) to (images * anchors, ...), where `num_items` may be symbolic."""
    if isinstance(num_items, int):
        return x.reshape(num_items, *x.shape[2:])
    return x[jnp.arange(num_items) // num_anchors, jnp.arange(num_items) % num_anchors]


def require_score_and_delta_maps(score_shape: Any, delta_shape: Any) -> None:
    """Raise `LayerError` unless the shapes are those of scores (N, classes, H, W) and deltas (N, 4, H, W).

    N, H and W must be the same in both shapes.
    """
    require(
        len(score_shape) == len(delta_shape) == 4
        and delta_shape[1] == 4
        and score_shape[:1] + score_shape[2:] == delta_shape[:1] + delta_shape[2:],
        f"needs scores N x classes x H x W and deltas N x 4 x H x W, not {score_shape} and {delta_shape}",
    )


def require_joint_map(p: Any, shape: Any) -> None:
    """Raise `LayerError` unless a shape is (N, cls_num + 4, H, W): a score for each class, then 4 deltas."""
    require(p.coord_num == 4, f"coord_num must be 4 (x, y, width and height), not {p.coord_num}")
    require(p.cls_num > 1, f"cls_num, background included, must be 2 or more, not {p.cls_num}")
    _, channels, _, _ = as_nchw(shape, "bottom 0")
    require(
        channels == p.cls_num + 4,
        f"bottom 0 must have cls_num + coord_num channels, {p.cls_num} + 4, not {channels}: shape {tuple(shape)}",
    )


Floats = tuple[float, ...]


@dataclass(frozen=True)
class DeltaNormalization:
    """The mean and the standard deviation of each delta.

    Attributes:
        mean, std: four values each, for the deltas x, y, w, h.
    """

    mean: Floats
    std: Floats

    def denormalize(self, deltas: Any, axis: int = -1, xp: Any = jnp) -> Any:
        """Return deltas * std + mean. `axis` is the axis of length 4 that contains x, y, w and h."""
        mean, std = (_broadcast_along(v, deltas, axis, xp) for v in (self.mean, self.std))
        return deltas * std + mean

    def normalize(self, deltas: Any, axis: int = -1, xp: Any = jnp) -> Any:
        """Return (deltas - mean) / std. `axis` is the axis of length 4 that contains x, y, w and h."""
        mean, std = (_broadcast_along(v, deltas, axis, xp) for v in (self.mean, self.std))
        return (deltas - mean) / std


def read_normalization(ctx: Context) -> DeltaNormalization:
    """Return the normalization of deltas in bbox_reg_param.

    If means or deviations are missing, deltas are not changed.
    """
    p = ctx.layer.bbox_reg_param
    if not p.bbox_mean or not p.bbox_std:
        return DeltaNormalization((0.0,) * 4, (1.0,) * 4)
    for name in ("bbox_mean", "bbox_std"):
        count = len(getattr(p, name))
        require(count == 4, f"bbox_reg_param needs four values of {name}, for x, y, w and h, not {count}")
    require(min(p.bbox_std) > 0, f"bbox_std must be above 0, not {list(p.bbox_std)}")
    return DeltaNormalization(tuple(p.bbox_mean), tuple(p.bbox_std))


@dataclass(frozen=True)
class DeltaBounds:
    """Bounds of the absolute values of deltas.

    Attributes:
        xy: the bound of the shift of the center, relative to the sides of the anchor.
        wh: the bound of the logarithm of (side of the box / side of the anchor).
    """

    xy: float
    wh: float

    def clip(self, deltas: Any, axis: int) -> Any:
        """Return deltas clipped to the bounds. `axis` is the axis of length 4 that contains x, y, w and h."""
        limits = _broadcast_along((self.xy, self.xy, self.wh, self.wh), deltas, axis, jnp)
        return jnp.clip(deltas, -limits, limits)

    def clip_normalized(self, deltas: Any, axis: int, norm: DeltaNormalization) -> Any:
        """Return normalized deltas clipped to the normalized bounds. `axis` is the axis of length 4 of x, y, w and h.

        The bounds of x and y are both normalized by the arithmetic mean of the means of x and y, and the geometric mean
        of their deviations. The same applies to w and h.
        """
        low, high = [], []
        for bound, first_delta in ((self.xy, 0), (self.wh, 2)):
            mean = sum(norm.mean[first_delta : first_delta + 2]) / 2
            std = math.sqrt(math.prod(norm.std[first_delta : first_delta + 2]))
            low += [(-bound - mean) / std] * 2
            high += [(bound - mean) / std] * 2
        return jnp.clip(
            deltas, _broadcast_along(tuple(low), deltas, axis, jnp), _broadcast_along(tuple(high), deltas, axis, jnp)
        )


def read_bounds(p: Any) -> DeltaBounds:
    """Return the bounds of deltas that the settings field_xyr and field_whr define.

    They are 1 / field_xyr for the shift of the center, and log(field_whr) for the logarithm of the ratio of sides.
    """
    require(p.field_xyr > 0, f"field_xyr must be above 0, not {p.field_xyr}")
    require(p.field_whr >= 1, f"field_whr, the largest factor of a side, must be 1 or more, not {p.field_whr}")
    return DeltaBounds(1 / p.field_xyr, math.log(p.field_whr))


def apply_deltas(boxes: Any, deltas: Any, xp: Any = jnp) -> Any:
    """Return boxes (x1, y1, x2, y2), (..., 4), moved by deltas (..., 4). Deltas of 0 do not change a box.

    The deltas are the shift of the center divided by the sides of the box, and the logarithms of (new side / side). A
    side is x2 - x1 + 1.
    """
    sides = boxes[..., 2:] - boxes[..., :2] + 1
    centers = (boxes[..., 2:] + boxes[..., :2]) / 2 + deltas[..., :2] * sides
    new_sides = sides * xp.exp(deltas[..., 2:])
    corners = centers - (new_sides - 1) / 2
    return xp.concatenate([corners, corners + new_sides - 1], axis=-1)


def _broadcast_along(values: Floats, reference: Any, axis: int, xp: Any) -> Any:
    shape = [1] * reference.ndim
    shape[axis] = 4
    return xp.asarray(np.asarray(values).reshape(shape), reference.dtype)


_MIN_SIDE = 2  # pixels; shorter sides of ground truth are set to this


@dataclass(frozen=True)
class AnchorGrid:
    """The anchors of a map: boxes centered at each cell, to which deltas are relative.

    The forks call the sizes of anchors fields.

    Attributes:
        widths, heights: the sizes of the anchors in pixels. Item i of the batch axis has anchor i modulo the number of
            anchors.
        stride: the distance between neighbouring cells in pixels of the image.
    """

    widths: tuple[int, ...]
    heights: tuple[int, ...]
    stride: int

    def decode(self, deltas: jax.Array, norm: DeltaNormalization, bounds: DeltaBounds) -> jax.Array:
        """Convert normalized deltas (batch, 4, height, width) to boxes: left, top, width and height in pixels."""
        deltas = bounds.clip(norm.denormalize(deltas, 1), 1)
        anchor_size, center = self._anchor_sizes(deltas), self._cell_centers(deltas)
        sides = anchor_size * jnp.exp(deltas[:, 2:])
        return jnp.concatenate([deltas[:, :2] * anchor_size + center - sides / 2, sides], axis=1)

    def encode(self, boxes: jax.Array, norm: DeltaNormalization) -> jax.Array:
        """Convert boxes (batch, 4, height, width) to normalized deltas.

        A box consists of x and y of the center, width and height, in pixels.
        """
        anchor_size = self._anchor_sizes(boxes)
        log_sides = jnp.log(jnp.maximum(boxes[:, 2:], _MIN_SIDE) / anchor_size)
        return norm.normalize(
            jnp.concatenate([(boxes[:, :2] - self._cell_centers(boxes)) / anchor_size, log_sides], axis=1), 1
        )

    def _anchor_sizes(self, reference: jax.Array) -> jax.Array:
        """Return the width and height of each item's anchor in pixels, (batch or 1, 2, 1, 1).

        `reference` is an array (batch, 4, height, width) that determines the batch and the dtype.
        """
        sizes = jnp.asarray([self.widths, self.heights], reference.dtype).T  # (anchors, 2)
        if len(self.widths) > 1:
            sizes = sizes[jnp.arange(reference.shape[0]) % len(self.widths)]
        return sizes[:, :, None, None]

    def _cell_centers(self, reference: jax.Array) -> jax.Array:
        """Return x and y of the center of each cell in pixels of the image, (1, 2, height, width).

        `reference` is an array (batch, 4, height, width) that determines the size of the map and the dtype.
        """
        height, width = reference.shape[2:]
        x, y = ((jnp.arange(n, dtype=reference.dtype) + 0.5) * self.stride for n in (width, height))
        return jnp.stack(jnp.broadcast_arrays(x[None, :], y[:, None]))[None]


def make_anchor_grid(widths: Any, heights: Any, stride: int, stride_name: str = "stride") -> AnchorGrid:
    """Return the grid of anchors of the given widths and heights, in pixels.

    Raises:
        LayerError: if the sizes or the stride are invalid.
    """
    require(
        len(widths) == len(heights) > 0,
        f"needs equal numbers of field_w and field_h, not {len(widths)} and {len(heights)}",
    )
    require(min(*widths, *heights) > 0, f"field_w {list(widths)} and field_h {list(heights)} must be positive")
    require(stride > 0, f"{stride_name} must be above 0, not {stride}")
    return AnchorGrid(tuple(widths), tuple(heights), stride)
