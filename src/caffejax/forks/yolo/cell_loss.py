"""DetectionLoss of caffe-yolo, YOLOv1's loss of the cells of a grid, and of MS-CNN, a loss of maps."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...core.layers import cross_replica
from ...core.layers.context import Context
from ...core.layers.declaration import declare, register
from ...core.layers.loss_helpers import batch_size, in_valid_rows, one_hot_mask
from ...core.layers.types import Indices, Variants
from ...core.schema.caffe_pb2 import DetectionLossParameter
from ..mscnn.detection_loss import detection_loss
from .prediction_map import CellLabels, CellMap, center_size_overlaps, read_cell_map

_MAX_DISTANCE = 20  # of a prediction from a box, to be compared; fractions of the image


_CELL_SETTINGS = {
    *("side", "num_class", "num_object", "object_scale", "noobject_scale", "class_scale", "coord_scale"),
    *("sqrt", "constriant"),
}


class _Differences(NamedTuple):
    """The differences of a map's values from their targets, 0 for values without target, and masks of cells.

    Attributes:
        classes: (N, classes, cells).
        objectness: (N, cells, boxes), from the overlaps of predictions of objects with their objects, and from 0.
        boxes: (N, cells, boxes, 4).
        is_object: bool (N, cells), the cells with objects.
        is_best: bool (N, cells, boxes), the predictions of objects.
    """

    classes: jax.Array
    objectness: jax.Array
    boxes: jax.Array
    is_object: jax.Array
    is_best: jax.Array


@declare(
    "DetectionLoss",
    bottoms=2,
    param="detection_loss_param",
    loss=True,
    in_place=False,
    overrides_autodiff=True,
    indices=Indices((1,)),
    exempt_from_force_backward=(1,),
    counts_rows=True,
    origin="caffe-yolo",
    restrictions="A batch without objects has only the loss of objectness; in the fork the loss is NaN. "
    "No recorded case.",
)
def cell_detection_loss(p: DetectionLossParameter, x: jax.Array, labels: jax.Array, *, ctx: Context) -> jax.Array:
    """Compute YOLOv1's loss, the sum of the mean squared differences of classes, objectness and boxes.

    Bottom 0, (N, ...), contains for each image the scores of `num_class` classes in side x side cells, then the
    objectness of `num_object` boxes in all cells, then x, y, width and height of the boxes. Bottom 1 is a label of
    BoxData. In a cell with an object, the box that overlaps the object most is trained, or the nearest one if none
    overlaps. Its objectness is 1 in the loss, and its overlap in the gradient. The objectness of all other boxes is 0.
    The gradient is the difference, times the factor of its part, divided by N.
    """
    cells, truth = read_cell_map(p, x, labels)
    d = _compute_differences(p, cells, truth, ctx)
    is_other = in_valid_rows(ctx, ~d.is_best)
    objectness = jnp.square(cells.objectness - d.is_best)
    object_loss = (
        p.class_scale * jnp.sum(jnp.square(d.classes))
        + p.object_scale * jnp.sum(jnp.where(d.is_best, objectness, 0))
        + p.coord_scale * jnp.sum(jnp.square(d.boxes))
    ) / cross_replica.global_count(ctx, d.is_best)
    other_loss = jnp.sum(jnp.where(is_other, objectness, 0)) / cross_replica.global_count(ctx, is_other)
    loss = object_loss + p.noobject_scale * other_loss
    is_unknown = d.is_object & ((truth.classes < 0) | (truth.classes >= p.num_class))
    return jnp.where(jnp.any(is_unknown), jnp.nan, loss)


@cell_detection_loss.backward
def cell_detection_loss_backward(
    p: DetectionLossParameter, x: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context
) -> tuple[jax.Array, None]:
    cells, truth = read_cell_map(p, x, labels)
    d = _compute_differences(p, cells, truth, ctx)
    objectness = jnp.where(d.is_best, p.object_scale, p.noobject_scale) * d.objectness
    parts = p.class_scale * d.classes, objectness.transpose(0, 2, 1), p.coord_scale * d.boxes.transpose(0, 2, 3, 1)
    dx = jnp.concatenate([part.reshape(len(x), -1) for part in parts], axis=1)
    return (dy / batch_size(ctx, x) * dx).reshape(x.shape).astype(x.dtype), None


def _compute_differences(p: Any, cells: CellMap, truth: CellLabels, ctx: Context) -> _Differences:
    is_object, objects = in_valid_rows(ctx, truth.is_object), truth.boxes[:, :, None]
    boxes = cells.decode_boxes(p)
    overlap = center_size_overlaps(boxes, objects)
    distance = jnp.minimum(jnp.linalg.norm(boxes - objects, axis=-1), _MAX_DISTANCE)
    largest_overlap = jnp.max(overlap, axis=2)
    best = jnp.where(largest_overlap > 0, jnp.argmax(overlap, axis=2), jnp.argmin(distance, axis=2))
    is_best = is_object[..., None] & (best[..., None] == jnp.arange(p.num_object))
    targets = jnp.where(is_best, largest_overlap[..., None], 0)
    is_counted = in_valid_rows(ctx, jnp.ones(is_best.shape, bool))
    is_class = one_hot_mask(truth.classes, cells.scores.shape)
    return _Differences(
        jnp.where(is_object[:, None], cells.scores - is_class, 0),
        jnp.where(is_counted, cells.objectness - targets, 0),
        jnp.where(is_best[..., None], cells.boxes - cells.encode_boxes(p, objects), 0),
        is_object,
        is_best,
    )


def _list_settings(layer: Any) -> set[str]:
    return {field.name for field, _ in layer.detection_loss_param.ListFields()}


def select_detection_loss_variant(layer: Any) -> str:
    return "caffe-yolo" if _list_settings(layer) <= _CELL_SETTINGS else "MS-CNN"


def check_settings_of_one_fork(layer: Any, *net: Any) -> Any:
    names = _list_settings(layer)
    cell_names = names & _CELL_SETTINGS
    require(
        not cell_names or cell_names == names,
        f"detection_loss_param has settings of caffe-yolo, {', '.join(sorted(cell_names))}, and of MS-CNN, "
        f"{', '.join(sorted(names - cell_names))}; keep those of one fork",
    )
    return layer


register(
    "DetectionLoss",
    Variants(
        select_detection_loss_variant,
        {"MS-CNN": detection_loss.type, "caffe-yolo": cell_detection_loss.type},
        selection_doc="With a setting of MS-CNN, such as `cls_num`, it is MS-CNN's, otherwise caffe-yolo's.",
        resolve=check_settings_of_one_fork,
    ),
    bottoms=2,
    param="detection_loss_param",
    further_params=("bbox_reg_param",),
    loss=True,
    in_place=False,
    origin="MS-CNN, caffe-yolo",
)
