"""Lists of videos, and the clips of C3D."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError, Problem, locate_errors
from ...layers.context import Site
from ..common import CounterRng
from ..image_batches import Label
from ..image_data import ListDataset
from ..image_decoding import BadImageError, check_pixels, read_image, resize
from ..image_list import find_files, list_folders, read_names, shorten
from ..opencv import cv2

_WHOLE = re.compile(r"[+-]?\d{1,9}")


@dataclass(frozen=True)
class VideoList:
    """A list of videos.

    Attributes:
        names: the videos' names as in the file.
        numbers: the number between a name and its labels: the first frame of a clip, or the number of frames; 0 if the
            line has no number.
        labels: the labels of each video.
    """

    names: list[str]
    numbers: list[int]
    labels: list[list[int]]


def read_videos(file: Path, *, numbered: bool, several: bool = False) -> VideoList:
    """Read a list of videos.

    Args:
        file: the list.
        numbered: whether lines have a number between the name and the labels.
        several: whether lines may have several labels, separated by commas.

    Raises:
        DataError: if the file cannot be read or is empty, or naming all malformed lines.
    """
    videos, problems = VideoList([], [], []), []
    form = "a name, " + ("an integer, " if numbered else "") + ("labels" if several else "a label")
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


class VideoDataset(ListDataset[Label]):
    """The videos of a list as examples."""

    noun = "video"


class ClipDataset(VideoDataset[Any]):
    """The clips of a list as images (3 * length, H, W): the blue channels of all frames, then green, then red.

    Args:
        site: the layer.
        param: its parameters.
        rng: decides about the order, and about the first frame of each clip.

    Raises:
        DataError: if the list, or a video that it names, is missing or malformed.
    """

    def __init__(self, site: Site, param: Any, rng: CounterRng) -> None:
        self._param, self._rng, self._training = param, rng, site.training
        self._max_pixels = site.reading.max_image_pixels
        several = bool(getattr(param, "use_multiple_label", False))
        file = site.path(param.source)
        videos = read_videos(file, numbered=param.use_image or not param.use_temporal_jitter, several=several)
        paths = find_files(file, videos.names, param.root_folder, list_folders(site, file), "video")
        self._numbers = videos.numbers
        self._labels = [self._one_hot(labels) if several else labels[0] for labels in videos.labels]
        super().__init__(paths, param, rng)

    def _one_hot(self, labels: list[int]) -> np.ndarray:
        """Return an array with 1 at each of the labels, else 0: float32 (num_of_labels,)."""
        n = self._param.num_of_labels
        if not all(0 <= label < n for label in labels):
            raise DataError(f"the list has labels {labels}, which must be below num_of_labels {n}")
        return np.isin(np.arange(n), labels).astype(np.float32)

    def read_one(self, n: int, i: int) -> tuple[np.ndarray, Any]:
        """Read the clip and the label of the video on line i."""
        param, random = self._param, self._rng.generator(n)
        step = param.sampling_rate
        if getattr(param, "use_sampling_rate_jitter", False):
            step = int(random.integers(param.max_sampling_rate)) + 1
        length, path = param.new_length, self._paths[i]
        if not param.use_image:
            begin = None if param.use_temporal_jitter else self._numbers[i]
            frames = _read_frames(path, begin, length, step, random, self._max_pixels)
        else:
            first = self._numbers[i]
            if param.use_temporal_jitter:  # `first` is the number of frames, which count from 1
                room = first - length * step
                if room < 0:
                    raise BadImageError(Problem(f"has {first} frames, but {length * step} are needed", path))
                first = int(random.integers(room + 1)) + 1 if self._training else 1
            numbers = range(first, first + length * step, step)
            files = [os.path.join(path, f"{number:06d}.jpg") for number in numbers]
            frames = [read_image(file, max_pixels=self._max_pixels) for file in files]
        small = [resize(frame, param.new_height, param.new_width, self._max_pixels) for frame in frames]
        if len({frame.shape for frame in small}) > 1:
            raise BadImageError(Problem("has frames of several sizes; set new_height and new_width", path))
        return np.stack(small, axis=1).reshape(-1, *small[0].shape[1:]), self._labels[i]


def _read_frames(
    path: str, begin: int | None, length: int, step: int, random: np.random.Generator, max_pixels: int
) -> list[np.ndarray]:
    """Read `length` frames (3, H, W) of a video file, `step` frames apart.

    All frames from the start of the file are decoded, because seeking does not work in all files. If `begin` is None,
    the first frame is drawn at random.
    """
    capture = cv2.VideoCapture(path)
    try:
        if not capture.isOpened():
            raise BadImageError(Problem("is not a video that OpenCV can read", path))
        height, width = (int(capture.get(side)) for side in (cv2.CAP_PROP_FRAME_HEIGHT, cv2.CAP_PROP_FRAME_WIDTH))
        with locate_errors(file=path):
            check_pixels(height, width, max_pixels)
        if begin is None:
            there = int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
            if there < length * step:
                raise BadImageError(Problem(f"has {there} frames, but {length * step} are needed", path))
            begin = int(random.integers(there - length * step + 1))
        frames: list[np.ndarray] = []
        for number in range(begin + (length - 1) * step + 1):
            if not capture.grab():
                raise BadImageError(Problem(f"has {number} frames, too few to start at frame {begin}", path))
            if number >= begin and (number - begin) % step == 0:
                frames.append(capture.retrieve()[1].transpose(2, 0, 1))
        return frames
    finally:
        capture.release()
