"""Where the window lies that is cut out of an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import DataError
from .shapes import dims

# how BVLC Caffe, the SSD fork and PSPNet's spell height and width
_SPELLINGS = (("crop_size", "crop_size"), ("crop_h", "crop_w"), ("crop_height", "crop_width"))


@dataclass(frozen=True)
class Crop:
    """A window, or the whole image.

    Attributes:
        height: its height; 0 for the whole image.
        width: its width, likewise.
        random: whether it lies anywhere, as in training, or in the middle.
    """

    height: int
    width: int
    random: bool

    def shape(self, image: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape (C, h, w) cut from an image (C, H, W).

        Raises:
            DataError: if the window is larger than the image.
        """
        if self.height > image[1] or self.width > image[2]:
            size = str(self.height) if self.height == self.width else f"{self.height} x {self.width}"
            raise DataError(f"is {dims(image)} (CxHxW), smaller than crop_size {size}")
        return (image[0], self.height, self.width) if self.height else image

    def origins(self, extents: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Return the upper left corners of the windows: integers (N, 2), row and column.

        Args:
            extents: heights and widths of the images, uint64 (N, 2).
            words: random words, uint64 (N, 2), used if the window is random.
        """
        if not self.height:
            return np.zeros_like(extents)
        room = extents - np.array([self.height, self.width], np.uint64)
        return words % (room + np.uint64(1)) if self.random else room // np.uint64(2)


def crop_of(param: Any, random: bool) -> Crop:
    """Return the window that a TransformationParameter asks for.

    Raises:
        DataError: if it has only one side, or is given twice.
    """
    given = [names for names in _SPELLINGS if any(getattr(param, name) for name in names)]
    if len(given) > 1:
        raise DataError(f"transform_param has both {given[0][0]} and {given[1][0]}; keep one of them")
    height, width = (getattr(param, name) for name in given[0]) if given else (0, 0)
    if bool(height) != bool(width):
        raise DataError(f"transform_param has only one of {given[0][0]} and {given[0][1]}; give both or none")
    return Crop(height, width, random)
