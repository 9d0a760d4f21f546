"""Sequential non-maximum suppression, the oracle of the parallel implementation."""

import numpy as np


def suppress_sequentially(
    boxes: np.ndarray,
    valid: np.ndarray,
    threshold: float,
    *,
    side_offset: float = 0.0,
    eta: float = 1.0,
    suppress_equal: bool = False,
    max_selected: int | None = None,
) -> list[int]:
    """Return the indices of the selected boxes; each box is compared with the previously selected ones."""
    selected: list[int] = []
    limit = np.float32(threshold)
    for i in np.flatnonzero(valid):
        overlaps = [_overlap(boxes[k], boxes[i], np.float32(side_offset)) for k in selected]
        is_suppressed = any(overlap >= limit if suppress_equal else overlap > limit for overlap in overlaps)
        if is_suppressed or len(selected) == max_selected:
            continue
        selected.append(int(i))
        if eta < 1 and limit > 0.5:
            limit *= np.float32(eta)
    return selected


def _overlap(a: np.ndarray, b: np.ndarray, side_offset: np.float32) -> np.float32:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    sides = high - low + side_offset
    intersection = sides[0] * sides[1] if (sides > 0).all() else np.float32(0)
    union = _area(a, side_offset) + _area(b, side_offset) - intersection
    return intersection / union if union > 0 else np.float32(0)


def _area(box: np.ndarray, side_offset: np.float32) -> np.float32:
    sides = box[2:] - box[:2]
    return np.float32(0) if (sides < 0).any() else (sides[0] + side_offset) * (sides[1] + side_offset)
