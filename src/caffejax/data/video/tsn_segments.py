"""Segments of temporal segment networks: a few frames of each part of a video, as images or as optical flow."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import DataError, Problem
from ...layers.context import Site
from ..common import CounterRng, dims
from ..image_decoding import BadImageError, read_image, resize
from ..image_list import find_files, list_folders
from .video_examples import VideoDataset, read_videos

_PATTERNS = {"RGB": "image_%04d.jpg", "FLOW": "flow_%c_%04d.jpg"}


class SegmentDataset(VideoDataset[int]):
    """The videos of a list as images, with the channels of all frames in order.

    A video is divided into `num_segments` segments of equal length, each represented by `new_length` frames: at a
    random place in TRAIN, else in the middle. Optical flow has two frames, x and y, of one channel.

    Args:
        site: the layer.
        rng: decides about the order, and where frames begin.

    Raises:
        DataError: if the list, or a folder that it names, is missing or malformed.
    """

    def __init__(self, site: Site, rng: CounterRng) -> None:
        param = self._param = site.layer.video_data_param
        self._rng, self._training = rng, site.training
        self._max_pixels = site.reading.max_image_pixels
        self._crop = make_crop(site)
        self._flow = param.Modality.Name(param.modality) == "FLOW"
        self._pattern = param.name_pattern or _PATTERNS[param.Modality.Name(param.modality)]
        self._name(0, "x")
        file = site.path(param.source)
        videos = read_videos(file, numbered=True)
        paths = find_files(file, videos.names, param.root_folder, list_folders(site, file), "folder of frames")
        self._lengths = videos.numbers
        self._labels = [labels[0] for labels in videos.labels]
        super().__init__(paths, param, rng)

    def read_one(self, n: int, i: int) -> tuple[np.ndarray, int]:
        """Read frames of the video of line i."""
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
        return self._crop(np.concatenate(frames), random), self._labels[i]

    def _offsets(self, frames: int, random: np.random.Generator) -> list[int]:
        """Return the number of the frame before the first one of each segment."""
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


_RATIOS = (1.0, 0.875, 0.75, 0.66)
# places of crops, in quarters of the free space: corners and center; then the places of more_fix_crop
_PLACES = ((0, 0), (0, 4), (4, 0), (4, 4), (2, 2))
_MORE = ((0, 2), (4, 2), (2, 0), (2, 4), (1, 1), (1, 3), (3, 1), (3, 3))

CROP_SETTINGS = (
    "crop_size",
    "mirror",
    "multi_scale",
    "fix_crop",
    "more_fix_crop",
    "max_distort",
    "scale_ratios",
    "is_flow",
)


def make_crop(site: Site) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    """Return a function that crops and mirrors an image (C, H, W) as transform_param says.

    In TRAIN, crops are at random places, or with `fix_crop` at one of a few fixed places. With `multi_scale`, the
    height and width of a crop are fractions (`scale_ratios`) of the image's shorter side, whose indices differ by at
    most `max_distort`, and the crop is scaled to crop_size. In TEST the crop is in the center. With `is_flow`, mirrored
    frames of flow along x become 255 - x.
    """
    p, training = site.layer.transform_param, site.training
    ratios = [np.float32(r) for r in p.scale_ratios or _RATIOS]
    if not all(0 < r <= 1 for r in ratios):
        raise DataError(f"transform_param.scale_ratios must be above 0 and at most 1: {list(p.scale_ratios)}")
    if p.multi_scale and not p.crop_size:
        raise DataError("transform_param has multi_scale, which needs a crop_size")
    if p.original_image:
        raise DataError("transform_param.original_image is not supported")
    if p.mean_file and p.crop_size:
        raise DataError("transform_param has a mean_file and a crop_size; give mean_value")

    def window(image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        if p.crop_size:
            image = _cut(p, ratios, image, random if training else None)
        if p.mirror and random.integers(2):
            image = image[:, :, ::-1]
            if p.is_flow:
                image = image.copy()
                image[::2] = 255 - image[::2]
        return image

    return window


def _cut(p: Any, ratios: list[np.float32], image: np.ndarray, random: np.random.Generator | None) -> np.ndarray:
    size, extent = (p.crop_size, p.crop_size), image.shape[1:]
    if min(extent) < p.crop_size:
        raise DataError(f"is {dims(image.shape)} (CxHxW), smaller than crop_size {p.crop_size}")
    if random is not None and p.multi_scale:
        sides = [int(min(extent) * ratio) for ratio in ratios]
        sides = [p.crop_size if abs(side - p.crop_size) < 3 else side for side in sides]
        pairs = [(h, w) for i, h in enumerate(sides) for j, w in enumerate(sides) if abs(i - j) <= p.max_distort]
        size = pairs[random.integers(len(pairs))]
    room = [n - side for n, side in zip(extent, size, strict=True)]
    if random is None:
        row, column = (n // 2 for n in room)
    elif p.fix_crop:
        places = _PLACES + _MORE if p.more_fix_crop else _PLACES
        row, column = (n // 4 * q for n, q in zip(room, places[random.integers(len(places))], strict=True))
    else:
        row, column = (int(random.integers(n + 1)) for n in room)
    cut = image[:, row : row + size[0], column : column + size[1]]
    if size == (p.crop_size, p.crop_size):
        return cut
    # one by one: OpenCV takes no more than 512 channels
    return np.concatenate([resize(channel[None], p.crop_size, p.crop_size) for channel in cut])
