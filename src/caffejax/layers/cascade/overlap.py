"""How much boxes overlap, in the forks' three measures."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ...errors import require

MEASURES = ("IOU", "IOMU", "IOFU")


def require_measure(nms_type: str) -> None:
    """Raise `LayerError` for a measure that there is not."""
    require(nms_type in MEASURES, f"nms_type must be one of {', '.join(MEASURES)}, not '{nms_type}'")


def overlap(a: Any, b: Any, plus: float, measure: str = "IOU", xp: Any = jnp) -> Any:
    """Return how much boxes (..., 4) that broadcast overlap.

    Boxes that are less than `plus` apart do not meet, unlike in `boxes.overlaps`.

    Args:
        a, b: the boxes (x1, y1, x2, y2).
        plus: 1 where sides are x2 - x1 + 1, 0 where they are x2 - x1.
        measure: what the common area is divided by: "IOU" the union, "IOMU" the smaller area, "IOFU" the area of `a`.
        xp: the module of the arrays, jax.numpy or numpy.
    """
    sides = xp.minimum(a[..., 2:], b[..., 2:]) - xp.maximum(a[..., :2], b[..., :2])
    grown = sides + plus
    inside = xp.where(xp.all(sides >= 0, axis=-1), grown[..., 0] * grown[..., 1], 0)
    areas = _areas(a, plus, xp), _areas(b, plus, xp)
    match measure:
        case "IOMU":
            whole = xp.minimum(*areas)
        case "IOFU":
            whole = areas[0]
        case _:
            whole = areas[0] + areas[1] - inside
    return xp.where(inside > 0, inside / xp.where(inside > 0, whole, 1), 0)


def _areas(boxes: Any, plus: float, xp: Any) -> Any:
    sides = xp.maximum(boxes[..., 2:] - boxes[..., :2] + plus, 0)
    return sides[..., 0] * sides[..., 1]
