"""Segments of temporal segment networks: a few frames of each part of a video, as images or as optical flow."""

from __future__ import annotations

import os

import numpy as np

from ...errors import DataError, Problem
from ...layers.context import Site
from ..datum import BadImageError
from ..images import read_image
from ..lists import find_files
from ..order import Order
from ..rng import CounterRng
from .listed import ListedVideos
from .lists import read_videos
from .windows import windows_of

_PATTERNS = {"RGB": "image_%04d.jpg", "FLOW": "flow_%c_%04d.jpg"}


class SegmentExamples(ListedVideos[int]):
    """The videos of a list, round and round, as images with the channels of all frames one after another.

    A video has as many segments as long as `num_segments` says, and `new_length` frames of each count: in TRAIN from
    anywhere in it, else from its middle. A flow has two frames, x and y, of one channel.

    Args:
        site: the layer.
        rng: what decides over the order, and where frames begin.

    Raises:
        DataError: if the list, or a folder that it names, is missing or malformed.
    """

    def __init__(self, site: Site, rng: CounterRng) -> None:
        param = self._param = site.layer.video_data_param
        self._rng, self._training = rng, site.training
        self._max_pixels = site.reading.max_image_pixels
        self._windows = windows_of(site)
        self._flow = param.Modality.Name(param.modality) == "FLOW"
        self._pattern = param.name_pattern or _PATTERNS[param.Modality.Name(param.modality)]
        self._name(0, "x")
        file = site.path(param.source)
        videos = read_videos(file, numbered=True)
        folders = [folder for folder in (site.folder, file.parent) if folder is not None]
        paths = find_files(file, videos.names, param.root_folder, folders, "folder of frames")
        self._lengths = videos.numbers
        super().__init__(paths, [labels[0] for labels in videos.labels], Order(len(paths), param, rng))

    def _read(self, n: int, i: int) -> np.ndarray:
        param, random = self._param, self._rng.generator(n)
        form = not self._flow, param.new_height, param.new_width, self._max_pixels
        frames = [
            read_image(os.path.join(self._paths[i], name), *form)
            for offset in self._offsets(self._lengths[i], random)
            for number in range(offset + 1, offset + param.new_length + 1)
            for name in ([self._name(number, axis) for axis in "xy"] if self._flow else [self._name(number)])
        ]
        if len({frame.shape for frame in frames}) > 1:
            problem = Problem("has frames of several sizes; new_height and new_width make them one", self._paths[i])
            raise BadImageError(problem)
        return self._windows(np.concatenate(frames), random)

    def _offsets(self, frames: int, random: np.random.Generator) -> list[int]:
        """Return after which frame each segment's begin."""
        segments, length = self._param.num_segments, self._param.new_length
        part = frames // segments
        if part < length:
            return [1] * segments  # as in the fork, also for videos of a single frame
        room = part - length + 1
        return [int(random.integers(room) if self._training else room // 2) + k * part for k in range(segments)]

    def _name(self, number: int, axis: str = "") -> str:
        try:
            return self._pattern % ((axis, number) if self._flow else number)
        except (TypeError, ValueError) as error:
            form = "%c for the flow's axis and %d" if self._flow else "%d"
            raise DataError(f"name_pattern '{self._pattern}' must have {form} for the frame's number") from error
