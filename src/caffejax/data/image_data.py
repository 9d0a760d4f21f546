"""The ImageData layer: batches of images that a list names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import DataError
from ..layers.context import Site
from ..layers.registry import register
from ..layers.source import Look, Tops
from ..layers.types import LayerType, Signature
from .fields import refuse_unsupported
from .images import read_image
from .labelled import LabelledBatches, look_at_images
from .lists import find_images, read_list
from .pipeline import Batches, available_cores
from .reads import prefetch_depth, reads_batches
from .rng import CounterRng

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
        file = site.path(param.source)
        images = read_list(file)
        folders = [folder for folder in (site.folder, file.parent) if folder is not None]
        self._paths = find_images(images, param.root_folder, folders)
        self._labels = images.labels
        self._rng = rng
        self._skip = rng.below(param.rand_skip) if param.rand_skip else 0
        if self._skip >= len(self._paths):
            raise DataError(f"rand_skip skips {self._skip} of {len(self._paths)} images; lower it")
        self._orders: dict[int, np.ndarray] = {}

    def count_threads(self) -> int:
        """Return how many threads can read faster than one: decoding runs outside of Python's lock."""
        return available_cores()

    def read_range(self, start: int, count: int) -> tuple[Sequence[np.ndarray], Sequence[int]]:
        """Return the images and the labels of that many examples."""
        param, numbers = self._param, [self._image(n) for n in range(start, start + count)]
        size = param.new_height, param.new_width
        images = [read_image(self._paths[i], param.is_color, *size) for i in numbers]
        return images, [self._labels[i] for i in numbers]

    def error(self, n: int, error: DataError) -> DataError:
        """Return the error with the image's path."""
        return DataError(f"image '{self._paths[self._image(n)]}' {error}")

    def close(self) -> None:
        """Do nothing: no file is open between images."""

    def _image(self, n: int) -> int:
        epoch, i = divmod(self._skip + n, len(self._paths))
        return int(self._order(epoch)[i]) if self._param.shuffle else i

    def _order(self, epoch: int) -> np.ndarray:
        orders = self._orders
        if epoch not in orders:
            # the one before may still be read by another thread
            self._orders = orders = {e: order for e, order in orders.items() if abs(e - epoch) == 1}
            orders[epoch] = self._rng.permutation(len(self._paths), epoch)
        return orders[epoch]


def look_at_image_data(site: Site) -> Look:
    """Look at the first image of an ImageData layer. The list is read, and all that is wrong with it reported.

    All images that are missing are, too, from listings of their folders.
    """
    param = site.layer.image_data_param
    if not param.source:
        raise DataError("image_data_param has no source; name a text file that lists images and labels")
    if param.batch_size < 1:
        raise DataError("image_data_param.batch_size must be 1 or more")
    if bool(param.new_height) != bool(param.new_width):
        raise DataError("image_data_param has only one of new_height and new_width; give both or none")
    refuse_unsupported(param, "image_data_param", _KNOWN)
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
