"""Suppression of boxes one by one, as the oracle of layers that suppress in rounds."""

import numpy as np


def suppress_sequentially(
    boxes: np.ndarray,
    valid: np.ndarray,
    threshold: float,
    *,
    plus: float = 0.0,
    eta: float = 1.0,
    or_equal: bool = False,
    max_selected: int | None = None,
) -> list[int]:
    """The numbers of the boxes kept, each compared with all that were kept before it."""
    kept_indices: list[int] = []
    limit = np.float32(threshold)
    for i in np.flatnonzero(valid):
        overlaps = [_overlap(boxes[k], boxes[i], np.float32(plus)) for k in kept_indices]
        is_suppressed = any(share >= limit if or_equal else share > limit for share in overlaps)
        if is_suppressed or len(kept_indices) == max_selected:
            continue
        kept_indices.append(int(i))
        if eta < 1 and limit > 0.5:
            limit *= np.float32(eta)
    return kept_indices


def _overlap(a: np.ndarray, b: np.ndarray, plus: np.float32) -> np.float32:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    sides = high - low + plus
    intersection = sides[0] * sides[1] if (sides > 0).all() else np.float32(0)
    union = _area(a, plus) + _area(b, plus) - intersection
    return intersection / union if union > 0 else np.float32(0)


def _area(box: np.ndarray, plus: np.float32) -> np.float32:
    sides = box[2:] - box[:2]
    return np.float32(0) if (sides < 0).any() else (sides[0] + plus) * (sides[1] + plus)
