"""Windows cut out of an image and warped to a square, with some of what lies around them, as R-CNN does."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..errors import DataError
from .opencv import cv2


class Warp(NamedTuple):
    """How windows become squares.

    Attributes:
        size: the side of the square.
        context: how many pixels of its border show what is around the window.
        square: whether the window is first widened to a square, so that the warp does not distort.
    """

    size: int
    context: int
    square: bool

    def __call__(self, image: np.ndarray, box: np.ndarray, mirror: bool) -> tuple[np.ndarray, int, int]:
        """Return the window's pixels.

        Args:
            image: (H, W, 3).
            box: x1, y1, x2, y2, inclusive.
            mirror: whether it is flipped left to right.

        Returns:
            Pixels (h, w, 3), and the row and column of the square where they begin. They do not fill the square
            where the window with its surroundings reaches beyond the image.

        Raises:
            DataError: if nothing of the window lies in the image, or too little for a pixel of the square.
        """
        x1, y1, x2, y2 = map(int, box)
        x, y = _Span(x1, x2, image.shape[1]), _Span(y1, y2, image.shape[0])
        width = height = _Place(self.size, 0, 0)
        if self.context or self.square:
            half = (x.half, y.half)
            halves = (max(half),) * 2 if self.square else half
            scale = np.float32(self.size) / np.float32(self.size - 2 * self.context)
            x, width = x.widened(halves[0], scale).fitted(self.size)
            y, height = y.widened(halves[1], scale).fitted(self.size)
        # mirrored, what is missing on the right is missing on the left
        row, column = height.before, width.after if mirror else width.before
        size = min(width.size, self.size - column), min(height.size, self.size - row)
        inside = 0 <= x.first <= x.last < x.room and 0 <= y.first <= y.last < y.room
        if not inside or min(size) < 1:
            what = "too little of it lies" if inside else "does not lie"
            raise DataError(
                f"window {' '.join(map(str, box))}: {what} in the image, {image.shape[1]} x {image.shape[0]}"
            )
        pixels = cv2.resize(image[y.first : y.last + 1, x.first : x.last + 1], size)
        return (pixels[:, ::-1] if mirror else pixels), row, column


class _Place(NamedTuple):
    """How many pixels of the square are filled, and how many before and after are not, because of the image's edge."""

    size: int
    before: int
    after: int


class _Span(NamedTuple):
    """First and last pixel along one axis of an image, and how many it has. Numbers are rounded as Caffe's floats."""

    first: int
    last: int
    room: int

    @property
    def half(self) -> np.float32:
        return np.float32(np.float32(self.last - self.first + 1) / 2)

    def widened(self, half: np.float32, scale: np.float32) -> _Span:
        """Return the span about the same centre that is `scale` times as long as twice `half`."""
        centre = np.float32(self.first) + self.half
        return _Span(_round(centre - half * scale), _round(centre + half * scale), self.room)

    def fitted(self, size: int) -> tuple[_Span, _Place]:
        """Return what of it lies in the image, and where that comes to lie if the whole is warped to `size` pixels."""
        before, after = max(0, -self.first), max(0, self.last - self.room + 1)
        inside = _Span(self.first + before, self.last - after, self.room)
        scale = np.float32(size) / np.float32(self.last - self.first + 1)
        length = inside.last - inside.first + 1
        filled, before, after = (_round(np.float32(n) * scale) for n in (length, before, after))
        return inside, _Place(filled, before, after)


def _round(x: np.float32) -> int:
    """Round to the nearest whole number, halves away from zero, as C does."""
    return int(np.copysign(np.floor(np.abs(np.float64(x)) + 0.5), x))
