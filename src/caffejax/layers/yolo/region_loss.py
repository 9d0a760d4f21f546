"""RegionLoss: the loss of YOLOv2's map."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import require
from ..context import Context
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerType, Signature, Traced
from .heads import Head, anchor_sizes, as_map, centred_overlaps, head, shape_overlaps
from .truths import Truths, nan_for_strangers, truths


def region_loss(ctx: Context, x: jax.Array, labels: jax.Array) -> jax.Array:
    """Sum of the squared differences that a map (N, num * (5 + num_class), H, W) is to lose, over N.

    Labels (N, 1, boxes, 5) are class, x, y, width, height, up to a 0. A box belongs to its cell and the anchor most
    like it, the last box in a cell to that alone: objectness is to be 1 there, with `rescore` the overlap, else 0
    unless the prediction overlaps a box by more than `thresh`; classes are by softmax. The gradient is these
    differences themselves.
    """
    h, found = _parts(ctx, x, labels)
    loss = jnp.sum(jnp.square(_differences(ctx, h, found))) / max(x.shape[0], 1)
    return nan_for_strangers(loss, found, ctx.param.num_class)


def region_loss_backward(
    ctx: Context, x: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    h, found = _parts(ctx, x, labels)
    return as_map(dy / max(x.shape[0], 1) * _differences(ctx, h, found), x, ctx.param.num).astype(x.dtype), None


register(
    LayerType(
        Signature("RegionLoss", bottoms=2, param="region_loss_param", loss=True),
        Traced(region_loss),
        Gradient(region_loss_backward, overrides_autodiff=True, indices=Indices((1,)), exempt_from_force_backward=(1,)),
        docs=LayerDocs(
            origin="MobileNet-YOLO",
            restrictions="`coords` must be 4. `side`, `softmax`, `softmax_tree`, `class_map`, `jitter`, `absolute` and "
            "`random` do nothing, as in the fork.",
        ),
    )
)


def _parts(ctx: Context, x: jax.Array, labels: jax.Array) -> tuple[Head, Truths]:
    p = ctx.param
    anchors = anchor_sizes(p.biases, "region_loss_param")
    require(p.coords == 4, f"region_loss_param.coords must be 4, not {p.coords}")
    require(len(anchors) == p.num, f"region_loss_param.biases must be of num = {p.num} anchors, not {len(anchors)}")
    h = head(x, anchors, 1, p.num_class)
    return h, truths(x.shape, labels, h.sides)


def _differences(ctx: Context, h: Head, found: Truths) -> jax.Array:
    """Return what each number is to lose, (N, cells, 5 + classes)."""
    of_image = jax.vmap(lambda raw, boxes: _of_image(ctx.param, h._replace(raw=raw), boxes))
    differences: jax.Array = of_image(h.raw, found)
    return differences


def _of_image(p: Any, h: Head, found: Truths) -> jax.Array:
    dtype = h.raw.dtype
    s = jax.nn.sigmoid(h.raw)
    boxes = h.boxes(s[:, :2])
    overlap = jnp.max(centred_overlaps(boxes[:, None], found.boxes), axis=1, where=found.seen, initial=0)
    slope = s[:, 4] * (1 - s[:, 4])

    last = _last_boxes(p, h, found)
    taken = last >= 0
    truth, label = found.boxes[last], found.classes[last]  # what is none is of the last box, and not used
    truth = jnp.where(taken[:, None], truth, 1)
    goal = centred_overlaps(boxes, truth) if p.rescore else 1
    objectness = jnp.where(
        taken,
        p.object_scale * (s[:, 4] - goal),
        jnp.where(overlap > p.thresh, 0, p.noobject_scale * s[:, 4]),
    )
    scale = p.coord_scale * (1 if p.rescore else 2 - truth[:, 2:3] * truth[:, 3:])
    corners, sides = h.corners.astype(dtype), h.sides.astype(dtype)
    to_truth = scale * _pull(s, h, truth[:, :2] * sides - corners, jnp.log(truth[:, 2:] / h.anchors.astype(dtype)))
    own = label[:, None] == np.arange(p.num_class)
    return jnp.concatenate(
        [
            jnp.where(taken[:, None], to_truth, 0),
            (objectness * slope)[:, None],
            jnp.where(taken[:, None], p.class_scale * (jax.nn.softmax(h.raw[:, 5:]) - own), 0),
        ],
        axis=1,
    )


def _pull(s: jax.Array, h: Head, middles: Any, logs: Any) -> jax.Array:
    """Return what takes boxes to these offsets in their cells, times the sigmoid's slope, and to these log sizes."""
    at = s[:, :2]
    return jnp.concatenate([(at - middles) * at * (1 - at), h.raw[:, 2:4] - logs], axis=1)


def _last_boxes(p: Any, h: Head, found: Truths) -> jax.Array:
    """Return for each cell the number of the last box that belongs to it, or -1."""
    per_anchor = len(h.corners) // p.num
    cells = found.places[:, None] + np.arange(p.num) * per_anchor  # (boxes, num)
    if p.bias_match:
        sizes = jnp.asarray(h.anchors[::per_anchor], found.boxes.dtype)
    else:
        held = jnp.clip(cells, 0, len(h.corners) - 1)
        sizes = (jnp.exp(h.raw[:, 2:4]) * h.anchors.astype(h.raw.dtype))[held]
    best = jnp.argmax(shape_overlaps(found.boxes[:, None, 2:], sizes), axis=1)
    at = jnp.where(found.placed, found.places + best * per_anchor, len(h.corners))
    return jnp.full(len(h.corners), -1).at[at].max(jnp.arange(len(at)), mode="drop")
