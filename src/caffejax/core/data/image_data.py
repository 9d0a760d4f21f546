"""The ImageData layer, and the reading of listed files that other layers share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Container, Iterator, Sequence
from typing import Any

import numpy as np

from ...base.errors import DataError, check_all, raise_if_any
from ..layers.context import LayerDefinition, Shape
from ..layers.data_source import SourceSpec, TopSpecs
from ..layers.registry import define_layer
from ..layers.types import Signature
from .data_layer import DataLayer, refuse_unsupported
from .image_batches import ImageBatches, ImageDataset, Label
from .image_decoding import read_image, resize
from .image_list import find_files, get_search_folders, read_list
from .import_cv2 import cv2
from .prefetch import Batches
from .sampling import CounterRng, IndexSampler
from .transform import check_transform

LIST_FIELDS = ("source", "batch_size", "rand_skip", "shuffle", "new_height", "new_width", "is_color", "root_folder")


def check_list_param(param: Any, name: str, supported: Container[str]) -> None:
    """Check the settings of a layer that reads the files of a list.

    Raises:
        DataError: if they are invalid or not supported. The message lists all problems.
    """

    def list_problems() -> Iterator[str]:
        if not param.source:
            yield f"{name} has no source; name a text file that lists images and labels"
        if "\0" in param.source:
            yield f"{name}.source must not contain a NUL character: {param.source!r}"
        if param.batch_size < 1:
            yield f"{name}.batch_size must be 1 or more, not {param.batch_size}"
        for sizes in (("new_height", "new_width"), ("min_height", "min_width")):
            height, width = (bool(getattr(param, size, 0)) for size in sizes)
            if height != width:
                yield f"{name} has only one of {' and '.join(sizes)}; set both or none"

    check_all(lambda: raise_if_any(DataError, list_problems()), lambda: refuse_unsupported(param, name, supported))


class FileListDataset(ImageDataset[Label]):
    """The files of a list as examples. With `shuffle`, each epoch has a different order.

    Args:
        paths: the files, one for each line.
        param: the layer's parameters, with `shuffle` and `rand_skip`.
        rng: the source of the order and of the number of skipped files.

    Raises:
        DataError: if rand_skip skips all files.
    """

    item_name = "image"  # for messages

    def __init__(self, paths: Sequence[str], param: Any, rng: CounterRng) -> None:
        self._paths = paths
        self._sampler = IndexSampler(len(paths), param, rng)

    @abstractmethod
    def read_example(self, n: int, i: int) -> tuple[np.ndarray, Label]:
        """Return the image (C, H, W) and the label of example n, which is on line i of the list, counted from 0."""

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self._sampler)

    def read(self, start: int, count: int) -> tuple[Sequence[np.ndarray], Sequence[Label]]:
        """Read consecutive examples; see `ImageDataset.read`."""
        examples = [self.read_example(n, self._sampler[n]) for n in range(start, start + count)]
        return [image for image, _ in examples], [label for _, label in examples]

    def locate_error(self, n: int, error: DataError) -> DataError:
        """Return `error` with the path of example n in its message."""
        return DataError(f"{self.item_name} '{self._paths[self._sampler[n]]}' {error}")


_FORK_SIZE_FIELDS = ("short_side", "new_dim", "bicubic", "min_height", "min_width")
_SUPPORTED_FIELDS = {
    *LIST_FIELDS,
    *_FORK_SIZE_FIELDS,
    *("scale", "mean_file", "crop_size", "mirror"),  # in old files; Caffe ignores them here
    *("threads", "cache", "precache"),  # ignored settings of forks
}


class ImageFileDataset(FileListDataset[int]):
    """The images that an ImageData layer's list names, with their labels.

    Raises:
        DataError: if the list or an image that it names is missing or malformed.
    """

    def __init__(self, definition: LayerDefinition, rng: CounterRng) -> None:
        param = self._param = definition.layer.image_data_param
        self._max_pixels = definition.data_config.max_image_pixels
        file = definition.path(param.source)
        images = read_list(file)
        self._labels = images.labels
        super().__init__(
            find_files(file, images.names, param.root_folder, get_search_folders(definition, file)), param, rng
        )

    def read_example(self, n: int, i: int) -> tuple[np.ndarray, int]:
        """Read the image (C, H, W) and the label of line i of the list."""
        param = self._param
        image = read_image(self._paths[i], param.is_color, max_pixels=self._max_pixels)
        interpolation = cv2.INTER_CUBIC if param.bicubic else cv2.INTER_LINEAR
        size = _resized_size(param, *image.shape[1:])
        return resize(image, *size, self._max_pixels, interpolation), self._labels[i]


def _resized_size(p: Any, height: int, width: int) -> tuple[int, int]:
    """Return the (height, width) to which an image of the given size is resized, or zeros if it is not resized.

    The shorter side is resized to `short_side`, of NVIDIA's fork, or `new_dim`, of channel-pruning's fork. An image
    that is smaller than `min_height` or `min_width`, of Intel's fork, is enlarged until the side that falls short by
    more pixels has its minimum.
    """
    if side := p.short_side or p.new_dim:
        return (height * side // width, side) if height > width else (side, width * side // height)
    if p.new_height or (height >= p.min_height and width >= p.min_width):
        return p.new_height, p.new_width
    ratio = np.float32(height) / np.float32(width)
    if p.min_width - width > p.min_height - height:
        return int(np.float32(p.min_width) * ratio + 0.5), p.min_width
    return p.min_height, int(np.float32(p.min_height) * (np.float32(width) / np.float32(height)) + 0.5)


class ImageDataLayer(DataLayer):
    """Batches of the images that a list names, with `path label` on each line.

    With `shuffle`, each epoch has a new order, which the seed determines. It differs from Caffe's order.
    """

    def check_settings(self) -> None:
        """Check image_data_param and transform_param."""
        param = self.layer_param.image_data_param
        check_all(
            lambda: check_list_param(param, "image_data_param", _SUPPORTED_FIELDS),
            lambda: check_transform(self.definition),
        )

    @staticmethod
    def label_shapes(layer: Any, batch_size: int, height: int, width: int) -> Sequence[Shape]:
        """Return the shape of one number for each example."""
        return [(batch_size,)]

    def probe(self) -> SourceSpec:
        """Check the list, and read the first image. All missing images are reported at once."""
        return self._batches().probe(len(self.layer_param.top))

    def open(self, tops: TopSpecs) -> Batches:
        """Open the list."""
        return self._batches(tops)

    def _batches(self, tops: TopSpecs = ()) -> ImageBatches[int]:
        dataset = ImageFileDataset(self.definition, self.rng)
        return ImageBatches(self.definition, dataset, self.layer_param.image_data_param.batch_size, self.rng, tops)


define_layer(
    Signature("ImageData", bottoms=0, tops=2, param="image_data_param", fork_settings=_FORK_SIZE_FIELDS),
    ImageDataLayer.implementation(),
)
