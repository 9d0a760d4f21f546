"""The ImageData layer: batches of images that a list names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import DataError
from ..layers.context import Site
from ..layers.registry import register
from ..layers.source import Look, Tops
from ..layers.types import LayerType, Signature
from .common import CounterRng, Order, check_list_param
from .data_layer import prefetch_depth, reads_batches
from .image_batches import LabelledBatches, look_at_images
from .image_decoding import read_image
from .image_list import find_images, read_list
from .prefetch import Batches, available_cores

# The second line is what old files say and Caffe ignores here; the third is how forks read, not what.
_KNOWN = {
    *("source", "batch_size", "rand_skip", "shuffle", "new_height", "new_width", "is_color", "root_folder"),
    *("scale", "mean_file", "crop_size", "mirror"),
    *("threads", "cache", "precache"),
}


class FileExamples:
    """The images of a list, round and round; with `shuffle` in an order of its own each round.

    Raises:
        DataError: if the list or an image it names is missing or malformed.
    """

    def __init__(self, site: Site, rng: CounterRng) -> None:
        param = self._param = site.layer.image_data_param
        self._max_pixels = site.reading.max_image_pixels
        file = site.path(param.source)
        images = read_list(file)
        folders = [folder for folder in (site.folder, file.parent) if folder is not None]
        self._paths = find_images(images, param.root_folder, folders)
        self._labels = images.labels
        self._order = Order(len(self._paths), param, rng)

    def __len__(self) -> int:
        """Return how many images there are before they come again."""
        return len(self._order)

    def count_threads(self) -> int:
        """Return how many threads can read faster than one: decoding runs outside of Python's lock."""
        return available_cores()

    def read_range(self, start: int, count: int) -> tuple[Sequence[np.ndarray], Sequence[int]]:
        """Return the images and the labels of that many examples."""
        param, numbers = self._param, [self._order[n] for n in range(start, start + count)]
        size = param.new_height, param.new_width
        images = [read_image(self._paths[i], param.is_color, *size, self._max_pixels) for i in numbers]
        return images, [self._labels[i] for i in numbers]

    def error(self, n: int, error: DataError) -> DataError:
        """Return the error with the image's path."""
        return DataError(f"image '{self._paths[self._order[n]]}' {error}")

    def close(self) -> None:
        """Do nothing: no file is open between images."""


def look_at_image_data(site: Site) -> Look:
    """Look at the first image of an ImageData layer. The list is read, and all that is wrong with it reported.

    All images that are missing are, too, from listings of their folders.
    """
    param = site.layer.image_data_param
    check_list_param(param, "image_data_param", _KNOWN)
    rng = CounterRng(site.reading.seed, site.layer.name)
    return look_at_images(site, FileExamples(site, rng), param.batch_size, rng)


def open_image_data(site: Site, tops: Tops) -> Batches:
    """Open the images that an ImageData layer's list names, `path label` on each line.

    `shuffle` draws a new order for each round, by the seed; it is not Caffe's.
    """
    rng = CounterRng(site.reading.seed, site.layer.name)
    return LabelledBatches(site, FileExamples(site, rng), site.layer.image_data_param.batch_size, rng, tops)


register(
    LayerType(
        Signature("ImageData", bottoms=0, tops=2, param="image_data_param"),
        reads_batches(look_at_image_data, open_image_data, prefetch_depth),
    )
)
