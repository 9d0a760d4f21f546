"""Resample, Downsample and Accum: maps brought to other sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import require
from ..axes import possible_plane
from ..context import Context, Shape
from ..dtypes import promote
from ..registry import register
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .resampling import Matrix, aligned, averaged, cubic, filtered, nearest, resampled, resampled_diff, triangle

_FILTERS = {"LINEAR": (triangle, 2), "CUBIC": (cubic, 4)}


def resample(ctx: Context, x: jax.Array, *like: jax.Array) -> jax.Array:
    """Bring (N, C, height, width) to height x width, or to those of a second bottom: NEAREST, LINEAR or CUBIC.

    Filters are stretched where the map shrinks, unless antialias: false. As in FlowNet 2, the ratio of the heights
    says where columns begin, and that of the widths where rows do.
    """
    return resampled(x, *_matrices(ctx, x, *like)).astype(x.dtype)


def resample_backward(ctx: Context, x: jax.Array, *like: jax.Array, y: jax.Array, dy: jax.Array) -> tuple[Any, ...]:
    return resampled_diff(x, dy, *_matrices(ctx, x, *like)), *(None for _ in like)


register(
    LayerType(
        Signature("Resample", bottoms=(1, 2), param="resample_param", in_place=False),
        Traced(resample),
        Gradient(resample_backward),
        LayerTraits(row_wise=True, dtype_policy="bottoms"),
        docs=LayerDocs(origin="FlowNet 2", restrictions="AREA is refused, as by FlowNet 2."),
    )
)


def downsample(ctx: Context, x: jax.Array, *like: jax.Array) -> jax.Array:
    """Bring (N, C, height, width) to top_height x top_width, or a second bottom's: weighted averages without NaNs.

    A place is NaN where NaNs weigh more than half of what the others do. Corners stay where they are.
    """
    size = _size(ctx.param, ("top_height", "top_width"), x, *like)
    if size == tuple(x.shape[2:]):
        return x
    require(all(n > 1 for n in size), f"the new size must be 2 or more in both directions, not {size}")
    matrices = [Matrix(new, old, averaged) for new, old in zip(size, x.shape[2:], strict=True)]
    missing = jnp.isnan(x)
    values, weight, lost = (
        resampled(part, matrices[0], matrices[1])
        for part in (jnp.where(missing, 0, x), (~missing).astype(x.dtype), missing.astype(x.dtype))
    )
    mean = values / jnp.where(weight > 0, weight, 1)
    return jnp.where((lost > 0.5 * weight) | (weight <= 0), jnp.nan, mean).astype(x.dtype)


register(
    LayerType(
        Signature("Downsample", bottoms=(1, 2), param="downsample_param", in_place=False),
        Traced(downsample),
        Gradient(exists=False),
        LayerTraits(row_wise=True),
        docs=LayerDocs(origin="FlowNet 2"),
    )
)


def accum(ctx: Context, *bottoms: jax.Array) -> jax.Array:
    """Bring all bottoms to one size, corners staying where they are, and concatenate them along the channels.

    The size is the last bottom's, which is no more than that, with have_reference; else the largest height and width,
    or if both are larger top_height x top_width, or the next that are divisible by size_divisible_by.
    """
    parts, size = _accumulated(ctx, bottoms)
    matrices = [_aligned(x, size) for x in parts]
    enlarged = [resampled(x, *m).astype(bottoms[0].dtype) for x, m in zip(parts, matrices, strict=True)]
    return jnp.concatenate(enlarged, axis=1)


def accum_backward(ctx: Context, *bottoms: jax.Array, y: jax.Array, dy: jax.Array) -> tuple[Any, ...]:
    parts, size = _accumulated(ctx, bottoms)
    ends = np.cumsum([x.shape[1] for x in parts])
    shares = jnp.split(promote(dy), ends[:-1], axis=1)
    diffs = (resampled_diff(x, d, *_aligned(x, size)) for x, d in zip(parts, shares, strict=True))
    return *diffs, *(None for _ in bottoms[len(parts) :])


register(
    LayerType(
        Signature("Accum", bottoms=(1, None), param="accum_param", in_place=False),
        Traced(accum),
        Gradient(accum_backward),
        LayerTraits(row_wise=True, dtype_policy="bottoms"),
        docs=LayerDocs(origin="FlowNet 2"),
    )
)


def _size(p: Any, names: tuple[str, str], x: Any, *like: Any) -> Shape:
    for i, shape in enumerate(b.shape for b in (x, *like)):
        require(len(shape) == 4, f"bottom {i} needs 4 axes (number, channels, height, width), not shape {shape}")
    size = tuple(like[0].shape[2:]) if like else tuple(getattr(p, name) for name in names)
    require(all(n > 0 for n in size), f"{names[0]} and {names[1]} must be positive, or a second bottom given: {size}")
    possible_plane(size, x.shape)
    return size


def _matrices(ctx: Context, x: Any, *like: Any) -> tuple[Matrix, Matrix]:
    p = ctx.param
    method = str(p.ResampleType.Name(p.type))
    require(method in ("NEAREST", *_FILTERS), f"type: {method} is not supported; use NEAREST, LINEAR or CUBIC")
    size, old = _size(p, ("height", "width"), x, *like), x.shape[2:]
    ratios = [o / n for o, n in zip(old, size, strict=True)]
    offsets = [ratio / 2 - 0.5 for ratio in reversed(ratios)]
    make: Callable[..., np.ndarray]
    if method == "NEAREST":
        make = nearest
    else:
        make = partial(filtered, filter_=_FILTERS[method], antialias=p.antialias and max(ratios) > 1)
    rows, columns = (Matrix(n, o, partial(make, offset=f)) for n, o, f in zip(size, old, offsets, strict=True))
    return rows, columns


def _aligned(x: Any, size: Shape) -> tuple[Matrix, Matrix]:
    return Matrix(size[0], x.shape[2], aligned), Matrix(size[1], x.shape[3], aligned)


def _accumulated(ctx: Context, bottoms: tuple[Any, ...]) -> tuple[tuple[Any, ...], Shape]:
    """Return the bottoms to be brought to a size, and the size."""
    p = ctx.param
    for i, shape in enumerate(b.shape for b in bottoms):
        require(len(shape) == 4, f"bottom {i} needs 4 axes (number, channels, height, width), not shape {shape}")
        require(shape[0] == bottoms[0].shape[0], f"bottoms need one number: {bottoms[0].shape} and {shape}")
    if p.have_reference:
        require(len(bottoms) > 1, "have_reference: true needs two bottoms or more, the last for its size")
        return bottoms[:-1], tuple(bottoms[-1].shape[2:])
    largest = tuple(max(b.shape[axis] for b in bottoms) for axis in (2, 3))
    wanted = (p.top_height, p.top_width)
    if p.HasField("size_divisible_by"):
        require(p.size_divisible_by > 0, "size_divisible_by must be positive")
        wanted = tuple(math.ceil(n / p.size_divisible_by) * p.size_divisible_by for n in largest)
    size = wanted if all(w > n for w, n in zip(wanted, largest, strict=True)) else largest
    possible_plane(size, bottoms[0].shape)
    return bottoms, size
