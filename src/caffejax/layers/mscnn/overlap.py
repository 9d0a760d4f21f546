"""How much boxes overlap, in the forks' three measures."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ...errors import require
from ..detection.boxes import areas, shared_areas

MEASURES = ("IOU", "IOMU", "IOFU")


def require_measure(nms_type: str) -> None:
    """Raise `LayerError` for a measure that there is not."""
    require(nms_type in MEASURES, f"nms_type must be one of {', '.join(MEASURES)}, not '{nms_type}'")


def overlap(a: Any, b: Any, plus: float, measure: str = "IOU", xp: Any = jnp) -> Any:
    """Return how much boxes (..., 4) that broadcast overlap; they have to touch for that.

    Args:
        a, b: the boxes (x1, y1, x2, y2).
        plus: 1 where sides are x2 - x1 + 1, 0 where they are x2 - x1.
        measure: what the common area is divided by: "IOU" the union, "IOMU" the smaller area, "IOFU" the area of `a`.
        xp: the module of the arrays, jax.numpy or numpy.
    """
    inside = shared_areas(a, b, plus, touching=True, xp=xp)
    sizes = areas(a, plus, xp=xp), areas(b, plus, xp=xp)
    match measure:
        case "IOMU":
            whole = xp.minimum(*sizes)
        case "IOFU":
            whole = sizes[0]
        case _:
            whole = sizes[0] + sizes[1] - inside
    return xp.where(inside > 0, inside / xp.where(inside > 0, whole, 1), 0)
