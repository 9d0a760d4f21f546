"""Planes cut off, padded, made larger or smaller."""

from __future__ import annotations

from ....errors import require
from ....layers.indexing import crop_box
from ..building import Emission, writes
from ..program import Value
from .literals import number


@writes("Crop")
def crop(e: Emission) -> Value:
    """Write a slice of the size of the other bottom."""
    x, like = e.bottoms
    x = e.ordered(x, x.order)
    starts, sizes = crop_box(e.layer.context, x.shape, like.shape)
    cuts = [f"{a}:{a + n}" if (a, n) != (0, whole) else ":" for a, n, whole in zip(starts, sizes, x.shape, strict=True)]
    stored = [cuts[axis] for axis in x.order]
    require(stored[0] == ":", "cuts the batch's axis, which is not supported")
    while stored and stored[-1] == ":":
        stored.pop()
    return e.call(f"{{0}}[{', '.join(stored)}]", x, shape=e.tops[0], order=x.order) if stored else x


@writes("Padding")
def padding(e: Emission) -> Value:
    """Write zeros round the plane."""
    x, (before, after) = e.last(e.bottoms[0]), (e.p.pad_beg, e.p.pad_end)
    require(min(before, after) >= 0, "cuts rows and columns off (negative pad_beg or pad_end), which is not supported")
    around = f"({before}, {after})"
    return e.call(f"jnp.pad({{0}}, ((0, 0), {around}, {around}, (0, 0)))", x, shape=e.tops[0], order=x.order)


@writes("Interp")
def interp(e: Emission) -> Value:
    """Write bilinear interpolation, corner on corner."""
    x, p = e.last(e.bottoms[0]), e.p
    if p.pad_beg or p.pad_end:
        rows, columns = (f"{-p.pad_beg}:{n + p.pad_end}" for n in x.shape[2:])
        inside = tuple(n + p.pad_end + p.pad_beg for n in x.shape[2:])
        x = e.call(f"{{0}}[:, {rows}, {columns}]", x, shape=(*x.shape[:2], *inside), order=x.order)
    size = e.tops[0][2:]
    return e.call(f"interpolate({{0}}, {size})", x, shape=e.tops[0], order=x.order, helpers=["interpolate"])


@writes("Upsample")
def upsample(e: Emission) -> Value:
    """Write each number repeated; SegNet's, put back to where maxima were."""
    if len(e.bottoms) > 1:
        return _put_at(e)
    x, n = e.last(e.bottoms[0]), number(e.p.scale if e.p.HasField("scale") else 1)
    return (
        x
        if n == 1
        else e.call(f"jnp.repeat(jnp.repeat({{0}}, {n}, axis=1), {n}, axis=2)", x, shape=e.tops[0], order=x.order)
    )


@writes("Unpooling")
def unpooling(e: Emission) -> Value:
    """Write numbers put back to where maxima were."""
    require(len(e.bottoms) > 1, "fills windows without a bottom that says where maxima were, which is not supported")
    return _put_at(e)


def _put_at(e: Emission) -> Value:
    x, places = map(e.last, e.bottoms)
    return e.call(
        f"put_at({{0}}, {{1}}, {e.tops[0][2:]})", x, places, shape=e.tops[0], order=x.order, helpers=["put_at"]
    )
