"""Interp: planes made larger or smaller by bilinear interpolation, corner on corner."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...errors import require
from ..axes import possible_plane
from ..context import Context, Shape
from ..registry import register
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .interpolation import Places, interpolated, interpolated_diff


def interp(ctx: Context, x: jax.Array) -> jax.Array:
    """Bilinear interpolation to a size, the corners of bottom and top on each other.

    The size is `height` x `width`, (n - 1) / shrink_factor + 1, or n + (n - 1) * (zoom_factor - 1); with both factors,
    `height` and `width` win, else it is shrunk first. pad_beg and pad_end are 0, or cut off rows and columns.
    """
    (top, bottom), size = _cropped(ctx, x), _size(ctx, x)
    inside = lax.slice(x, (0, 0, top, top), (*x.shape[:2], *bottom))
    return interpolated(inside, _places(ctx, x, size), fast=ctx.fast)


def interp_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    (top, bottom), size = _cropped(ctx, x), _size(ctx, x)
    inside = interpolated_diff(dy, _places(ctx, x, size), (bottom[0] - top, bottom[1] - top))
    borders = [(0, 0), (0, 0), *((top, n - end) for n, end in zip(x.shape[2:], bottom, strict=True))]
    return jnp.pad(inside, borders).astype(x.dtype)


register(
    LayerType(
        Signature("Interp", param="interp_param", in_place=False, aliases=("INTERP",)),
        Traced(interp),
        Gradient(interp_backward),
        LayerTraits(row_wise=True, dtype_policy="bottoms", accepts_integers=True),
        docs=LayerDocs(
            origin="DeepLab, PSPNet", restrictions="No padding: pad_beg and pad_end are 0 or negative, as in the fork."
        ),
    )
)


def _cropped(ctx: Context, x: Any) -> tuple[int, Shape]:
    """Return where the part that counts begins along both axes, and where it ends along each."""
    p = ctx.param
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not {x.shape}")
    require(
        p.pad_beg <= 0 and p.pad_end <= 0,
        f"pad_beg {p.pad_beg} and pad_end {p.pad_end} must not be positive: it only cuts off",
    )
    end = tuple(n + p.pad_end for n in x.shape[2:])
    require(min(end) > -p.pad_beg, f"pad_beg {p.pad_beg} and pad_end {p.pad_end} leave nothing of {x.shape[2:]}")
    return -p.pad_beg, end


def _size(ctx: Context, x: Any) -> Shape:
    """Return the top's height and width."""
    p = ctx.param
    require(not p.HasField("full_zoom_factor"), "full_zoom_factor is not supported; use zoom_factor")
    begin, end = _cropped(ctx, x)
    inner = tuple(n - begin for n in end)
    for name in ("shrink_factor", "zoom_factor"):
        require(getattr(p, name) >= 1, f"{name} must be at least 1, not {getattr(p, name)}")
    shrinks, zooms = p.HasField("shrink_factor"), p.HasField("zoom_factor")
    if p.HasField("height") and p.HasField("width") and shrinks == zooms:
        require(p.height > 0 and p.width > 0, f"height {p.height} and width {p.width} must be positive")
        return p.height, p.width
    require(shrinks or zooms, "needs height and width, a shrink_factor or a zoom_factor")
    shrunk = tuple((n - 1) // p.shrink_factor + 1 for n in inner)
    return tuple(n + (n - 1) * (p.zoom_factor - 1) for n in shrunk)


def _places(ctx: Context, x: Any, size: Shape) -> tuple[Places, Places]:
    possible_plane(size, x.shape)
    begin, end = _cropped(ctx, x)
    rows, columns = (_corner_on_corner(stop - begin, n) for stop, n in zip(end, size, strict=True))
    return rows, columns


def _corner_on_corner(n: int, out: int) -> Places:
    steps = max(out - 1, 1)
    low, rest = np.divmod(np.arange(out) * (n - 1 if out > 1 else 0), steps)
    return Places(low, rest / steps)
