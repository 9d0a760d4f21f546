"""Proposals: of many scored boxes of each image the best, none of which overlaps a better one too much."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from ..detection.boxes import unsuppressed
from .overlap import overlap, require_measure
from .shapes import with_four_axes

_NOTHING = (0.0, 1.0, 1.0, 10.0, 10.0)  # the one ROI where nothing is found; of the second top, zeros
_ABSENT = -1.0


@dataclass(frozen=True)
class Choice:
    """How proposals are chosen.

    Attributes:
        threshold: of the overlap that suppresses.
        measure: of overlap.
        plus: what is added to x2 - x1 for the side of a box.
        before: how many of the best boxes of an image are looked at, 0 for all.
        after: how many are kept, 0 for all.
    """

    threshold: float
    measure: str
    plus: float
    before: int
    after: int

    def best(self, boxes: jax.Array, scores: jax.Array, valid: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the chosen rows [x1, y1, x2, y2, score] of an image, the best first; and which are there.

        Args:
            boxes: (n, 4).
            scores: (n,), of equal ones the first comes first.
            valid: (n,), False for boxes that do not take part.
        """
        n = boxes.shape[0]
        looked_at = min(self.before or n, n)
        order = jnp.argsort(jnp.where(valid, -scores, jnp.inf), stable=True)[:looked_at]
        boxes, scores, valid = boxes[order], scores[order], valid[order]
        measure = partial(overlap, plus=self.plus, measure=self.measure)
        kept = unsuppressed(boxes, valid, self.threshold, most=self.after or None, measure=measure)
        first = jnp.argsort(~kept, stable=True)[: min(self.after or looked_at, looked_at)]
        return jnp.concatenate([boxes, scores[:, None]], axis=1)[first], kept[first]


def choice(p: Any, plus: float) -> Choice:
    """Return what the parameters of a layer say."""
    require_measure(p.nms_type)
    require(p.min_size >= 0, f"min_size must not be below 0, but is {p.min_size}")
    return Choice(p.iou_thr, p.nms_type, plus, p.max_nms_num, p.max_post_nms_num)


def proposals(
    choice: Choice, boxes: jax.Array, scores: jax.Array, valid: jax.Array, n_tops: int, dtype: Any
) -> tuple[jax.Array, ...]:
    """Return the tops: rows [image, x1, y1, x2, y2], and those with the score. Rows of padding, last, are of -1.

    Args:
        choice: how to choose.
        boxes, scores, valid: as for `Choice.best`, of each image.
        n_tops: 1, or 2 for those with scores, too.
        dtype: of the tops.
    """
    rows, there = jax.vmap(choice.best)(boxes, scores, valid)
    images = jnp.broadcast_to(jnp.arange(rows.shape[0], dtype=rows.dtype)[:, None, None], (*rows.shape[:2], 1))
    rows = jnp.concatenate([images, rows], axis=2).reshape(-1, 6)
    there = there.reshape(-1)
    order = jnp.argsort(~there, stable=True)
    rows = jnp.where(there[order][:, None], rows[order], _ABSENT)
    found = []
    for columns, nothing in ((5, _NOTHING), (6, (0.0,) * 6)):
        first = jnp.where(jnp.any(there), rows[0, :columns], jnp.asarray(nothing, rows.dtype))
        found.append(with_four_axes(rows[:, :columns].at[0].set(first).astype(dtype)))
    return tuple(found[:n_tops])
