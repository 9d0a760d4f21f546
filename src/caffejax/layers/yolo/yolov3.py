"""Yolov3: the loss of one of YOLOv3's maps."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import require
from ..context import Context
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerType, Signature, Traced
from .heads import Head, anchor_sizes, as_map, centred_overlaps, head, masked, shape_overlaps
from .measures import MEASURES, delta
from .truths import Truths, nan_for_strangers, truths


def yolov3(ctx: Context, x: jax.Array, labels: jax.Array) -> jax.Array:
    """Sum of the squared differences that a map (N, num * (5 + num_class), H, W) is to lose, over N.

    Labels (N, 1, boxes, 5) are class, x, y, width, height, up to a 0. A box belongs to its cell and the anchor most
    like it, if `mask` has that, and to others of `mask` that overlap it by more than `iou_thresh`. Objectness is to
    be 1 there, else 0 unless the prediction overlaps a box by more than `thresh`. The gradient is these differences
    themselves, with `use_logic_gradient` times the sigmoid's slope. With an `iou_loss` other than MSE,
    `iou_normalizer` times 1 less that measure takes the place of the squares of the boxes' differences.
    """
    h, found = _parts(ctx, x, labels)
    differences, lost = _differences(ctx, h, found)
    counted = differences if ctx.param.iou_loss == ctx.param.MSE else differences[..., 4:]
    return nan_for_strangers(
        (jnp.sum(jnp.square(counted)) + jnp.sum(lost)) / max(x.shape[0], 1), found, ctx.param.num_class
    )


def yolov3_backward(
    ctx: Context, x: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    h, found = _parts(ctx, x, labels)
    differences, _ = _differences(ctx, h, found)
    if ctx.param.use_logic_gradient:
        s = jax.nn.sigmoid(h.raw)
        differences *= (s * (1 - s)).at[..., 2:4].set(1)
    return as_map(dy / max(x.shape[0], 1) * differences, x, ctx.param.num).astype(x.dtype), None


register(
    LayerType(
        Signature("Yolov3", bottoms=2, param="yolov3_param", loss=True),
        Traced(yolov3),
        Gradient(yolov3_backward, overrides_autodiff=True, indices=Indices((1,)), exempt_from_force_backward=(1,)),
        docs=LayerDocs(
            origin="MobileNet-YOLO",
            restrictions="Other `iou_loss` than MSE is by its meaning, not compared with the fork. `side` and "
            "`noobject_scale` do nothing, as in the fork; `object_scale` does with `use_logic_gradient`.",
        ),
    )
)


def _parts(ctx: Context, x: jax.Array, labels: jax.Array) -> tuple[Head, Truths]:
    p = ctx.param
    anchors = anchor_sizes(p.biases, "yolov3_param")
    require(p.num > 0 and len(set(p.mask)) == len(p.mask) == p.num, f"yolov3_param.mask must be num = {p.num} anchors")
    require(p.anchors_scale > 0, "yolov3_param.anchors_scale must be above 0")
    h = head(x, masked(anchors, p.mask, "yolov3_param"), p.anchors_scale, p.num_class)
    return h, truths(x.shape, labels, h.sides)


def _belongs(p: Any, found: Truths, anchors: np.ndarray) -> jax.Array:
    """Return which boxes (N, boxes, num) belong to which anchors of the mask."""
    alike = shape_overlaps(found.boxes[..., None, 2:], jnp.asarray(anchors, found.boxes.dtype))
    best = jnp.argmax(alike, axis=-1)[..., None] == np.array(p.mask)
    more = alike[..., list(p.mask)] > p.iou_thresh if p.iou_thresh < 1 else False
    return (best | more) & found.placed[..., None]


def _differences(ctx: Context, h: Head, found: Truths) -> tuple[jax.Array, jax.Array]:
    """Return what each number is to lose, (N, cells, 5 + classes), and the images' losses by the measure, (N,)."""
    p = ctx.param
    sides = h.sides * p.anchors_scale
    belongs = _belongs(p, found, anchor_sizes(p.biases, "yolov3_param") / sides)
    return jax.vmap(lambda *image: _of_image(p, h._replace(raw=image[0]), *image[1:]))(h.raw, found, belongs)


