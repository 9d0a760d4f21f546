"""Figures on maps of boxes: the share of right classes, and how well boxes fit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .. import across
from ..boxes import overlaps
from ..context import Context
from .multitask import Labels


def shares_of_right_classes(ctx: Context, right: jax.Array, labels: Labels, classes: jax.Array) -> jax.Array:
    """Return the share of places whose class is right, and that of those with an object; 1 x 1 x 1 x 2, -1 for none.

    Args:
        ctx: the layer.
        right: (batch, height, width).
        labels: ground truth.
        classes: its classes, as they are counted.
    """
    ignored = labels.ignored(ctx, classes) | ((classes == 0) & (labels.overlap >= ctx.param.bg_threshold))
    shares = [_mean(ctx, right, counts) for counts in (~ignored, ~ignored & (classes != 0))]
    return jnp.stack(shares).reshape(1, 1, 1, 2)


def mean_overlap(ctx: Context, boxes: jax.Array, labels: Labels, plus: float) -> jax.Array:
    """Return how much boxes overlap the objects where there are some, in the mean; 1 x 1 x 1 x 1, -1 for none.

    Args:
        ctx: the layer.
        boxes: (batch, 4, height, width), left, top, width and height.
        labels: ground truth.
        plus: how much larger a side is than x2 - x1.
    """
    truth = jnp.concatenate([labels.boxes[:, :2] - labels.boxes[:, 2:] / 2, labels.boxes[:, 2:]], axis=1)
    fits = overlaps(_corners(boxes, plus), _corners(truth, plus), plus, touching=True)
    return _mean(ctx, fits, (labels.classes != 0) & ~labels.ignored(ctx, labels.classes)).reshape(1, 1, 1, 1)


def _corners(boxes: jax.Array, plus: float) -> jax.Array:
    return jnp.moveaxis(jnp.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:] - plus], axis=1), 1, -1)


def _mean(ctx: Context, values: Any, counts: jax.Array) -> jax.Array:
    values = values if jnp.issubdtype(values.dtype, jnp.floating) else values.astype(jnp.float32)
    total, count = (across.total(ctx, jnp.sum(x, dtype=values.dtype)) for x in (jnp.where(counts, values, 0), counts))
    return jnp.where(count > 0, total / jnp.maximum(count, 1), -1)
