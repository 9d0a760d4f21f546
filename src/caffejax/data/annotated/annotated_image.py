"""An image with its objects, and the geometry of their boxes.

Boxes and windows are float32 (..., 4) in units of the image: xmin, ymin, xmax, ymax. They broadcast against each
other. Arithmetic is in float32, as in Caffe.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...errors import DataError

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


# the columns of objects
CLASS, INSTANCE, BOX, DIFFICULT = 0, 1, slice(2, 6), 6


@dataclass(frozen=True, eq=False)
class Picture:
    """An image and what is in it.

    Attributes:
        image: (H, W, C).
        objects: float32 (G, 7), for each its class, its number within that, its box in units of the image, and whether
            it is difficult.
    """

    image: np.ndarray
    objects: np.ndarray

    @property
    def boxes(self) -> np.ndarray:
        """The boxes of the objects."""
        return self.objects[:, BOX]

    def with_boxes(self, boxes: np.ndarray) -> Picture:
        """Return the same with other boxes."""
        objects = self.objects.copy()
        objects[:, BOX] = boxes
        return replace(self, objects=objects)

    def keep(self, which: np.ndarray) -> Picture:
        """Return the same with those objects only."""
        return replace(self, objects=self.objects[which])

    def seen_through(self, window: np.ndarray, image: np.ndarray | None = None) -> Picture:
        """Return what of the objects lies in a window, which may reach beyond the image; with that window's image."""
        boxes, there = within(self.boxes, window)
        seen = self.with_boxes(boxes).keep(there)
        return seen if image is None else replace(seen, image=image)

    def coloured(self) -> np.ndarray:
        """Return the image if it has three colours, a byte each.

        Raises:
            DataError: if it has not.
        """
        if self.image.shape[2] != 3 or self.image.dtype != np.uint8:
            raise DataError(
                f"has {self.image.shape[2]} channels of {self.image.dtype}, but what is to be done with its colours "
                "needs 3 of uint8; force_color gives them"
            )
        return self.image