def _of_image(p: Any, h: Head, found: Truths, belongs: jax.Array) -> tuple[jax.Array, jax.Array]:
    cells, (per_anchor, n_boxes) = len(h.corners), (len(h.corners) // p.num, len(found.classes))
    s = jax.nn.sigmoid(h.raw)
    boxes = h.boxes(s[:, :2])
    overlap = jnp.max(centred_overlaps(boxes[:, None], found.boxes), axis=1, where=found.seen, initial=0)

    # for each box and anchor the cell, or one past the last, where nothing is written
    at = jnp.where(belongs, found.places[:, None] + np.arange(p.num) * per_anchor, cells)
    order = jnp.broadcast_to(jnp.arange(n_boxes)[:, None], at.shape)
    first = jnp.full(cells, n_boxes).at[at].min(order, mode="drop")
    last = jnp.full(cells, -1).at[at].max(order, mode="drop")
    cell = jnp.minimum(at, cells - 1)
    classes = jnp.broadcast_to(found.classes[:, None], at.shape)

    taken = first < n_boxes
    objectness = jnp.where(overlap > p.thresh, 0, s[:, 4])
    to_one = (s[:, 4] - 1) * (p.object_scale if p.use_logic_gradient else 1)
    pulls, lost = _boxes(p, h, s, boxes, found, cell)
    pulled = at if p.accumulate else jnp.where(order == last[cell], at, cells)
    return jnp.concatenate(
        [
            jnp.zeros_like(s[:, :4]).at[pulled].add(pulls, mode="drop"),
            jnp.where(taken, to_one, objectness)[:, None],
            jnp.where(taken[:, None], _classes(p, s[:, 5:], at, classes, order == first[cell]), 0),
        ],
        axis=1,
    ), jnp.sum(jnp.where(belongs, lost, 0))


def _boxes(
    p: Any, h: Head, s: jax.Array, boxes: jax.Array, found: Truths, cell: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return what the predictions in `cell`, (boxes, num), are to lose, (..., 4), and their losses by the measure."""
    truth = jnp.broadcast_to(found.boxes[:, None], (*cell.shape, 4))
    kind = p.IOU_LOSS.Name(p.iou_loss)
    if kind == "MSE":
        dtype = truth.dtype
        middles = truth[..., :2] * h.sides.astype(dtype) - jnp.asarray(h.corners, dtype)[cell]
        # a row of padding has no logarithm, nor has it a gradient
        sizes = jnp.log(jnp.where(truth[..., 2:] > 0, truth[..., 2:], 1) / jnp.asarray(h.anchors, dtype)[cell])
        given = jnp.concatenate([s[:, :2], h.raw[:, 2:4]], axis=1)[cell]
        scale = p.coord_scale * (2 - truth[..., 2:3] * truth[..., 3:])
        return scale * (given - jnp.concatenate([middles, sizes], axis=-1)), jnp.zeros(cell.shape, dtype)
    measure, pred = MEASURES[kind], boxes[cell]
    pull = p.iou_normalizer * delta(measure, pred, truth, h.raw[cell][..., 2:4])
    return jnp.clip(pull, -p.max_delta, p.max_delta), p.iou_normalizer * (1 - measure(pred, truth, pred))


def _classes(p: Any, s: jax.Array, at: jax.Array, classes: jax.Array, is_first: jax.Array) -> jax.Array:
    """Return what the classes (cells, classes) are to lose where a box belongs.

    The first box in a cell says what all are to be; those that follow only raise their own.
    """
    own = jnp.zeros_like(s).at[jnp.where(is_first, at, len(s)), classes].set(1, mode="drop")
    later = jnp.zeros(s.shape, bool).at[jnp.where(is_first, len(s), at), classes].set(True, mode="drop")
    smooth = p.label_smooth_eps
    raised = s - (1 - 0.5 * smooth)
    if p.use_focal_loss:
        known = jnp.sum(own * s, axis=1, keepdims=True) + 1e-15
        all_of_them = (s - own) * 0.5 * -(1 - known) * (2 * known * jnp.log(known) + known - 1)
    else:
        all_of_them = s - (own * (1 - smooth) + 0.5 * smooth)
    return p.class_scale * jnp.where(later, raised, all_of_them)
