"""The grid of labels that DetectNet learns: for each cell, which object covers it, and that object's box."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...errors import require
from ...schema.caffe_pb2 import DetectNetGroundTruthParameter

_BEFORE_CLASSES = 8  # foreground, box (4), 1 / sides (2), norm
_LEAST = 1.1920929e-07  # smaller areas are none
_KITTI_CAR = {1: 0}


class Objects(NamedTuple):
    """What the image shows, in pixels.

    Attributes:
        corner: (M, 2), x and y of the top left.
        sides: (M, 2), width and height.
        kind: (M,), numbers of classes as the labels have them.
        there: (M,), False for rows that hold no object; always for the first.
    """

    corner: jax.Array
    sides: jax.Array
    kind: jax.Array
    there: jax.Array


def objects_of(label: jax.Array) -> Objects:
    """Return what one image's label (1 + most, 16) says: how many objects, then a row for each."""
    row = jnp.arange(label.shape[0])
    return Objects(label[:, :2], label[:, 2:4], label[:, 5].astype(jnp.int32), (row >= 1) & (row <= label[0, 0]))


def grid(p: Any) -> tuple[int, int]:
    """Return how many cells the grid has, down and across."""
    return round(p.image_size_y / p.stride), round(p.image_size_x / p.stride)


def require_ground_truth(p: Any) -> None:
    """Raise `LayerError` unless the parameters make a grid."""
    size = f"stride {p.stride}, image_size_x {p.image_size_x} and image_size_y {p.image_size_y}"
    require(min(p.stride, p.image_size_x, p.image_size_y) > 0, f"{size} must be above 0")
    require(min(grid(p)) > 0, f"{size} make a grid without cells")
    require(p.scale_cvg > 0, f"scale_cvg must be above 0, not {p.scale_cvg:g}")


def coverage_grid(p: Any, objects: Objects) -> jax.Array:
    """Return (8 + classes, *grid) of objects: foreground, box, 1 / sides, norm, and 1 in the channel of the class.

    Boxes are corners relative to the cell's own. Of the objects that cover a cell the last counts.
    """
    classes = {mapping.src: mapping.dst for mapping in p.object_class} or _KITTI_CAR
    objects, channel = _kept(p, objects), jnp.full_like(objects.kind, -1)
    for source, target in classes.items():
        channel = jnp.where(objects.kind == source, target, channel)
    corner, sides = objects.corner, objects.sides
    there = objects.there & (channel >= 0) & (sides[:, 0] * sides[:, 1] >= _LEAST)
    region = _region(p, sides)
    x, y = (jnp.arange(n, dtype=corner.dtype) * p.stride for n in grid(p)[::-1])
    low, high = corner + sides * 0.5 - region * 0.5, corner + sides * 0.5 + region * 0.5
    inside = (
        _shared(low[:, 1], high[:, 1], y, p.stride)[:, :, None] * _shared(low[:, 0], high[:, 0], x, p.stride)[:, None]
    )
    covers = (inside / p.stride**2 > _LEAST) & there[:, None, None]
    last = jnp.max(jnp.where(covers, jnp.arange(len(there))[:, None, None], 0), axis=0)  # row 0 is no object

    safe, area = jnp.where(there[:, None], sides, 1), jnp.where(there, region[:, 0] * region[:, 1], 1)
    norm = jnp.maximum(0.0 if p.obj_norm else 1.0, p.stride**2 / area)
    own = channel[:, None] == jnp.arange(max(classes.values()) + 1)
    facts = [jnp.ones_like(norm)[:, None], corner, corner + sides, 1 / safe, norm[:, None], own.astype(corner.dtype)]
    at_cells = jnp.concatenate(facts, axis=1)[last]
    origin = jnp.stack(jnp.broadcast_arrays(x, y[:, None]), axis=-1)
    at_cells = at_cells.at[:, :, 1:5].add(-jnp.tile(origin, 2))
    return jnp.moveaxis(jnp.where((last > 0)[:, :, None], at_cells, 0), -1, 0)


def channels(p: Any) -> int:
    """Return how many channels the grid has."""
    return _BEFORE_CLASSES + max([mapping.dst for mapping in p.object_class], default=0) + 1


def _kept(p: Any, objects: Objects) -> Objects:
    """Return the objects cropped to the image, if they are to be."""
    if not p.crop_bboxes:
        return objects
    size = jnp.asarray([p.image_size_x, p.image_size_y], objects.corner.dtype)
    corner = jnp.maximum(objects.corner, 0)
    sides = jnp.minimum(objects.corner + objects.sides, size) - corner
    return objects._replace(corner=corner, sides=jnp.where(jnp.all(sides > 0, axis=1, keepdims=True), sides, 0))


def _region(p: Any, sides: jax.Array) -> jax.Array:
    """Return the sides of the region in an object's middle that covers cells."""
    region = sides * p.scale_cvg
    if p.gridbox_type == DetectNetGroundTruthParameter.GRIDBOX_MIN:
        return jnp.minimum(sides, jnp.maximum(p.min_cvg_len, region))
    return jnp.minimum(p.max_cvg_len, region)


def _shared(low: jax.Array, high: jax.Array, start: jax.Array, stride: int) -> jax.Array:
    """Return along one axis how much of each cell (columns) lies within each region (rows)."""
    return jnp.maximum(jnp.minimum(high[:, None], start + stride) - jnp.maximum(low[:, None], start), 0)
