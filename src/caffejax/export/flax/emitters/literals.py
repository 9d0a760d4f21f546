"""Numbers as they are written in source."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....errors import require


def number(value: float) -> int | float:
    """Return a number of a prototxt as it was meant: 0.1 rather than the float32 next to it; 2 rather than 2.0.

    Raises:
        LayerError: if it is not finite.
    """
    require(math.isfinite(value), f"has a parameter that is {value}, which cannot be written as a number")
    short = float(str(np.float32(value)))
    return int(short) if short.is_integer() and abs(short) < 1e6 else short


def one_or_all(values: Sequence[int]) -> int | tuple[int, ...]:
    """Return the number that all of some are, or all of them."""
    return values[0] if len(set(values)) == 1 else tuple(values)


def affine(scale: float, shift: float) -> str:
    """Return the expression of scale * x + shift."""
    scale, shift = number(scale), number(shift)
    text = "{0}" if scale == 1 else "-{0}" if scale == -1 else f"{scale} * {{0}}"
    return text if shift == 0 else f"{text} {'-' if shift < 0 else '+'} {abs(shift)}"
