"""ScaleRoute: the ROIs whose size suits one level of a pyramid."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...errors import require
from ..context import Context, Shape, Site
from ..dtypes import promote
from ..no_gradient import no_gradient
from ..on_host import promoted
from ..registry import register
from ..types import (
    OWN_IMAGES,
    SAME_AS_BOTTOMS,
    Gradient,
    LayerDocs,
    LayerTraits,
    LayerType,
    OnHost,
    PerLayer,
    Signature,
    Traced,
)
from .shapes import four_long, require_rows, rows_of, with_four_axes

_MIDDLE = 256.0  # without bounds


def make_scale_route(ctx: Context, site: Site) -> LayerType:
    """The ROIs (N x 5) whose scale, the root of their area, lies in `low_scale` <= scale < `high_scale`.

    Sides are x2 - x1 + 1. If there is none, the one nearest to the middle of the bounds, by logarithm. No gradient
    passes. In TRAIN, or with further bottoms, of which the same rows are taken, it runs on the host; else rows of
    padding come last and are -1.
    """
    if ctx.training or len(site.layer.bottom) > 1:
        runs = OnHost(route_rows, route_top_shapes, ragged=True)
        return replace(ctx.type, implementation=runs, traits=replace(ctx.type.traits, pads_rows=False))
    return replace(ctx.type, implementation=Traced(route))


def route(ctx: Context, rois: jax.Array) -> jax.Array:
    """The ROIs that suit, then rows of -1."""
    rows = rows_of(lax.stop_gradient(rois), "bottom 0 (ROIs)", 5)
    suits = _suits(ctx, promote(rows), jnp)
    order = jnp.argsort(~suits, stable=True)
    return with_four_axes(jnp.where(suits[order][:, None], rows[order], -1))


def route_rows(ctx: Context, rois: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
    suits = np.flatnonzero(_suits(ctx, rows_of(promoted(rois), "bottom 0 (ROIs)", 5), np))
    return tuple(with_four_axes(x)[suits] for x in (rois, *others))


def route_top_shapes(ctx: Context, rois: Any, *others: Any) -> list[Shape]:
    _scales(ctx)
    require_rows(rois.shape, "bottom 0 (ROIs)", 5)
    for i, x in enumerate(others, 1):
        require(x.shape[:1] == rois.shape[:1], f"bottom {i} must have as many rows as there are ROIs: {x.shape}")
    return [four_long(x.shape) for x in (rois, *others)]


register(
    LayerType(
        Signature("ScaleRoute", bottoms=(1, None), tops=SAME_AS_BOTTOMS, param="scale_route_param", in_place=False),
        PerLayer(make_scale_route),
        Gradient(no_gradient, overrides_autodiff=True),
        LayerTraits(pads_rows=True),
        docs=LayerDocs(
            origin="Cascade R-CNN",
            restrictions="In TRAIN, and with several bottoms, it runs on the host.",
            unsupported={"shard": "rows change places, padding last", "joined": OWN_IMAGES},
        ),
    )
)


def _scales(ctx: Context) -> tuple[float, float, float]:
    """Return the lower and the upper bound, and the middle."""
    p = ctx.param
    given = [getattr(p, name) for name in ("low_scale", "high_scale") if p.HasField(name)]
    require(all(scale > 0 for scale in given), f"low_scale and high_scale must be above 0: {given}")
    low = p.low_scale if p.HasField("low_scale") else 0.0
    high = p.high_scale if p.HasField("high_scale") else math.inf
    require(low <= high, f"low_scale {low} must not be above high_scale {high}")
    return low, high, math.prod(given) ** (1 / len(given)) if given else _MIDDLE


def _suits(ctx: Context, rows: Any, xp: Any) -> Any:
    """Return which ROIs suit, or are the nearest: all that there are, of rows that do not begin with -1."""
    require(rows.shape[0] != 0, "needs one ROI or more")
    low, high, middle = _scales(ctx)
    there = rows[:, 0] >= 0
    sides = rows[:, 3:] - rows[:, 1:3]
    scale = xp.sqrt(xp.where(xp.all(sides >= 0, axis=1), (sides[:, 0] + 1) * (sides[:, 1] + 1), 0))
    suits = there & (scale >= low) & (scale < high)
    tiny = xp.finfo(scale.dtype).tiny
    away = xp.where(there, xp.abs(xp.log2(xp.maximum(scale, tiny) / middle)), xp.inf)
    nearest = (xp.arange(rows.shape[0]) == xp.argmin(away)) & there
    return xp.where(xp.any(suits), suits, nearest)
