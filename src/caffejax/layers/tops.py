"""Tops as forward gives them and rules are given them: several as a tuple, a lone one bare."""

from __future__ import annotations

from typing import Any


def every(tops: Any) -> tuple[Any, ...]:
    """Return all of them, or their diffs, as a tuple."""
    return tops if isinstance(tops, tuple) else (tops,)


def first(tops: Any) -> Any:
    """Return the first of them, or its diff."""
    return every(tops)[0]


def same_shape(ctx: Any, x: Any) -> list[tuple[int, ...]]:
    """Return the shape of a top that is like the bottom, for `Traced.top_shapes`."""
    return [x.shape]
