"""Filter: keeps the rows that a selector says; how many is only known when it runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import require
from .context import Context, Shape
from .registry import register
from .tops import every
from .types import Gradient, Indices, LayerTraits, LayerType, OnHost, Signature

Arrays = tuple[np.ndarray, ...]


def filter_(ctx: Context, *bottoms: np.ndarray) -> Arrays:
    """For every bottom but the last, the rows at which the last bottom, the selector, is not zero."""
    *data, selector = bottoms
    rows = _rows(selector)
    return tuple(x[rows] for x in data)


def filter_top_shapes(ctx: Context, *bottoms: Any) -> list[Shape]:
    *data, selector = (b.shape for b in bottoms)
    require(ctx.n_tops == len(data), f"needs a top for each bottom but the selector: {ctx.n_tops} for {len(data)}")
    require(
        selector and all(n == 1 for n in selector[1:]),
        f"the selector (last bottom) must hold one number per row, not {selector}",
    )
    for i, shape in enumerate(data):
        require(shape[:1] == selector[:1], f"bottom {i} has shape {shape}, the selector {selector[0]} rows")
    return data  # as if every row passed


def filter_backward(ctx: Context, *bottoms: np.ndarray, y: Any, dy: Any) -> tuple[np.ndarray | None, ...]:
    *data, selector = bottoms
    rows = _rows(selector)
    diffs = [np.zeros_like(x) for x in data]
    for diff, d_top in zip(diffs, every(dy), strict=True):
        diff[rows] = d_top
    return (*diffs, None)


register(
    LayerType(
        Signature("Filter", bottoms=(2, None), tops=(1, None), in_place=False),
        OnHost(filter_, filter_top_shapes, ragged=True),
        Gradient(filter_backward, indices=Indices((-1,))),
        LayerTraits(accepts_integers=True),
    )
)


def _rows(selector: np.ndarray) -> np.ndarray:
    return np.flatnonzero(selector.reshape(len(selector)))
