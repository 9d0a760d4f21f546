"""How far two arrays of one shape are apart."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...schema.blob_proto import Array


class Distance(NamedTuple):
    """How far an array is from another.

    Attributes:
        error: the largest absolute difference; infinite where one is NaN or infinite and the other is not the same.
        at: the index of it; None of equal or empty arrays.
        values: the two numbers there.
        scale: the largest absolute value in either, NaN and infinity left out.
        cosine: of the angle between them as vectors; 1 if both are zero, NaN if one is.
    """

    error: float
    at: tuple[int, ...] | None
    values: tuple[float, float]
    scale: float
    cosine: float

    @property
    def relative(self) -> float:
        """The error as a share of the scale; infinite where an infinite number is in the place of zeros."""
        if not self.error:
            return 0.0
        return self.error / self.scale if self.scale else math.inf


def distance(a: Array, b: Array) -> Distance:
    """Measure how far apart two arrays of one shape are. NaN equals NaN, and infinity that of the same sign."""
    x, y = (np.asarray(array, np.float64).ravel() for array in (a, b))
    finite = np.isfinite(x) & np.isfinite(y)
    same = finite | (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.where(finite, np.abs(x - y), np.where(same, 0.0, np.inf))
    x0, y0 = (np.where(finite, v, 0.0) for v in (x, y))
    scales = [float(np.abs(v[np.isfinite(v)]).max(initial=0)) for v in (x, y)]
    if not errors.any():
        return Distance(0.0, None, (0.0, 0.0), max(scales), _cosine(x0, y0))
    worst = int(errors.argmax())
    at = tuple(int(i) for i in np.unravel_index(worst, a.shape))
    return Distance(float(errors[worst]), at, (float(x[worst]), float(y[worst])), max(scales), _cosine(x0, y0))


def _cosine(x: Array, y: Array) -> float:
    x, y = (v / (np.abs(v).max(initial=0) or 1) for v in (x, y))  # squares of float64 numbers may be too large
    norms = float(np.linalg.norm(x)), float(np.linalg.norm(y))
    if not all(norms):
        return float("nan") if any(norms) else 1.0
    return float(np.clip(np.dot(x / norms[0], y / norms[1]), -1, 1))
