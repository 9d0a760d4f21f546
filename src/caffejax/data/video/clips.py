"""Clips of C3D: so many frames of a video, from a file or from a folder of images."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ...errors import DataError, Problem, located
from ...layers.context import Site
from ..datum import BadImageError, check_pixels
from ..images import read_image, resize
from ..lists import find_files
from ..opencv import cv2
from ..order import Order
from ..rng import CounterRng
from .listed import ListedVideos
from .lists import read_videos


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
