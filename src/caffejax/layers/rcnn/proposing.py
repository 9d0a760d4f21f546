"""What layers that propose regions share: the best boxes, none of which overlaps a better one by much."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ...errors import require
from ..boxes import select_best


class Limits(NamedTuple):
    """How many boxes are looked at, how many are kept, and from which overlap on a better box suppresses one."""

    before: int
    after: int
    overlap: float


class Best(NamedTuple):
    """Boxes (K, 4) and scores (K,), the best first; `there`, (K,), is True for as many as there are."""

    boxes: jax.Array
    scores: jax.Array
    there: jax.Array

    @property
    def rois(self) -> jax.Array:
        """Rows 0, x1, y1, x2, y2; of padding -1, 0, 0, 0, 0."""
        image = jnp.where(self.there, 0.0, -1.0).astype(self.boxes.dtype)
        return jnp.concatenate([image[:, None], jnp.where(self.there[:, None], self.boxes, 0)], axis=1)

    @property
    def marked_scores(self) -> jax.Array:
        """The scores, -1 of padding."""
        return jnp.where(self.there, self.scores, -1)


def require_maps(scores: Any, deltas: Any, im_info: Any, n_anchors: int, least: int) -> None:
    """Raise `LayerError` unless the bottoms are of one image, with 2 scores and 4 deltas for each anchor.

    Args:
        scores, deltas, im_info: the bottoms.
        n_anchors: how many anchors there are at each cell.
        least: how many numbers there must be about the image.
    """
    for i, (x, n) in enumerate(((scores, 2 * n_anchors), (deltas, 4 * n_anchors))):
        require(
            len(x.shape) == 4 and x.shape[:2] == (1, n),
            f"bottom {i} must be of one image and have {n} channels, for {n_anchors} anchors: not shape {x.shape}",
        )
    require(scores.shape[2:] == deltas.shape[2:], f"bottoms 0 and 1 differ in size: {scores.shape} and {deltas.shape}")
    require_image(im_info, least)


def require_image(im_info: Any, least: int) -> None:
    """Raise `LayerError` unless there are so many numbers in the first row about the image."""
    shape = im_info.shape
    require(
        len(shape) >= 2 and shape[0] == 1 and shape[1] >= least,
        f"im_info must be a row of {least} numbers (height, width, scale ...) about one image, not shape {shape}",
    )


def best(boxes: jax.Array, scores: jax.Array, valid: jax.Array, limits: Limits, order: jax.Array | None = None) -> Best:
    """Go through boxes (N, 4) from the best score on and keep those that overlap none kept before by too much.

    `order`, if given, says how to go through all of them, and else it is the first of equal ones.
    """
    require(limits.before > 0 and limits.after > 0, f"must look at and keep one box at least, not {limits}")
    n = min(limits.before, boxes.shape[0])
    if order is None:
        _, order = lax.top_k(jnp.where(valid, scores, -jnp.inf), n)
    indices, kept = select_best(
        boxes, scores, valid, limits.overlap, n_candidates=n, n_kept=limits.after, order=order, plus=1.0
    )
    return Best(boxes[indices], scores[indices], kept)
