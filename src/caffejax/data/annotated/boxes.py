"""Boxes of a picture, in units of the picture: what becomes of them when it is cut, and how they overlap.

Boxes are float32 (..., 4), xmin, ymin, xmax, ymax; so are windows, which broadcast with boxes. Arithmetic is in
float32, as in Caffe.
"""

from __future__ import annotations

import numpy as np

WHOLE = np.array([0, 0, 1, 1], np.float32)


def areas(boxes: np.ndarray) -> np.ndarray:
    """Return the areas of boxes (..., 4); 0 of those with xmax < xmin or ymax < ymin."""
    sides: np.ndarray = boxes[..., 2:] - boxes[..., :2]
    return np.where((sides < 0).any(axis=-1), np.float32(0), sides[..., 0] * sides[..., 1])


def shared_areas(boxes: np.ndarray, window: np.ndarray) -> np.ndarray:
    """Return the areas that boxes share with a window."""
    low, high = np.maximum(boxes[..., :2], window[..., :2]), np.minimum(boxes[..., 2:], window[..., 2:])
    return areas(np.concatenate([low, high], axis=-1))


def overlaps(boxes: np.ndarray, window: np.ndarray) -> np.ndarray:
    """Return the intersection over union of each box and a window."""
    shared = shared_areas(boxes, window)
    return _ratio(shared, areas(boxes) + areas(window) - shared)


def shares_within(boxes: np.ndarray, window: np.ndarray) -> np.ndarray:
    """Return how much of each box lies in a window, 0 to 1."""
    return _ratio(shared_areas(boxes, window), areas(boxes))


def shares_of(boxes: np.ndarray, window: np.ndarray) -> np.ndarray:
    """Return how much of a window each box covers, 0 to 1."""
    return shares_within(window, boxes)


def clipped(boxes: np.ndarray) -> np.ndarray:
    """Return boxes without what lies outside of the picture."""
    return np.clip(boxes, np.float32(0), np.float32(1))


def within(boxes: np.ndarray, window: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return boxes in units of a window, without what lies outside of it, and which of them have an area then."""
    corner, sides = window[:2], window[2:] - window[:2]
    inside = clipped((boxes - np.tile(corner, 2)) / np.tile(sides, 2))
    return inside, areas(inside) > 0


def mirrored(boxes: np.ndarray) -> np.ndarray:
    """Return boxes of the picture turned round, left to right."""
    turned = boxes.copy()
    turned[..., 0], turned[..., 2] = 1 - boxes[..., 2], 1 - boxes[..., 0]
    return turned


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.where(part > 0, part, 0) / np.where(part > 0, whole, np.float32(1))
