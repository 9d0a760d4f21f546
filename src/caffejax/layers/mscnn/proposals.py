"""Proposals: of many scored boxes of each image the best, none of which overlaps a better one too much."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from ..boxes import Divisor, overlaps, select_best
from .shapes import with_four_axes

_NOTHING = (0.0, 1.0, 1.0, 10.0, 10.0)  # the one ROI where nothing is found; of the second top, zeros
_ABSENT = -1.0


Measure = Callable[[jax.Array, jax.Array], jax.Array]
_DIVISORS: dict[str, Divisor] = {"IOU": "union", "IOMU": "smaller", "IOFU": "first"}


def overlap_measure(nms_type: str, plus: float) -> Measure:
    """Return the measure of overlap for an `nms_type`; `plus` is added to x2 - x1 for the side of a box.

    Raises:
        LayerError: if the forks have no such measure.
    """
    require(nms_type in _DIVISORS, f"nms_type must be one of {', '.join(_DIVISORS)}, not '{nms_type}'")
    return partial(overlaps, plus=plus, touching=True, over=_DIVISORS[nms_type])


@dataclass(frozen=True)
class Choice:
    """How proposals are chosen.

    Attributes:
        threshold: of the overlap that suppresses.
        measure: of overlap.
        before: how many of the best boxes of an image are looked at, 0 for all.
        after: how many are kept, 0 for all.
    """

    threshold: float
    measure: Measure
    before: int
    after: int

    def best(self, boxes: jax.Array, scores: jax.Array, valid: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the chosen rows [x1, y1, x2, y2, score] of an image, the best first; and which are there.

        Args:
            boxes: (n, 4).
            scores: (n,), of equal ones the first comes first.
            valid: (n,), False for boxes that do not take part.
        """
        indices, kept = select_best(
            boxes,
            scores,
            valid,
            self.threshold,
            n_candidates=self.before or None,
            n_kept=self.after or None,
            measure=self.measure,
        )
        return jnp.concatenate([boxes, scores[:, None]], axis=1)[indices], kept


def choice(p: Any, plus: float) -> Choice:
    """Return what the parameters of a layer say."""
    measure = overlap_measure(p.nms_type, plus)
    require(p.min_size >= 0, f"min_size must not be below 0, but is {p.min_size}")
    return Choice(p.iou_thr, measure, p.max_nms_num, p.max_post_nms_num)


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
