"""Rectangles grouped by likeness, as OpenCV 2 to 4 do (`groupRectangles`, which version 5 has no more)."""

from __future__ import annotations

import numpy as np


def group_rectangles(rows: np.ndarray, threshold: int, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of each group of more than `threshold` rectangles, and how many there are in it.

    Alike are those whose four sides lie within `eps` times half the smaller width and height; a group holds all that
    are so, directly or by others. Small groups that lie within a larger one are left out.

    Args:
        rows: (N, 4) whole numbers: x, y, width, height.
        threshold: with 0 or less each rectangle is a group of its own.
        eps: see above.
    """
    if threshold <= 0 or not len(rows):
        return rows, np.ones(len(rows), int)
    group = _groups(rows, eps)
    counts = np.bincount(group)
    sums = np.stack([np.bincount(group, weights=column) for column in rows.T], axis=1)
    share = np.float32(1) / counts.astype(np.float32)
    means = np.rint(sums.astype(np.float32) * share[:, None]).astype(int)
    means, counts = means[counts > threshold], counts[counts > threshold]
    low, high = means[:, :2], means[:, :2] + means[:, 2:]
    slack = np.rint(means[:, 2:] * eps).astype(int)
    within = np.all(low[:, None] >= low - slack, axis=2) & np.all(high[:, None] <= high + slack, axis=2)
    within &= (counts > np.maximum(3, counts[:, None])) | (counts[:, None] < 3)
    np.fill_diagonal(within, False)
    kept = ~within.any(axis=1)
    return means[kept], counts[kept]


def _groups(rows: np.ndarray, eps: float) -> np.ndarray:
    """Return the number of each rectangle's group, counted in the order of their first ones."""
    corners = np.concatenate([rows[:, :2], rows[:, :2] + rows[:, 2:]], axis=1)
    sides, group, n = rows[:, 2:], np.full(len(rows), -1), 0
    for first in range(len(rows)):
        if group[first] >= 0:
            continue
        group[first], waiting = n, [first]
        while waiting:
            i = waiting.pop()
            delta = eps * np.minimum(sides, sides[i]).sum(axis=1) * 0.5
            alike = np.all(np.abs(corners - corners[i]) <= delta[:, None], axis=1) & (group < 0)
            group[alike] = n
            waiting.extend(np.flatnonzero(alike))
        n += 1
    return group
