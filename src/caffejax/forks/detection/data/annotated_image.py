"""An image with its objects, and the geometry of their boxes.

Boxes and windows are float32 (..., 4) arrays of xmin, ymin, xmax and ymax, as fractions of the image's width and
height. They broadcast against each other. Arithmetic is in float32, as in Caffe.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ....base.errors import DataError
from ..boxes import areas, overlaps


def box_coverage(boxes: np.ndarray, window: np.ndarray) -> np.ndarray:
    """Return the fraction of each box's area that is in a window."""
    return np.asarray(overlaps(boxes, window, divisor="first"))


def window_coverage(boxes: np.ndarray, window: np.ndarray) -> np.ndarray:
    """Return the fraction of a window's area that each box covers."""
    return box_coverage(window, boxes)


def clip_boxes(boxes: np.ndarray) -> np.ndarray:
    """Return boxes clipped to the image."""
    return np.clip(boxes, np.float32(0), np.float32(1))


def clip_to_window(boxes: np.ndarray, window: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return boxes relative to a window and clipped to it, and the mask of the nonempty boxes, bool (N,)."""
    corner, sides = window[:2], window[2:] - window[:2]
    clipped_boxes = clip_boxes((boxes - np.tile(corner, 2)) / np.tile(sides, 2))
    return clipped_boxes, areas(clipped_boxes) > 0


def mirror_boxes(boxes: np.ndarray) -> np.ndarray:
    """Return the boxes in the image flipped left to right."""
    mirrored_boxes = boxes.copy()
    mirrored_boxes[..., 0], mirrored_boxes[..., 2] = 1 - boxes[..., 2], 1 - boxes[..., 0]
    return mirrored_boxes


CLASS, INSTANCE, BOX, DIFFICULT = 0, 1, slice(2, 6), 6  # columns of objects


@dataclass(frozen=True, eq=False)
class AnnotatedImage:
    """An image and its objects.

    Attributes:
        pixels: (H, W, C).
        objects: float32 (G, 7): for each object its class, its number within the class, its box (4 columns), and
            whether it is difficult.
    """

    pixels: np.ndarray
    objects: np.ndarray

    @property
    def boxes(self) -> np.ndarray:
        """The boxes of the objects, float32 (G, 4)."""
        return self.objects[:, BOX]

    def with_boxes(self, boxes: np.ndarray) -> AnnotatedImage:
        """Return a copy whose objects have new boxes, float32 (G, 4)."""
        objects = self.objects.copy()
        objects[:, BOX] = boxes
        return replace(self, objects=objects)

    def select(self, mask: np.ndarray) -> AnnotatedImage:
        """Return a copy with the objects that a bool array (G,) selects."""
        return replace(self, objects=self.objects[mask])

    def crop(self, window: np.ndarray, pixels: np.ndarray | None = None) -> AnnotatedImage:
        """Return a copy with the parts of the objects that are in a window, as boxes relative to the window.

        Args:
            window: the window, float32 (4,). It may exceed the image.
            pixels: the pixels of the window, or None for the image's pixels.
        """
        boxes, is_visible = clip_to_window(self.boxes, window)
        image = self.with_boxes(boxes).select(is_visible)
        return image if pixels is None else replace(image, pixels=pixels)

    def get_color_pixels(self) -> np.ndarray:
        """Return the pixels if they are uint8 with three channels.

        Raises:
            DataError: if they are not.
        """
        if self.pixels.shape[2] != 3 or self.pixels.dtype != np.uint8:
            raise DataError(
                f"has {self.pixels.shape[2]} channels of {self.pixels.dtype}, but changing its colors needs "
                "3 channels of uint8; set force_color"
            )
        return self.pixels
