"""What YOLO's outputs share: the best of all boxes of a batch, as rows (image, class + 1, score, x1, y1, x2, y2)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..boxes import select_best
from ..types import OWN_IMAGES, Transform
from .heads import as_corners

ONE_LIST: dict[Transform, str] = {
    "shard": "the boxes of all images make one list, in which they suppress each other",
    "joined": OWN_IMAGES,
}


def rows(
    boxes: jax.Array, scores: jax.Array, classes: jax.Array, wanted: jax.Array, threshold: float, n: int
) -> jax.Array:
    """Suppress boxes, whatever their class and image, and return the others as rows, the best first.

    The fork throws all images of a batch together, and says of every row that it is of image 0. Where nothing is
    found, there is a row of -1 for each image, with its number.

    Args:
        boxes: (boxes, 4), around their middle.
        scores: (boxes,).
        classes: (boxes,).
        wanted: (boxes,), those above the threshold of scores.
        threshold: of the overlap, from which on a worse box is suppressed.
        n: how many images there are.

    Returns:
        (1, 1, boxes, 7), padded with rows of -1.
    """
    corners = as_corners(boxes)
    indices, kept = select_best(corners, scores, wanted, threshold, or_equal=True)
    columns = jnp.concatenate([(classes + 1.0)[:, None], scores[:, None], corners], axis=1)
    numbers = jnp.arange(scores.shape[0])
    image = jnp.where(jnp.any(kept), jnp.where(kept, 0, -1), jnp.where(numbers < n, numbers, -1))
    filled = jnp.where(kept[:, None], columns[indices], -1)
    return jnp.concatenate([image[:, None].astype(filled.dtype), filled], axis=1)[None, None]
