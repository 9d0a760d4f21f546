"""Boxes: areas, overlap, non-maximum suppression, and SSD's encoding of boxes as offsets from priors.

A box is (x1, y1, x2, y2) along the last axis. Forks of Caffe differ in details, which are parameters here:

- `side_offset` is 1 in forks that count pixels, where a side is x2 - x1 + 1. It is 0 where coordinates are fractions of
  the image.
- `must_touch` is True in SSD, MS-CNN and Cascade R-CNN: boxes that do not touch have no intersection. It is False in
  py-faster-rcnn: boxes whose distance is less than `side_offset` also have an intersection.
- `divisor` is the area by which the area of intersection is divided: the union, the smaller area, or the area of the
  first box.
- `suppress_equal` is True in YOLO, where a box is also suppressed if its overlap equals the threshold.

Functions without a loop also accept NumPy arrays. They then compute with NumPy, without compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...core.layers.helpers import array_namespace

Divisor = Literal["union", "smaller", "first"]


def areas(boxes: Any, side_offset: float = 0.0) -> Any:
    """Return the areas of boxes, (..., 4) to (...). An area is 0 if x2 < x1 or y2 < y1.

    For `side_offset`, see the module docstring.
    """
    x1, y1, x2, y2 = (boxes[..., i] for i in range(4))
    return array_namespace(boxes).where((x2 < x1) | (y2 < y1), 0.0, (x2 - x1 + side_offset) * (y2 - y1 + side_offset))


def intersections(a: Any, b: Any, side_offset: float = 0.0, *, must_touch: bool = False) -> Any:
    """Return the areas of intersection of boxes `a` and `b`, both (..., 4); their leading axes broadcast.

    For `side_offset` and `must_touch`, see the module docstring.
    """
    xp = array_namespace(a, b)
    lengths = xp.minimum(a[..., 2:], b[..., 2:]) - xp.maximum(a[..., :2], b[..., :2])
    sides = lengths + side_offset
    intersects = xp.all((lengths >= 0) if must_touch else (sides > 0), axis=-1)
    return xp.where(intersects, sides[..., 0] * sides[..., 1], 0.0)


def overlaps(a: Any, b: Any, side_offset: float = 0.0, *, must_touch: bool = False, divisor: Divisor = "union") -> Any:
    """Return the overlaps of boxes `a` and `b`: by default the intersection over union, and 0 for disjoint boxes.

    Args:
        a, b: the boxes, both (..., 4); their leading axes broadcast.
        side_offset: added to x2 - x1 for the side of a box.
        must_touch: whether boxes intersect only if they share a point even without `side_offset`.
        divisor: the area by which the intersection is divided: of the "union", the "smaller" box, or `a` ("first").
    """
    xp = array_namespace(a, b)
    intersection, area = intersections(a, b, side_offset, must_touch=must_touch), areas(a, side_offset)
    if divisor == "union":
        denominator = area + areas(b, side_offset) - intersection
    else:
        denominator = area if divisor == "first" else xp.minimum(area, areas(b, side_offset))
    return xp.where(denominator > 0, intersection / xp.where(denominator > 0, denominator, 1.0), 0.0)


class Selection(NamedTuple):
    """The boxes that remain after non-maximum suppression, best first, followed by padding.

    Attributes:
        indices: (K,), indices into the array of boxes.
        selected: (K,), True for boxes that remain, False for padding.
    """

    indices: jax.Array
    selected: jax.Array


def select_best(
    boxes: jax.Array,
    scores: jax.Array,
    valid: jax.Array,
    threshold: Any,
    *,
    n_candidates: int | None = None,
    max_selected: int | None = None,
    order: jax.Array | None = None,
    side_offset: float = 0.0,
    suppress_equal: bool = False,
    measure: Callable[[jax.Array, jax.Array], jax.Array] | None = None,
) -> Selection:
    """Return the boxes that remain after non-maximum suppression, best first.

    Args:
        boxes: (N, 4), x1, y1, x2, y2 of each box.
        scores: (N,). Boxes with equal scores keep their order.
        valid: (N,), False for boxes that are ignored.
        threshold, side_offset, suppress_equal, measure: see `non_max_suppression`.
        n_candidates: the number of best boxes to consider. Default: all.
        max_selected: the maximum number of boxes to select. Default: no limit.
        order: (M,), the indices of the boxes in the order in which they are considered. Default: by descending score.

    Returns:
        A selection of length min(n_candidates, max_selected, M), where M is N without `order`.
    """
    n = boxes.shape[0] if order is None else order.shape[0]
    n = min(n_candidates or n, n)
    if order is None:
        order = jnp.argsort(jnp.where(valid, -scores, jnp.inf), stable=True)
    order = order[:n]
    selected = non_max_suppression(
        boxes[order],
        valid[order],
        threshold,
        side_offset=side_offset,
        suppress_equal=suppress_equal,
        max_selected=max_selected,
        measure=measure,
    )
    positions = jnp.argsort(~selected, stable=True)[: min(max_selected or n, n)]
    return Selection(order[positions], selected[positions])


def non_max_suppression(
    boxes: jax.Array,
    valid: jax.Array,
    threshold: Any,
    *,
    side_offset: float = 0.0,
    eta: float = 1.0,
    suppress_equal: bool = False,
    max_selected: int | None = None,
    measure: Callable[[jax.Array, jax.Array], jax.Array] | None = None,
) -> jax.Array:
    """Return the mask of the boxes that remain after non-maximum suppression.

    A box is suppressed if an earlier box that remains overlaps it by more than the threshold. Each round of the loop
    selects the next box that is not suppressed, so there is one round for each selected box.

    Args:
        boxes: (N, 4), the best first.
        valid: (N,), False for padding.
        threshold: the overlap above which a box is suppressed.
        side_offset: added to x2 - x1 for the side of a box.
        eta: if it is below 1, each selected box multiplies the threshold by it while the threshold is above 0.5.
        suppress_equal: whether an overlap equal to the threshold also suppresses.
        max_selected: the maximum number of boxes to select. Default: no limit.
        measure: `measure(selected, boxes)` returns the overlaps of two arrays of boxes (..., 4), which broadcast.
            Default: `overlaps` with `side_offset`.

    Returns:
        (N,), True for the selected boxes.
    """
    boxes, n = lax.stop_gradient(boxes), boxes.shape[0]
    # The initial carry is made to depend on the boxes: under shard_map the carry's type must not change in the loop.
    selected = jnp.zeros_like(valid, dtype=bool)
    if isinstance(n, int) and n == 0:
        return selected
    if eta == 1 and isinstance(n, int) and avoids_loops():
        earlier, later = boxes[:, None], boxes[None]
        overlap = overlaps(earlier, later, side_offset) if measure is None else measure(earlier, later)
        return _suppress_in_rounds(
            (overlap >= threshold) if suppress_equal else (overlap > threshold), valid, max_selected
        )
    zero_from_boxes = 0 * jnp.sum(boxes[:0])
    initial_threshold = jnp.asarray(threshold, boxes.dtype) + zero_from_boxes
    initial_overlap = jnp.full(n, -jnp.inf, boxes.dtype) + zero_from_boxes

    def mask_remaining_boxes(carry: _Carry) -> jax.Array:
        overlap, threshold = carry.max_overlap, carry.threshold
        is_suppressed = (overlap >= threshold) if suppress_equal else (overlap > threshold)
        return valid & ~is_suppressed & (jnp.arange(n) > carry.last_index)

    def has_next(carry: _Carry) -> jax.Array:
        any_remains = jnp.any(mask_remaining_boxes(carry))
        return any_remains if max_selected is None else any_remains & (jnp.sum(carry.selected) < max_selected)

    def select_next(carry: _Carry) -> _Carry:
        i = jnp.argmax(mask_remaining_boxes(carry)).astype(jnp.int32)
        new_overlap = overlaps(boxes[i], boxes, side_offset) if measure is None else measure(boxes[i], boxes)
        lowers_threshold = (eta < 1) & (carry.threshold > 0.5)
        return _Carry(
            selected=carry.selected.at[i].set(True),
            last_index=i,
            # NaN suppresses nothing
            max_overlap=jnp.where(new_overlap > carry.max_overlap, new_overlap, carry.max_overlap),
            threshold=jnp.where(lowers_threshold, carry.threshold * eta, carry.threshold),
        )

    return lax.while_loop(
        has_next,
        select_next,
        _Carry(selected, jnp.sum(selected, dtype=jnp.int32) - 1, initial_overlap, initial_threshold),
    ).selected


_avoids_loops: ContextVar[bool] = ContextVar("avoids_loops", default=False)


@contextmanager
def suppress_without_loops() -> Iterator[None]:
    """Return a context manager in which `non_max_suppression` is unrolled: one round for each box, and no loop.

    The results are the same. Exports use it for engines in which loops do not work. With `eta` below 1, or a symbolic
    number of boxes, `non_max_suppression` still has a loop.
    """
    token = _avoids_loops.set(True)
    try:
        yield
    finally:
        _avoids_loops.reset(token)


def avoids_loops() -> bool:
    """Return whether the caller is inside `suppress_without_loops`."""
    return _avoids_loops.get()


def _suppress_in_rounds(suppresses: jax.Array, valid: jax.Array, max_selected: int | None) -> jax.Array:
    """Return the mask, (N,), of the boxes that remain after non-maximum suppression. The boxes are sorted, best first.

    In each round, a box is selected if no earlier box that was selected in the previous round suppresses it. After
    round n, the mask of the first n boxes is final.

    Args:
        suppresses: (N, N), True if the overlap of the row's box and the column's box is large enough for suppression.
            Only earlier boxes suppress, so the elements on and below the diagonal have no effect.
        valid: (N,), False for padding.
        max_selected: the maximum number of boxes to select, or None.
    """
    n = suppresses.shape[0]
    suppressed_by = jnp.swapaxes(suppresses & np.triu(np.ones((n, n), bool), 1), 0, 1).astype(jnp.float32)
    candidates = valid.astype(jnp.float32)[:, None]
    blocks: list[jax.Array] = []
    for start in range(0, n, _BLOCK):
        # with few boxes for each matrix, the work grows with n**2, as that of the loop does
        rows = suppressed_by[start : start + _BLOCK]
        block = candidates[start : start + _BLOCK]
        if blocks:
            block = jnp.maximum(block - rows[:, :start] @ jnp.concatenate(blocks), 0)
        matrix, selected = rows[:, start : start + _BLOCK], block
        for _ in range(block.shape[0] - 1):
            selected = jnp.maximum(block - matrix @ selected, 0)
        blocks.append(selected)
    all_selected = jnp.concatenate(blocks)[:, 0]
    mask = all_selected > 0
    return mask if max_selected is None else mask & (jnp.cumsum(all_selected) <= max_selected)


_BLOCK = 64  # the number of boxes whose rounds are computed together


class _Carry(NamedTuple):
    """The state of the loop of `non_max_suppression`.

    Attributes:
        selected: (N,), True for the boxes selected so far.
        last_index: the index of the last selected box, or -1 before the first.
        max_overlap: (N,), the largest overlap of each box with a selected box.
        threshold: the current threshold, which eta lowers.
    """

    selected: jax.Array
    last_index: jax.Array
    max_overlap: jax.Array
    threshold: jax.Array


def encode_offsets(code: str, boxes: jax.Array, priors: jax.Array, variances: jax.Array | None) -> jax.Array:
    """Return the offsets of boxes from priors, all (..., 4), in one of SSD's encodings.

    This is the inverse of `decode_offsets`.
    """
    sides = priors[..., 2:] - priors[..., :2]
    if code == "CORNER":
        offsets = boxes - priors
    elif code == "CORNER_SIZE":
        offsets = (boxes - priors) / _repeat_sides(sides)
    else:
        centers, size = (boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]
        shift = (centers - (priors[..., :2] + priors[..., 2:]) / 2) / sides
        offsets = jnp.concatenate([shift, jnp.log(size / sides)], axis=-1)
    return offsets if variances is None else offsets / variances


def decode_offsets(code: str, offsets: Any, priors: Any, variances: Any) -> Any:
    """Return the boxes with given offsets from priors, all (..., 4), in one of SSD's encodings.

    Args:
        code: CORNER: offsets of the corners. CORNER_SIZE: offsets of the corners divided by the prior's sides.
            CENTER_SIZE: the shift of the center divided by the prior's sides, and the logarithms of the box's sides
            divided by the prior's sides.
        offsets: predicted or encoded offsets.
        priors: the boxes that the offsets move.
        variances: (..., 4), factors of the offsets, or None if the offsets already include them.
    """
    offsets = offsets if variances is None else offsets * variances
    sides = priors[..., 2:] - priors[..., :2]
    if code == "CORNER":
        return priors + offsets
    if code == "CORNER_SIZE":
        return priors + offsets * _repeat_sides(sides)
    centers = (priors[..., :2] + priors[..., 2:]) / 2 + offsets[..., :2] * sides
    xp = array_namespace(offsets, priors)
    half = xp.exp(offsets[..., 2:]) * sides / 2
    return xp.concatenate([centers - half, centers + half], axis=-1)


def _repeat_sides(sides: Any) -> Any:
    return array_namespace(sides).concatenate([sides, sides], axis=-1)
