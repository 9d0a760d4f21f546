"""How well a predicted box fits a labelled one: IoU, GIoU, DIoU and CIoU, and their gradients as YOLO takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from .heads import as_corners

# of boxes (..., 4) and their truths, around their middle; and the boxes again, for what is constant in the gradient
Measure = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def iou(a: jax.Array, b: jax.Array, at: jax.Array) -> jax.Array:
    """Return intersection over union."""
    inside, union, _ = _areas(a, b)
    return inside / union


def giou(a: jax.Array, b: jax.Array, at: jax.Array) -> jax.Array:
    """Return IoU less the part of the box around both that belongs to neither."""
    inside, union, around = _areas(a, b)
    hull = jnp.prod(around, axis=-1)
    return inside / union - (hull - union) / hull


def diou(a: jax.Array, b: jax.Array, at: jax.Array) -> jax.Array:
    """Return IoU less the middles' squared distance over the squared diagonal of the box around both."""
    inside, union, around = _areas(a, b)
    return inside / union - jnp.sum(jnp.square(a[..., :2] - b[..., :2]), -1) / jnp.sum(jnp.square(around), -1)


def ciou(a: jax.Array, b: jax.Array, at: jax.Array) -> jax.Array:
    """Return DIoU less what the proportions differ by; the weight of that part is constant."""
    apart = _proportions_apart(at, b)
    weight = apart / (1 - iou(at, b, at) + apart + 1e-6)
    return diou(a, b, at) - weight * _proportions_apart(a, b)


MEASURES: Mapping[str, Measure] = {"IOU": iou, "GIOU": giou, "DIOU": diou, "CIOU": ciou}


def delta(measure: Measure, pred: jax.Array, truth: jax.Array, logs: jax.Array) -> jax.Array:
    """Return what pulls predictions (..., 4) towards their truths: minus the measure's gradient by the box.

    That by width and height is multiplied by the exponentials of `logs`, (..., 2), without the anchor's size.
    """
    gradient = jax.grad(lambda box: jnp.sum(measure(box, truth, pred)))(pred)
    scaled = jnp.concatenate([gradient[..., :2], gradient[..., 2:] * jnp.exp(logs)], axis=-1)
    return -jnp.where(jnp.isfinite(scaled), scaled, 0)


def _proportions_apart(a: jax.Array, b: jax.Array) -> jax.Array:
    angle_a, angle_b = (jnp.arctan2(box[..., 2], box[..., 3]) for box in (a, b))
    return 4 / np.pi**2 * jnp.square(angle_a - angle_b)


def _areas(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the areas of intersection and union, and the sides (..., 2) of the box around both."""
    (a_low, a_high), (b_low, b_high) = (jnp.split(as_corners(box), 2, axis=-1) for box in (a, b))
    inside = jnp.prod(jnp.maximum(jnp.minimum(a_high, b_high) - jnp.maximum(a_low, b_low), 0), axis=-1)
    union = a[..., 2] * a[..., 3] + b[..., 2] * b[..., 3] - inside
    return inside, union, jnp.maximum(a_high, b_high) - jnp.minimum(a_low, b_low)
