"""Lists of videos, and the clips of C3D."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from ...errors import DataError, Problem, located
from ...layers.context import Site
from ..common import CounterRng, Order
from ..image_decoding import BadImageError, check_pixels, read_image, resize
from ..image_list import find_files, read_names, shorten
from ..opencv import cv2
from ..prefetch import available_cores

_WHOLE = re.compile(r"[+-]?\d{1,9}")


@dataclass(frozen=True)
class VideoList:
    """A list of videos.

    Attributes:
        names: the videos' names, as written.
        numbers: the number that stands between a name and its labels: where a clip begins, or how many frames there
            are; 0 where there is none.
        labels: the labels of each.
    """

    names: list[str]
    numbers: list[int]
    labels: list[list[int]]


def read_videos(file: Path, *, numbered: bool, several: bool = False) -> VideoList:
    """Read a list of videos.

    Args:
        file: the list.
        numbered: whether there is a number between the name and the labels.
        several: whether there may be several labels, with commas between them.

    Raises:
        DataError: if the file cannot be read, is empty, or with all lines that are not of that form.
    """
    videos, problems = VideoList([], [], []), []
    form = "a name, " + ("a whole number, " if numbered else "") + ("labels" if several else "a label")
    for line, text in enumerate(read_names(file), 1):
        name, *rest = text.split()
        labels = rest[-1].split(",") if several and rest else rest[-1:]
        numbers = rest[:-1]
        if len(rest) != 1 + numbered or not all(map(_WHOLE.fullmatch, (*numbers, *labels))):
            problems.append(Problem(f"'{text}' is not {form}, with spaces between them", str(file), line))
            continue
        videos.names.append(name)
        videos.numbers.append(int(numbers[0]) if numbered else 0)
        videos.labels.append([int(label) for label in labels])
    if problems:
        raise DataError(shorten(problems))
    return videos


Label = TypeVar("Label")


class ListedVideos(ABC, Generic[Label]):
    """The videos of a list, round and round.

    Args:
        paths: where they lie.
        labels: of each.
        order: which of them is example n.
    """

    def __init__(self, paths: Sequence[str], labels: Sequence[Label], order: Order) -> None:
        self._paths, self._labels, self._order = paths, labels, order

    @abstractmethod
    def _read(self, n: int, i: int) -> np.ndarray:
        """Read example n, which is of video i."""

    def __len__(self) -> int:
        """Return how many videos there are before they come again."""
        return len(self._order)

    def count_threads(self) -> int:
        """Return how many threads can read faster than one: decoding runs outside of Python's lock."""
        return available_cores()

    def read_range(self, start: int, count: int) -> tuple[Sequence[np.ndarray], Sequence[Label]]:
        """Return that many examples and their labels."""
        numbers = [(n, self._order[n]) for n in range(start, start + count)]
        return [self._read(n, i) for n, i in numbers], [self._labels[i] for _, i in numbers]

    def error(self, n: int, error: DataError) -> DataError:
        """Return the error with the video's path."""
        return DataError(f"video '{self._paths[self._order[n]]}' {error}")

    def close(self) -> None:
        """Do nothing: no file is open between examples."""


class ClipExamples(ListedVideos[Any]):
    """The clips of a list, round and round, as images (3 * length, H, W): a channel for each frame's blue, then green.

    Args:
        site: the layer.
        param: its parameters.
        rng: what decides over the order, and where clips begin.

    Raises:
        DataError: if the list, or a video that it names, is missing or malformed.
    """

    def __init__(self, site: Site, param: Any, rng: CounterRng) -> None:
        self._param, self._rng, self._training = param, rng, site.training
        self._max_pixels = site.reading.max_image_pixels
        several = bool(getattr(param, "use_multiple_label", False))
        file = site.path(param.source)
        videos = read_videos(file, numbered=param.use_image or not param.use_temporal_jitter, several=several)
        folders = [folder for folder in (site.folder, file.parent) if folder is not None]
        paths = find_files(file, videos.names, param.root_folder, folders, "video")
        self._numbers = videos.numbers
        labels = [self._marked(own) if several else own[0] for own in videos.labels]
        super().__init__(paths, labels, Order(len(paths), param, rng))

    def _marked(self, labels: list[int]) -> np.ndarray:
        n = self._param.num_of_labels
        if not all(0 <= label < n for label in labels):
            raise DataError(f"the list has labels {labels}, which are not all among num_of_labels {n}")
        return np.isin(np.arange(n), labels).astype(np.float32)

    def _read(self, n: int, i: int) -> np.ndarray:
        param, random = self._param, self._rng.generator(n)
        step = param.sampling_rate
        if getattr(param, "use_sampling_rate_jitter", False):
            step = int(random.integers(param.max_sampling_rate)) + 1
        length, path = param.new_length, self._paths[i]
        if not param.use_image:
            begin = None if param.use_temporal_jitter else self._numbers[i]
            frames = _frames_of_file(path, begin, length, step, random, self._max_pixels)
        else:
            first = self._numbers[i]
            if param.use_temporal_jitter:  # the number is how many frames there are, of which the first is 1
                room = first - length * step
                if room < 0:
                    raise BadImageError(Problem(f"has {first} frames, of which {length * step} are needed", path))
                first = int(random.integers(room + 1)) + 1 if self._training else 1
            numbers = range(first, first + length * step, step)
            files = [os.path.join(path, f"{number:06d}.jpg") for number in numbers]
            frames = [read_image(file, max_pixels=self._max_pixels) for file in files]
        small = [resize(frame, param.new_height, param.new_width, self._max_pixels) for frame in frames]
        if len({frame.shape for frame in small}) > 1:
            raise BadImageError(Problem("has frames of several sizes; new_height and new_width make them one", path))
        return np.stack(small, axis=1).reshape(-1, *small[0].shape[1:])


def _frames_of_file(
    path: str, begin: int | None, length: int, step: int, random: np.random.Generator, max_pixels: int
) -> list[np.ndarray]:
    """Read frames (3, H, W) of a video file: `length` of them, each `step` after the one before.

    They are read one after another from the first on, as not all files can be entered in the middle. With `begin`
    None the first is drawn.
    """
    capture = cv2.VideoCapture(path)
    try:
        if not capture.isOpened():
            raise BadImageError(Problem("is no video that OpenCV can read", path))
        height, width = (int(capture.get(side)) for side in (cv2.CAP_PROP_FRAME_HEIGHT, cv2.CAP_PROP_FRAME_WIDTH))
        with located(file=path):
            check_pixels(height, width, max_pixels)
        if begin is None:
            there = int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
            if there < length * step:
                raise BadImageError(Problem(f"has {there} frames, of which {length * step} are needed", path))
            begin = int(random.integers(there - length * step + 1))
        frames: list[np.ndarray] = []
        for number in range(begin + (length - 1) * step + 1):
            if not capture.grab():
                raise BadImageError(Problem(f"has {number} frames, too few for those from {begin} on", path))
            if number >= begin and (number - begin) % step == 0:
                frames.append(capture.retrieve()[1].transpose(2, 0, 1))
        return frames
    finally:
        capture.release()
