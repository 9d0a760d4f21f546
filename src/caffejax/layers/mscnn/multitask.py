"""The losses of what proposes boxes: of its class scores and of its deltas, each a mean over the places that count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from .. import across
from ..axes import four_axes
from ..context import Context

_LEAST = float(jnp.finfo(jnp.float32).tiny)  # no logarithm is taken of a smaller probability


@dataclass(frozen=True)
class Labels:
    """Ground truth at each place of a map.

    Attributes:
        classes: (batch, height, width), whole numbers; 0 is background.
        boxes: (batch, 4, height, width), centre, width and height.
        overlap: (batch, height, width), with the nearest object.
    """

    classes: jax.Array
    boxes: jax.Array
    overlap: jax.Array

    def ignored(self, ctx: Any, classes: jax.Array) -> jax.Array:
        """Return True where the class is loss_param's ignore_label."""
        p = ctx.layer.loss_param
        return classes == p.ignore_label if p.HasField("ignore_label") else jnp.zeros(classes.shape, bool)


def labels_of(x: jax.Array, scores: Any, name: str) -> Labels:
    """Return a bottom (batch, 6, height, width) of label, box and overlap as `Labels`.

    Raises:
        LayerError: if it is not of the shape of the scores.
    """
    batch, _, height, width = four_axes(scores, "bottom 0")
    require(
        tuple(x.shape) == (batch, 6, height, width),
        f"{name} must have label, box (4) and overlap for each place, ({batch}, 6, {height}, {width}), not {x.shape}",
    )
    x = jax.lax.stop_gradient(x)
    return Labels(x[:, 0].astype(jnp.int32), x[:, 1:5], x[:, 5])


def log_probabilities(scores: jax.Array) -> jax.Array:
    """Return those of classes along axis 1, as the forks hold them: no less than that of the smallest float."""
    return jnp.maximum(jax.nn.log_softmax(scores, axis=1), jnp.log(jnp.asarray(_LEAST, scores.dtype)))


def class_loss(ctx: Context, scores: jax.Array, classes: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the weighted mean of -log of the classes' probabilities, and its gradient by the scores.

    Args:
        ctx: the layer.
        scores: (batch, classes, height, width).
        classes: (batch, height, width). Where one counts that there is not, the loss is NaN.
        weights: (batch, height, width), NaN where a place does not count.
    """
    own = classes[:, None] == jnp.arange(scores.shape[1])[:, None, None]
    counts = ~jnp.isnan(weights)
    weights = jnp.where(counts, weights, 0)
    count = across.count(ctx, counts).astype(scores.dtype)
    loss = -jnp.sum(jnp.where(own, log_probabilities(scores), 0) * weights[:, None]) / count
    known = jnp.all(jnp.any(own, axis=1) | ~counts)
    return jnp.where(known, loss, jnp.nan), (jax.nn.softmax(scores, axis=1) - own) * weights[:, None] / count


def box_loss(
    ctx: Context, deltas: jax.Array, targets: jax.Array, counts: jax.Array, smooth: bool
) -> tuple[jax.Array, jax.Array]:
    """Return the mean of half the squared difference, if `smooth` of its smooth L1 form; and its gradient by deltas.

    Args:
        ctx: the layer.
        deltas, targets: (batch, 4, height, width).
        counts: (batch, height, width), which places count.
        smooth: linear where the difference is more than 1.
    """
    difference = jnp.where(counts[:, None], deltas - targets, 0)
    slope = jnp.clip(difference, -1, 1) if smooth else difference
    count = 4 * across.count(ctx, counts).astype(deltas.dtype)
    return jnp.sum(slope * (difference - slope / 2)) / count, slope / count


def two_losses(ctx: Context, of_classes: jax.Array, of_boxes: jax.Array) -> jax.Array:
    """Return the top: both losses, and that of boxes; 1 x 1 x 1 x 2. It is of the whole batch, though it has axes."""
    return across.mean(ctx, jnp.stack([of_classes + of_boxes, of_boxes])).reshape(1, 1, 1, 2)


def weight_of(ctx: Context, dy: jax.Array) -> jax.Array:
    """Return what the device's own gradients are multiplied by, from the diff of `two_losses`."""
    return dy.reshape(2)[0] / across.devices(ctx)


def balanced(
    ctx: Context, objects: jax.Array, background: jax.Array, share: float, dtype: Any
) -> tuple[jax.Array, jax.Array]:
    """Return the weights of objects and of background by which the former make that share of all that is sampled.

    Args:
        ctx: the layer.
        objects, background: which places are, and are sampled.
        share: of objects.
        dtype: of the weights.
    """
    sums = [across.total(ctx, jnp.sum(places, dtype=dtype)) for places in (objects, background)]
    of_objects, of_background = (
        jnp.where(total > 0, part * sum(sums) / jnp.maximum(total, 1), 1)
        for part, total in zip((share, 1 - share), sums, strict=True)
    )
    return of_objects, of_background
