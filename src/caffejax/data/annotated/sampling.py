"""Batch samplers: windows drawn at random until they show enough of the objects; one of them is cut out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .boxes import clipped, overlaps, shares_of, shares_within
from .emitting import Emit
from .picture import Picture

_MOST_TRIALS = 1_000_000  # all are drawn at once

# a constraint: its name in the prototxt, and what it compares
_CONSTRAINTS = {"jaccard_overlap": overlaps, "sample_coverage": shares_of, "object_coverage": shares_within}


def sampler_problems(samplers: Sequence[Any]) -> list[str]:
    """Return what is wrong with batch samplers."""
    problems = []
    for i, sampler in enumerate(samplers):
        s, where = sampler.sampler, f"annotated_data_param.batch_sampler {i}: "
        if not 0 < s.min_scale <= s.max_scale <= 1:
            problems.append(
                f"{where}scales must be 0 < min_scale <= max_scale <= 1, not {s.min_scale:g}, {s.max_scale:g}"
            )
        if not 0 < s.min_aspect_ratio <= s.max_aspect_ratio < float("inf"):
            shown = f"{s.min_aspect_ratio:g}, {s.max_aspect_ratio:g}"
            problems.append(f"{where}aspect ratios must be 0 < min_aspect_ratio <= max_aspect_ratio, not {shown}")
        if sampler.max_trials > _MOST_TRIALS:
            problems.append(f"{where}max_trials must be at most {_MOST_TRIALS}, not {sampler.max_trials}")
    return problems


class BatchSamplers:
    """Draws the windows of a layer's batch samplers, and cuts one of them out.

    Args:
        samplers: the BatchSampler messages.
        emit: which objects stay.
    """

    def __init__(self, samplers: Sequence[Any], emit: Emit) -> None:
        self._samplers = [sampler for sampler in samplers if sampler.use_original_image]
        self._emit = emit

    def __call__(self, picture: Picture, rng: np.random.Generator) -> Picture:
        """Return what one of the windows shows, or the picture as it is if none is good enough."""
        boxes = picture.boxes
        windows = [window for sampler in self._samplers for window in _windows(sampler, boxes, rng)]
        return self._cut(picture, windows[rng.integers(len(windows))]) if windows else picture

    def _cut(self, picture: Picture, window: np.ndarray) -> Picture:
        height, width = picture.image.shape[:2]
        window = clipped(window)
        pixels = window * np.array([width, height, width, height], np.float32)
        x, y = (int(v) for v in pixels[:2])
        w, h = (max(1, int(v)) for v in pixels[2:] - pixels[:2])
        return self._emit(picture, window).seen_through(window, picture.image[y : y + h, x : x + w])


def _windows(batch_sampler: Any, boxes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the windows that one sampler finds: float32 (n, 4)."""
    drawn = _draw(batch_sampler.sampler, batch_sampler.max_trials, rng)
    good = _satisfies(batch_sampler.sample_constraint, drawn, boxes)
    found = drawn[good]
    return found[: batch_sampler.max_sample] if batch_sampler.HasField("max_sample") else found


def _draw(sampler: Any, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw n windows: of an area scale^2 of the picture's, and of a ratio of width to height; anywhere in it."""
    unit = rng.random((4, n), np.float32)
    scale = sampler.min_scale + unit[0] * (sampler.max_scale - sampler.min_scale)
    ratio = sampler.min_aspect_ratio + unit[1] * (sampler.max_aspect_ratio - sampler.min_aspect_ratio)
    root = np.sqrt(np.clip(ratio, scale**2, 1 / scale**2))
    sides = np.minimum(np.stack([scale * root, scale / root], axis=-1), 1)
    corners = unit[2:].T * (1 - sides)
    return np.concatenate([corners, corners + sides], axis=-1).astype(np.float32)


def _satisfies(constraint: Any, windows: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Return for each window whether it stands to some object as the constraint wants; so do all if it wants nothing.

    Where it wants several things, one object must fulfil them all. (In the fork, the first one suffices.)
    """
    good = np.ones((len(windows), len(boxes)), bool)
    wanted = False
    for name, measure in _CONSTRAINTS.items():
        low, high = f"min_{name}", f"max_{name}"
        if not (constraint.HasField(low) or constraint.HasField(high)):
            continue
        wanted = True
        values = measure(boxes, windows[:, None])
        if constraint.HasField(low):
            good &= values >= np.float32(getattr(constraint, low))
        if constraint.HasField(high):
            good &= values <= np.float32(getattr(constraint, high))
    return np.asarray(good.any(axis=1) | (not wanted))
