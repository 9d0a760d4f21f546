"""Images and maps of labels, from lists of files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from ...errors import DataError
from ...layers.context import Site
from ..datum import BadImageError
from ..images import read_image
from ..lists import find_files, find_images, read_list, read_names, read_pairs
from ..opencv import cv2
from ..order import Order
from ..pipeline import available_cores
from ..rng import CounterRng
from ..shapes import dims


class LabelMap(NamedTuple):
    """What belongs to an image.

    Attributes:
        labels: uint8 (1, H, W).
        size: the image's height and width in its file.
    """

    labels: np.ndarray
    size: tuple[int, int]


@dataclass(frozen=True)
class Reading:
    """How a type reads its list.

    Attributes:
        labels: what stands beside an image in the list: a file of "pixels", one label for the whole "image", or "none".
        fill: the label of all pixels, where nothing stands there.
        shrink: how maps of labels are resized: an interpolation of OpenCV's.
        change: what is done with them in the end.
    """

    labels: Literal["pixels", "image", "none"] = "pixels"
    fill: int = 0
    shrink: int = cv2.INTER_NEAREST
    change: Callable[[np.ndarray], np.ndarray] | None = None


class MapExamples:
    """The images of a list with their maps of labels, round and round.

    Args:
        site: the layer.
        param: its parameters: source, root_folder, shuffle, rand_skip, new_height, new_width and is_color.
        reading: how the list is read.
        rng: what decides over the order.

    Raises:
        DataError: if the list, or a file that it names, is missing or malformed.
    """

    def __init__(self, site: Site, param: Any, reading: Reading, rng: CounterRng) -> None:
        self._param, self._reading = param, reading
        self._max_pixels = site.reading.max_image_pixels
        file = site.path(param.source)
        folders = [folder for folder in (site.folder, file.parent) if folder is not None]

        def found(names: Sequence[str], what: str = "image") -> list[str]:
            return find_files(file, names, param.root_folder, folders, what)

        self._labels: Sequence[str | int]
        if reading.labels == "pixels":
            names, labels = read_pairs(file)
            self._paths, self._labels = found(names), found(labels, "label image")
        elif reading.labels == "image":
            images = read_list(file)
            self._paths, self._labels = find_images(images, param.root_folder, folders), images.labels
            if not all(0 <= label < 256 for label in images.labels):
                raise DataError(f"{file} has labels beyond 0 to 255, which no pixel can have")
        else:
            self._paths = found(read_names(file))
            self._labels = [reading.fill] * len(self._paths)
        self._order = Order(len(self._paths), param, rng)

    def __len__(self) -> int:
        """Return how many images there are before they come again."""
        return len(self._order)

    def count_threads(self) -> int:
        """Return how many threads can read faster than one: decoding runs outside of Python's lock."""
        return available_cores()

    def read_range(self, start: int, count: int) -> tuple[Sequence[np.ndarray], Sequence[LabelMap]]:
        """Return that many images (C, H, W) and what belongs to them."""
        examples = [self._read(self._order[n]) for n in range(start, start + count)]
        return [image for image, _ in examples], [labels for _, labels in examples]

    def error(self, n: int, error: DataError) -> DataError:
        """Return the error with the image's path."""
        return DataError(f"image '{self._paths[self._order[n]]}' {error}")

    def close(self) -> None:
        """Do nothing: no file is open between images."""

    def _read(self, i: int) -> tuple[np.ndarray, LabelMap]:
        image = read_image(self._paths[i], self._param.is_color, max_pixels=self._max_pixels)
        labels = self._label_map(self._labels[i])
        size = image.shape[1:]
        if labels is None:
            labels = np.full((1, *size), self._labels[i], np.uint8)
        elif labels.shape[1:] != size:
            raise BadImageError(
                f"image '{self._paths[i]}' is {dims(size)} (HxW), but its label image '{self._labels[i]}' is "
                f"{dims(labels.shape[1:])}"
            )
        if self._param.new_height:
            new = self._param.new_height, self._param.new_width
            image, labels = scaled(image, new, cv2.INTER_LINEAR), scaled(labels, new, self._reading.shrink)
        change = self._reading.change
        return image, LabelMap(labels if change is None else change(labels), (size[0], size[1]))

    def _label_map(self, label: str | int) -> np.ndarray | None:
        return read_image(label, colour=False, max_pixels=self._max_pixels) if isinstance(label, str) else None


def scaled(image: np.ndarray, size: tuple[int, int], interpolation: int) -> np.ndarray:
    """Resize an image (C, H, W) to a height and width."""
    pixels = cv2.resize(np.ascontiguousarray(image.transpose(1, 2, 0)), size[::-1], interpolation=interpolation)
    return pixels.reshape(*size, len(image)).transpose(2, 0, 1)
