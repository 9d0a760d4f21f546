"""A picture: an image and what is in it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...errors import DataError
from .boxes import within

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
