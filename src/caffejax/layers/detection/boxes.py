"""Boxes as detection layers have them: overlaps, and the suppression of those that overlap better ones.

A box is (x1, y1, x2, y2) along the last axis. Forks that count pixels take its sides for x2 - x1 + 1, those that have
fractions of the image for x2 - x1: `plus` is that 1 or 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..namespace import namespace_of


def areas(boxes: Any, plus: float = 0.0, *, xp: Any = jnp) -> Any:
    """Return the areas of boxes (..., 4); 0 of those with x2 < x1 or y2 < y1."""
    x1, y1, x2, y2 = (boxes[..., i] for i in range(4))
    return xp.where((x2 < x1) | (y2 < y1), 0.0, (x2 - x1 + plus) * (y2 - y1 + plus))


def shared_areas(a: Any, b: Any, plus: float = 0.0, *, touching: bool = False, xp: Any = jnp) -> Any:
    """Return the areas that boxes (..., 4) that broadcast have in common.

    Args:
        a, b: the boxes.
        plus: see the module's text.
        touching: whether they have to touch for that, as in SSD, MS-CNN and Cascade R-CNN; else, as in py-faster-rcnn,
            boxes that are less than `plus` apart have a common area, too.
        xp: the module of the arrays, jax.numpy or numpy.
    """
    reach = xp.minimum(a[..., 2:], b[..., 2:]) - xp.maximum(a[..., :2], b[..., :2])
    sides = reach + plus
    meet = xp.all((reach >= 0) if touching else (sides > 0), axis=-1)
    return xp.where(meet, sides[..., 0] * sides[..., 1], 0.0)


def overlaps(a: Any, b: Any, plus: float = 0.0, *, touching: bool = False, xp: Any = jnp) -> Any:
    """Return intersection over union of boxes (..., 4) that broadcast, 0 where they do not meet: see `shared_areas`."""
    inside = shared_areas(a, b, plus, touching=touching, xp=xp)
    union = areas(a, plus, xp=xp) + areas(b, plus, xp=xp) - inside
    return xp.where(union > 0, inside / xp.where(union > 0, union, 1.0), 0.0)


def unsuppressed(
    boxes: jax.Array,
    valid: jax.Array,
    threshold: Any,
    *,
    plus: float = 0.0,
    eta: float = 1.0,
    or_equal: bool = False,
    most: int | None = None,
    measure: Callable[[jax.Array, jax.Array], jax.Array] | None = None,
) -> jax.Array:
    """Go through boxes from the first on and keep each that overlaps none kept before by more than the threshold.

    Each round keeps the next box that no kept one beats: there are as many rounds as boxes kept, not as boxes.

    Args:
        boxes: (N, 4), the best first.
        valid: (N,), False for boxes that are not there.
        threshold: of the overlap.
        plus: see the module's text.
        eta: below 1, the threshold is multiplied by it after every kept box while it is above 0.5.
        or_equal: whether an overlap that equals the threshold suppresses, too.
        most: how many to keep, no limit unless given.
        measure: `measure(kept, box)` of boxes (..., 4) that broadcast, in place of `overlaps` with `plus`.

    Returns:
        (N,), True for the boxes kept.
    """
    boxes, n = lax.stop_gradient(boxes), boxes.shape[0]
    # what depends on the boxes from the start, for a loop mapped over devices to carry what it makes
    kept = jnp.zeros_like(valid, dtype=bool)
    if isinstance(n, int) and n == 0:
        return kept
    nowhere = 0 * jnp.sum(boxes[:0])
    limit = jnp.asarray(threshold, boxes.dtype) + nowhere
    overlap = jnp.full(n, -jnp.inf, boxes.dtype) + nowhere

    def left(carry: _Carry) -> jax.Array:
        beaten = (carry.overlap >= carry.limit) if or_equal else (carry.overlap > carry.limit)
        return valid & ~beaten & (jnp.arange(n) > carry.last)

    def go_on(carry: _Carry) -> jax.Array:
        there = jnp.any(left(carry))
        return there if most is None else there & (jnp.sum(carry.kept) < most)

    def keep(carry: _Carry) -> _Carry:
        i = jnp.argmax(left(carry)).astype(jnp.int32)
        found = overlaps(boxes[i], boxes, plus) if measure is None else measure(boxes[i], boxes)
        lower = (eta < 1) & (carry.limit > 0.5)
        return _Carry(
            kept=carry.kept.at[i].set(True),
            last=i,
            overlap=jnp.where(found > carry.overlap, found, carry.overlap),  # NaN beats nothing
            limit=jnp.where(lower, carry.limit * eta, carry.limit),
        )

    return lax.while_loop(go_on, keep, _Carry(kept, jnp.sum(kept, dtype=jnp.int32) - 1, overlap, limit)).kept


class _Carry(NamedTuple):
    """Which boxes are kept, the last of them, how much each box overlaps any of them at most, and the threshold."""

    kept: jax.Array
    last: jax.Array
    overlap: jax.Array
    limit: jax.Array


def encode(code: str, boxes: jax.Array, priors: jax.Array, variances: jax.Array | None) -> jax.Array:
    """Return boxes (..., 4) as offsets from priors (..., 4), the inverse of `decode`."""
    sides = priors[..., 2:] - priors[..., :2]
    if code == "CORNER":
        offsets = boxes - priors
    elif code == "CORNER_SIZE":
        offsets = (boxes - priors) / _twice(sides)
    else:
        centers, own = (boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]
        moved = (centers - (priors[..., :2] + priors[..., 2:]) / 2) / sides
        offsets = jnp.concatenate([moved, jnp.log(own / sides)], axis=-1)
    return offsets if variances is None else offsets / variances


def decode(code: str, offsets: Any, priors: Any, variances: Any) -> Any:
    """Return the boxes (..., 4) that offsets (..., 4) make of priors (..., 4), as the SSD fork codes them.

    Args:
        code: CORNER: of the corners; CORNER_SIZE: those over the prior's sides; CENTER_SIZE: of the center over the
            prior's sides, and the logarithms of the sides over the prior's.
        offsets: predicted, or encoded.
        priors: the boxes that they move.
        variances: (..., 4), what the offsets are multiplied by; None where that is in them.
    """
    offsets = offsets if variances is None else offsets * variances
    sides = priors[..., 2:] - priors[..., :2]
    if code == "CORNER":
        return priors + offsets
    if code == "CORNER_SIZE":
        return priors + offsets * _twice(sides)
    centers = (priors[..., :2] + priors[..., 2:]) / 2 + offsets[..., :2] * sides
    xp = namespace_of(offsets, priors)
    half = xp.exp(offsets[..., 2:]) * sides / 2
    return xp.concatenate([centers - half, centers + half], axis=-1)


def _twice(sides: Any) -> Any:
    return namespace_of(sides).concatenate([sides, sides], axis=-1)
