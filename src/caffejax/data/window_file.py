"""Window files, as R-CNN writes them: images, and in each of them boxes with a class and an overlap.

# 0                      image number, counting from 0
path/of/image.jpg
3 333 500                channels, height, width
2                        number of windows
15 1.0 10 20 110 120     class, overlap with an object of that class, x1, y1, x2, y2 (pixels, inclusive)
7 0.2 30 40 50 60
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from ..errors import DataError, Problem
from .lists import ImageList, shorten


@dataclass(frozen=True)
class ImageWindows:
    """The content of a window file.

    Attributes:
        images: the images; their labels mean nothing.
        foreground: int32 (n, 6): image, class, x1, y1, x2, y2 of the windows that overlap enough.
        background: likewise of those that overlap too little; the class is 0.
    """

    images: ImageList
    foreground: np.ndarray
    background: np.ndarray


def read_windows(file: Path, fg_threshold: float, bg_threshold: float, most: int | None = None) -> ImageWindows:
    """Read a window file. Windows with an overlap from `bg_threshold` up to `fg_threshold` are left out.

    Args:
        file: the file.
        fg_threshold: the overlap from which on a window is foreground.
        bg_threshold: the overlap below which it is background.
        most: how many images to read the windows of; None for all.

    Raises:
        DataError: if the file cannot be read, is not of that form, or has foreground windows of class 0 or less.
    """
    images = ImageList(file, [], [])
    foreground: list[np.ndarray] = []
    background: list[np.ndarray] = []
    problems: list[Problem] = []
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as text:
            words = _Words(text)
            for number, line in itertools.islice(_image_numbers(words), most):
                where = len(images.names)
                if number != where:
                    problems.append(Problem(f"image {number} stands where image {where} should", str(file), line))
                images.names.append(next(words))
                images.labels.append(0)
                channels, _, _ = [int(next(words)) for _ in range(3)]
                if channels != 3:
                    problems.append(Problem(f"the image is said to have {channels} channels, not 3", str(file), line))
                windows = _windows(words, int(next(words)))
                rows = np.column_stack([np.full(len(windows), where), windows[:, 0], windows[:, 2:]]).astype(np.int32)
                above = windows[:, 1] >= np.float32(fg_threshold)
                below = (windows[:, 1] < np.float32(bg_threshold)) & ~above
                if (windows[:, 2:4] > windows[:, 4:]).any():
                    problems.append(Problem("a window ends before it begins: x1 y1 x2 y2", str(file), line))
                if (rows[above, 1] <= 0).any():
                    problems.append(Problem("a foreground window has class 0 or less", str(file), line))
                rows[below, 1] = 0
                foreground.append(rows[above])
                background.append(rows[below])
    except OSError as error:
        raise DataError(Problem(f"the window file cannot be read: {error.strerror}", str(file))) from error
    except (ValueError, StopIteration, OverflowError) as error:
        what = f"'{words.last}' does not belong here" if words.line else "is empty"
        message = f"not a window file, or damaged: {what}; see caffejax.data.window_file for the form"
        raise DataError(Problem(message, str(file), words.line or None)) from error
    if problems:
        raise DataError(shorten(problems))
    if not images.names:
        raise DataError(Problem("the window file names no images", str(file)))
    return ImageWindows(images, np.concatenate(foreground), np.concatenate(background))


class _Words:
    """The words of a text, one after the other, and the line of the last one."""

    def __init__(self, text: TextIO) -> None:
        self.line = 0
        self.last = ""
        self._words = self._all(text)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.last = next(self._words)
        return self.last

    def _all(self, text: TextIO) -> Iterator[str]:
        for self.line, line in enumerate(text, 1):
            yield from line.split()


def _image_numbers(words: _Words) -> Iterator[tuple[int, int]]:
    """Yield the number of each image, and the line it stands in."""
    for word in words:
        # the number may stand close to the sign
        if not word.startswith("#"):
            raise ValueError(word)
        yield int(word[1:] or next(words, "")), words.line


def _windows(words: _Words, count: int) -> np.ndarray:
    """Read so many windows: float32 overlaps between whole numbers, float64 (count, 6)."""
    if count < 0:
        raise ValueError(count)
    values = np.fromiter(map(float, itertools.islice(words, 6 * count)), np.float64)
    windows = values.reshape(count, 6)
    whole = windows[:, [0, 2, 3, 4, 5]]
    if not (np.abs(whole) < 2**31).all() or (whole % 1).any():
        raise ValueError("not whole, or beyond 32 bits")
    with np.errstate(over="ignore"):  # what no float holds becomes infinity, as in Caffe
        windows[:, 1] = windows[:, 1].astype(np.float32)
    return windows
