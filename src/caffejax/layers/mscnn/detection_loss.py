"""DetectionLoss: the loss of what proposes boxes, from a map that holds class scores and deltas."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .. import across
from ..context import Context
from ..dtypes import promote
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerType, Signature, Traced
from .fields import fields
from .multitask import Labels, balanced, box_loss, class_loss, labels_of, two_losses, weight_of
from .ranks import highest
from .regression import bounds, normalization
from .shapes import require_scores_and_deltas

_FEWEST = 4  # background places of each class that are looked at in any case

Losses = tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


def detection_loss(ctx: Context, x: jax.Array, truth: jax.Array) -> jax.Array:
    """Softmax loss of class scores plus `lambda` times the loss of deltas, of objects and a sample; 1 x 1 x 1 x 2.

    Bottom 0 is N x (cls_num + 4) x H x W, bottom 1 ground truth N x 6 x H x W: label, box, overlap. The second number
    is the part of the deltas, and its diff counts for nothing. Background has label 0 and an overlap below
    `bg_threshold`; it counts if it is hard for some class ("bootstrap"), drawn ("random"), some of both ("mixture"), or
    all of it, as `sample_mode` says. Deltas are bounded, though not for the gradient.
    """
    (of_classes, _), (of_boxes, _) = _losses(ctx, x, truth)
    return two_losses(ctx, of_classes, getattr(ctx.param, "lambda") * of_boxes)


def detection_loss_backward(
    ctx: Context, x: jax.Array, truth: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    (_, by_scores), (_, by_deltas) = _losses(ctx, x, truth)
    by_x = jnp.concatenate([by_scores, getattr(ctx.param, "lambda") * by_deltas], axis=1)
    return weight_of(ctx, dy) * by_x, None


register(
    LayerType(
        Signature(
            "DetectionLoss",
            bottoms=2,
            param="detection_loss_param",
            loss=True,
            in_place=False,
        ),
        Traced(detection_loss),
        Gradient(
            detection_loss_backward, overrides_autodiff=True, indices=Indices((1,)), exempt_from_force_backward=(1,)
        ),
        docs=LayerDocs(origin="MS-CNN"),
    )
)


def _losses(ctx: Context, x: jax.Array, truth: jax.Array) -> Losses:
    """Return the loss of classes and its gradient by scores; and those of boxes by deltas."""
    p, norm = ctx.param, normalization(ctx)
    field = fields([p.field_w], [p.field_h], p.downsample_rate, "downsample_rate")
    require_scores_and_deltas(p, x.shape)
    labels = labels_of(truth, x.shape, "bottom 1 (ground truth)")
    x = promote(x)
    scores, deltas = x[:, : p.cls_num], x[:, p.cls_num :]
    objects, background = labels.classes != 0, _background(ctx, scores, labels)
    weights = jnp.ones(objects.shape, x.dtype)
    if p.pos_neg_weighted:
        of_objects, of_background = balanced(ctx, objects, background, 1 / (1 + p.bg_multiple), x.dtype)
        weights = jnp.where(objects, of_objects, jnp.where(across.total(ctx, jnp.sum(objects)) > 0, of_background, 1))
    ignored = labels.ignored(ctx, labels.classes)
    counts = (objects | background) & ~ignored
    of_classes = class_loss(ctx, scores, labels.classes, jnp.where(counts, weights, jnp.nan))
    deltas = bounds(p).normalized_held(deltas, 1, norm)
    targets = field.encoded(promote(labels.boxes), norm)
    return of_classes, box_loss(ctx, deltas, targets, objects & ~ignored, p.bb_smooth)


def _background(ctx: Context, scores: jax.Array, labels: Labels) -> jax.Array:
    """Return which places of background count, (batch, height, width)."""
    p, shape = ctx.param, labels.classes.shape
    places = shape[1] * shape[2]
    among = ((labels.classes == 0) & (labels.overlap < p.bg_threshold)).reshape(shape[0], places)
    if p.sample_mode not in ("bootstrap", "random", "mixture"):
        return among.reshape(shape)
    share = p.bg_multiple * (0.5 if p.sample_mode == "mixture" else 1.0)
    found = jnp.zeros(among.shape, bool)
    classes = labels.classes.reshape(shape[0], places)
    if p.sample_mode != "random":
        for k in range(1, p.cls_num):
            count = jnp.floor(jnp.sum(classes == k, axis=1) * share).astype(jnp.int32)
            hard = scores[:, k].reshape(shape[0], places)
            found |= highest(hard, among, jnp.maximum(count, _FEWEST))
    if p.sample_mode != "bootstrap":
        count = jnp.floor(jnp.sum(classes != 0, axis=1) * share).astype(jnp.int32)
        fewest = _FEWEST * (p.cls_num - 1)
        found |= _drawn(ctx.key, among, jnp.maximum(count, fewest), max(int(places * share), fewest))
    return found.reshape(shape)


def _drawn(key: jax.Array, among: jax.Array, count: jax.Array, most: int) -> jax.Array:
    """Return which places of each row `count` draws hit, with repetition and of all places, of those that take part."""
    rows, places = among.shape
    hits = jax.random.randint(key, (rows, most), 0, places)
    hits = jnp.where(jnp.arange(most) < count[:, None], hits, places)  # out of range: no hit
    return among & jax.vmap(lambda h: jnp.zeros(places, bool).at[h].set(True, mode="drop"))(hits)
