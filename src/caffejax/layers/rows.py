"""Rows of padding: tops that have as many rows as there can be, of which the data says how many there are."""

from __future__ import annotations

from typing import Any

import numpy as np


def count(top: Any) -> int:
    """Return how many rows of a padded top are none of padding: those that begin with no negative number.

    Rows lie along the axis before the last, in all that lies before it; of a top with one axis they are its numbers.
    """
    first = np.asarray(top if top.ndim == 1 else top[..., 0])
    return int(np.count_nonzero(first >= 0, axis=-1).max(initial=0))


def trimmed(top: Any, rows: int | None = None) -> Any:
    """Return a padded top without the padding: the first `rows` of it, or as many as it says itself."""
    n = count(top) if rows is None else rows
    return top[:n] if top.ndim == 1 else top[..., :n, :]
