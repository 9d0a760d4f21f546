"""Where the window lies that is cut out of an image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import DataError
from .shapes import dims


@dataclass(frozen=True)
class Crop:
    """A square window, or the whole image.

    Attributes:
        size: its side; 0 for the whole image.
        random: whether it lies anywhere, as in training, or in the middle.
    """

    size: int
    random: bool

    def shape(self, image: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape (C, h, w) cut from an image (C, H, W).

        Raises:
            DataError: if the window is larger than the image.
        """
        if self.size > min(image[1:]):
            raise DataError(f"is {dims(image)} (CxHxW), smaller than crop_size {self.size}")
        return (image[0], self.size, self.size) if self.size else image

    def origins(self, extents: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Return the upper left corners of the windows: integers (N, 2), row and column.

        Args:
            extents: heights and widths of the images, uint64 (N, 2).
            words: random words, uint64 (N, 2), used if the window is random.
        """
        if not self.size:
            return np.zeros_like(extents)
        room = extents - np.uint64(self.size)
        return words % (room + np.uint64(1)) if self.random else room // np.uint64(2)
