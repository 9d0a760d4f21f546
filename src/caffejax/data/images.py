"""Image files, read as Caffe's ReadImageToCVMat does."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..errors import DataError, Problem, located
from ..options import MAX_IMAGE_PIXELS
from ..paths import content
from .datum import COLOUR, GREY, decode_image
from .opencv import cv2


def read_image(
    path: str | Path, colour: bool = True, height: int = 0, width: int = 0, max_pixels: int = MAX_IMAGE_PIXELS
) -> np.ndarray:
    """Read the pixels of an image file: uint8 (C, H, W), colours in the order B, G, R.

    Args:
        path: the file: JPEG, PNG, or what else OpenCV reads.
        colour: whether three channels come out, else one; whatever the file has.
        height: the height to resize to, bilinearly, if `width` is given too; else 0.
        width: likewise.
        max_pixels: how many pixels it may have, in the file and resized.

    Raises:
        DataError: naming the file, if it cannot be read; BadImageError, if it cannot be decoded or is too large.
    """
    return resize(decode_file(path, read_file(path), colour, max_pixels), height, width, max_pixels)


def read_file(path: str | Path) -> bytes:
    """Read the bytes of a file.

    Raises:
        DataError: naming the file, if it cannot be read.
    """
    try:
        return content(path)
    except (OSError, ValueError) as error:
        raise DataError(Problem(f"cannot be read: {getattr(error, 'strerror', error)}", str(path))) from error


def decode_file(path: str | Path, data: bytes, colour: bool = True, max_pixels: int = MAX_IMAGE_PIXELS) -> np.ndarray:
    """Decode the bytes of an image file to pixels, as `read_image` gives them.

    Raises:
        BadImageError: naming the file, if they cannot be decoded, or hold more than `max_pixels`.
    """
    with located(file=str(path)):
        return decode_image(data, COLOUR if colour else GREY, max_pixels)


def resize(image: np.ndarray, height: int, width: int, max_pixels: int = MAX_IMAGE_PIXELS) -> np.ndarray:
    """Resize an image (C, H, W) bilinearly, unless height or width is 0.

    Raises:
        DataError: if it would have more than `max_pixels`, or there is no memory for it.
    """
    if not (height and width):
        return image
    problem = f"cannot be resized to height {height} and width {width}: that is too large (--max_image_pixels)"
    if height * width > max_pixels:
        raise DataError(problem)
    try:
        pixels = cv2.resize(image.transpose(1, 2, 0), (width, height))
    except (cv2.error, MemoryError) as error:
        raise DataError(problem) from error
    return pixels.reshape(height, width, len(image)).transpose(2, 0, 1)
