"""EvalDetection: which of YOLO's predictions are right, for the average precision."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import require
from ..boxes import non_max_suppression
from ..context import Context
from ..dtypes import promote
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .heads import anchor_sizes, as_corners, centred_overlaps, head
from .truths import truths

_LEAST = 0.005  # scores below it are left out, with anchors


class Boxes(NamedTuple):
    """Predicted or labelled boxes of each image.

    Attributes:
        classes: (N, boxes), numbers.
        boxes: (N, boxes, 4), around their middle, as fractions of the image.
        scores: (N, boxes), of predicted ones; of labelled ones, whether they are easy enough to count.
        there: (N, boxes).
    """

    classes: jax.Array
    boxes: jax.Array
    scores: jax.Array
    there: jax.Array


def eval_detection(ctx: Context, x: jax.Array, labels: jax.Array) -> jax.Array:
    """Number of labels of each class, then (class, score, right, wrong) of each prediction: (N, num_class + boxes * 4).

    With `biases` the first bottom is YOLOv2's map (N, num_object * (5 + num_class), side, side), and labels are rows
    (class, x, y, width, height) up to one with x = 0. Without, they are YOLOv1's: classes, objectness and boxes
    (x, y, width, height) of all cells; and whether objects are difficult, whether there are any, classes and boxes.
    Predictions that overlap a better one by `nms` or more are left out, none if it is negative. They come class by
    class, the best first, and then zeros. A prediction is right if the label of its class that it overlaps most does
    so by `threshold` or more, and no better one has it; of a difficult one it is neither right nor wrong.
    """
    p = ctx.param
    _check(p, x)
    found, given = (_of_anchors if len(p.biases) else _of_cells)(p, x, labels)
    return jax.vmap(lambda f, g: _judged(p, f, g))(found, given).astype(x.dtype)


register(
    LayerType(
        Signature("EvalDetection", bottoms=2, param="eval_detection_param", in_place=False),
        Traced(eval_detection),
        Gradient(exists=False, indices=Indices((1,))),
        LayerTraits(row_wise=True),
        docs=LayerDocs(
            origin="Intel Caffe, caffe-yolo",
            restrictions="With `biases` too, a prediction that overlaps no label enough is wrong, and a negative nms "
            "leaves all predictions: Intel Caffe forgets such ones. No recorded case.",
        ),
    )
)


def _check(p: Any, x: Any) -> None:
    for name in ("side", "num_class", "num_object"):
        require(getattr(p, name) > 0, f"{name} must be positive")
    require(len(x.shape) > 1, f"needs a bottom of predictions for each image, not shape {x.shape}")


def _of_anchors(p: Any, x: jax.Array, labels: jax.Array) -> tuple[Boxes, Boxes]:
    anchors = anchor_sizes(p.biases, "eval_detection_param")
    require(len(anchors) == p.num_object, f"needs two biases for each of {p.num_object} objects, not {len(p.biases)}")
    cells = head(x, anchors, 1, p.num_class)
    require(tuple(x.shape[2:]) == (p.side, p.side), f"bottom 0 must be {p.side} x {p.side}, not of shape {x.shape}")
    found = truths(x.shape, labels, cells.sides)
    chances = jax.nn.softmax(cells.raw[..., 5:], axis=-1)
    scores = _scores(p, jax.nn.sigmoid(cells.raw[..., 4]), jnp.max(chances, axis=-1))
    boxes = cells.boxes(jax.nn.sigmoid(cells.raw[..., :2]))
    best = jnp.argmax(chances, axis=-1)
    given = Boxes(found.classes, found.boxes, jnp.ones_like(found.classes, bool), found.seen)
    return Boxes(best, boxes, scores, scores >= (_LEAST if p.nms >= 0 else 0)), given


def _of_cells(p: Any, x: jax.Array, labels: jax.Array) -> tuple[Boxes, Boxes]:
    n, cells = x.shape[0], p.side**2
    parts = [p.num_class, p.num_object, 4 * p.num_object]
    for i, (bottom, each) in enumerate(((x, sum(parts)), (labels, 7))):
        size = np.prod(bottom.shape[1:], dtype=int)
        require(
            bottom.shape[0] == n and size == each * cells,
            f"bottom {i} must hold {each} numbers for each of {p.side} x {p.side} cells, not have shape {bottom.shape}",
        )
    chances, objects, raw = jnp.split(promote(x).reshape(n, sum(parts), cells), np.cumsum(parts)[:-1], axis=1)
    raw = raw.reshape(n, p.num_object, 4, cells).transpose(0, 3, 1, 2)  # cell by cell
    corners = jnp.stack(jnp.divmod(jnp.arange(cells), p.side)[::-1], axis=1)[:, None]
    middles = (corners + raw[..., :2]) / p.side if p.constriant else raw[..., :2]
    boxes = jnp.concatenate([middles, jnp.square(raw[..., 2:]) if p.sqrt else raw[..., 2:]], axis=-1)
    scores = (
        _scores(p, objects, jnp.max(chances, axis=1, keepdims=True)).transpose(0, 2, 1).reshape(n, cells * p.num_object)
    )
    best = jnp.repeat(jnp.argmax(chances, axis=1), p.num_object, axis=1)
    difficult, there, classes, rest = jnp.split(
        promote(labels).reshape(n, 7 * cells), [cells, 2 * cells, 3 * cells], axis=1
    )
    given = Boxes(classes.astype(jnp.int32), rest.reshape(n, cells, 4), difficult != 1, there != 0)
    return Boxes(best, boxes.reshape(n, cells * p.num_object, 4), scores, jnp.ones_like(scores, bool)), given


def _scores(p: Any, objectness: jax.Array, chance: jax.Array) -> jax.Array:
    kind = p.ScoreType.Name(p.score_type)
    factors = {"OBJ": objectness + 0 * chance, "PROB": chance + 0 * objectness, "MULTIPLY": objectness * chance}
    return factors[kind]


def _judged(p: Any, found: Boxes, given: Boxes) -> jax.Array:
    """Return the row of one image."""
    order = jnp.argsort(-found.scores, stable=True)
    classes, boxes, scores, there = (part[order] for part in found)
    if p.nms >= 0:
        there &= non_max_suppression(as_corners(boxes), jnp.ones_like(there), p.nms, or_equal=True)
    order = jnp.argsort(jnp.where(there, classes, p.num_class), stable=True)
    classes, boxes, scores, there = (part[order] for part in (classes, boxes, scores, there))
    alike = given.there & (given.classes == classes[:, None])
    overlap = jnp.where(alike, centred_overlaps(boxes[:, None], given.boxes), -1)
    best = jnp.argmax(overlap, axis=1)[:, None] == jnp.arange(overlap.shape[1])
    hit = best & (overlap >= p.threshold) & alike & there[:, None]
    first = hit & (jnp.cumsum(hit, axis=0) == 1)
    right = jnp.any(first & given.scores, axis=1)
    wrong = there & ~right & ~jnp.any(hit & ~given.scores, axis=1)
    columns = jnp.stack([classes.astype(scores.dtype), scores, right.astype(scores.dtype), wrong.astype(scores.dtype)])
    counted = (given.there & given.scores)[:, None] & (given.classes[:, None] == jnp.arange(p.num_class))
    rows = jnp.where(there[:, None], columns.T, 0)
    return jnp.concatenate([jnp.sum(counted, axis=0).astype(scores.dtype), rows.ravel()])
