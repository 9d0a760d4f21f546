"""Axes as Caffe counts them: negative ones from the end, with a clear error when out of range."""

from __future__ import annotations

import math

from ..errors import require
from .context import Context, Shape

_MOST = 2**31 - 1  # numbers in a blob: Caffe counts them with an int
_LONGEST = 2**24  # cells along a side


def canonical_axis(axis: int, shape: Shape, *, name: str = "axis") -> int:
    """Count an axis from the front: 0 .. len(shape) - 1.

    Raises:
        LayerError: if the blob has no such axis.
    """
    n = len(shape)
    require(-n <= axis < n, f"{name} {axis} is out of range for a blob with {n} axes, shape {shape}")
    return axis % n


def after_first_axis(ctx: Context) -> bool:
    """Return whether the layer's `axis` leaves axis 0 as it is, so that it treats every row by itself."""
    return bool(ctx.param.axis > 0)


def outer_inner(shape: Shape, axis: int) -> tuple[int, int]:
    """Return the number of elements before and after an axis."""
    return math.prod(shape[:axis]), math.prod(shape[axis + 1 :])


def four_axes(shape: Shape, name: str = "bottom 0") -> tuple[int, int, int, int]:
    """Return number, channels, height, width, 1 for those that are missing. Caffe's oldest layers know no others.

    Raises:
        LayerError: if there are more.
    """
    require(len(shape) <= 4, f"{name} has {len(shape)} axes, shape {shape}; this layer takes no more than 4")
    num, channels, height, width = (*shape, 1, 1, 1, 1)[:4]
    return num, channels, height, width


def possible_plane(size: Shape, shape: Shape) -> None:
    """Check that a bottom (num, channels, height, width) can be made one of that height and width.

    For layers that compute with tables as long as the sides, before they make any.

    Raises:
        LayerError: if no blob can have as many numbers, or a side is longer than any table.
    """
    count = math.prod(n for n in (*shape[:2], *size) if isinstance(n, int))
    require(
        count <= _MOST,
        f"the settings ask for a top of height {size[0]} and width {size[1]}, with the bottom's {shape[:2]} images and "
        f"channels {count} numbers; a blob has {_MOST} at most",
    )
    possible_sides(size)


def possible_sides(size: Shape) -> None:
    """Check that tables as long as the sides of a plane can be made.

    Raises:
        LayerError: for a side of more than 2^24 cells.
    """
    longest = max(n for n in (*size, 0) if isinstance(n, int))
    require(
        longest <= _LONGEST,
        f"the settings, or the bottom, ask for a plane of height {size[0]} and width {size[1]}; a side has {_LONGEST} "
        "cells at most",
    )
