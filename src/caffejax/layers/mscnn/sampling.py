"""What an ROI is for training: object or background, by its overlap with ground truth; and a sample of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import LayerError, require
from ..boxes import overlaps

_SMALLEST = 32  # pixels, of a box drawn at random
_TRIES = 10_000


@dataclass(frozen=True)
class Truth:
    """Ground truth.

    Attributes:
        rows: (M, 5), [image, x1, y1, x2, y2].
        labels: (M,).
        ignored: (M,), True where an ROI that overlaps enough is no object, nor background.
    """

    rows: np.ndarray
    labels: np.ndarray
    ignored: np.ndarray


@dataclass(frozen=True)
class Sample:
    """Sampled ROIs, the objects first.

    Attributes:
        rows: (n, 5), [image, x1, y1, x2, y2].
        match: (n,), the number of each one's ground truth; -1 for none.
        overlap: (n,), with it.
        objects: how many are objects.
    """

    rows: np.ndarray
    match: np.ndarray
    overlap: np.ndarray
    objects: int


def sampled(p: Any, rows: np.ndarray, truth: Truth, draw: Callable[[], np.random.Generator]) -> Sample:
    """Sample ROIs as a ProposalTargetParameter says.

    Args:
        p: the parameters.
        rows: (N, 5), all ROIs.
        truth: the ground truth.
        draw: gives what to draw with, where something is drawn.
    """
    match, most = _matched(rows, truth)
    found = np.flatnonzero(most >= p.fg_thr)
    require(np.all(truth.labels[match[found]] > 0), f"ground truth must have labels above 0, not {truth.labels}")
    objects = found[~truth.ignored[match[found]]]
    fits = (most >= p.bg_thr_lw) & (most < p.bg_thr_hg)
    background = np.flatnonzero(fits & (most < p.fg_thr))
    others = np.flatnonzero(~fits & (most < p.fg_thr))
    if p.batch_size == -1:
        batch, quota = len(objects) + len(background), len(objects)
    else:
        batch, quota = p.batch_size, int(np.floor(p.fg_fraction * p.batch_size + 0.5))
    objects = _drawn(objects, min(quota, batch), draw)
    room = batch - len(objects)
    if len(background) > room:
        background = _drawn(background, room, draw)
    elif p.pickup_discard:
        background = np.concatenate([background, others[: room - len(background)]])
    chosen = np.concatenate([objects, background])
    if not len(chosen):
        return Sample(_backup(p, truth, draw()), np.full(1, -1), np.zeros(1, most.dtype), 0)
    return Sample(rows[chosen], match[chosen], most[chosen], len(objects))


def _matched(rows: np.ndarray, truth: Truth) -> tuple[np.ndarray, np.ndarray]:
    """Return for each ROI which ground truth of its image it overlaps most, -1 if there is none, and how much."""
    if not len(truth.rows):
        return np.full(len(rows), -1), np.zeros(len(rows), rows.dtype)
    overlap = overlaps(rows[:, None, 1:], truth.rows[None, :, 1:], 1.0, touching=True).astype(rows.dtype)
    overlap = np.where(rows[:, None, 0] == truth.rows[None, :, 0], overlap, -1)
    best, most = np.argmax(overlap, axis=1), np.max(overlap, axis=1)
    return np.where(most < 0, -1, best), np.maximum(most, 0)


def _drawn(numbers: np.ndarray, most: int, draw: Callable[[], np.random.Generator]) -> np.ndarray:
    return numbers if len(numbers) <= most else draw().permutation(numbers)[:most]


def _backup(p: Any, truth: Truth, random: np.random.Generator) -> np.ndarray:
    """Return one box drawn at random that is no object, (1, 5)."""
    width, height = p.img_width, p.img_height
    require(
        min(width, height) > _SMALLEST,
        f"no ROI is left, and none can be drawn: img_width {width} and img_height {height} must be above {_SMALLEST}",
    )
    for _ in range(_TRIES):
        corner = [random.integers(width - _SMALLEST), random.integers(height - _SMALLEST)]
        sides = [max(random.integers(n - c), _SMALLEST) for n, c in zip((width, height), corner, strict=True)]
        ends = [c + s - 1 for c, s in zip(corner, sides, strict=True)]
        row = np.asarray([[random.integers(p.num_img_per_batch), *corner, *ends]], truth.rows.dtype)
        if _matched(row, truth)[1][0] < p.fg_thr:
            return row
    raise LayerError("no ROI is left, and none can be drawn: ground truth is wherever a box fits")
