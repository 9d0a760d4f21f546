"""The ImageData layer, and the reading of listed files that other layers share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...base.errors import DataError, check_all, raise_if_any
from ..layers.context import LayerDefinition
from ..layers.data_source import TopSpecs
from ..layers.declaration import register
from .data_layer import DataLayer, list_source_problems, refuse_unsupported, scalar_label_shapes
from .image_batches import ImageBatches, ImageDataset, Label
from .image_decoding import read_image, resize
from .image_list import find_files, get_search_folders, read_list
from .prefetch import Batches
from .sampling import CounterRng, IndexSampler
from .transform import check_transform

SIZE_FIELDS = (("new_height", "new_width"),)
LIST_FIELDS = ("source", "batch_size", "rand_skip", "shuffle", "new_height", "new_width", "is_color", "root_folder")


def check_list_param(
    param: Any, name: str, supported: Container[str], size_fields: Iterable[tuple[str, str]] = SIZE_FIELDS
) -> None:
    """Check the settings of a layer that reads the files of a list.

    Args:
        param: the message with the settings.
        name: the name of the message.
        supported: the supported fields.
        size_fields: pairs of fields for a height and a width; both or none must be set.

    Raises:
        DataError: if they are invalid or not supported. The message lists all problems.
    """

    def list_problems() -> Iterator[str]:
        yield from list_source_problems(param, name, "a text file that lists images and labels")
        if "\0" in param.source:
            yield f"{name}.source must not contain a NUL character: {param.source!r}"
        for sizes in size_fields:
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
        self._sampler = IndexSampler(len(paths), rng, shuffle=param.shuffle, rand_skip=param.rand_skip)

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


class ImageFileDataset(FileListDataset[int]):
    """The images that an ImageData layer's list names, with their labels.

    Raises:
        DataError: if the list or an image that it names is missing or malformed.
    """

    def __init__(self, definition: LayerDefinition, rng: CounterRng) -> None:
        param = self.param = definition.layer.image_data_param
        self.max_pixels = definition.config.max_image_pixels
        file = definition.path(param.source)
        names, self._labels = read_list(file)
        paths = find_files(file, names, param.root_folder, get_search_folders(definition, file))
        super().__init__(paths, param, rng)

    def read_example(self, n: int, i: int) -> tuple[np.ndarray, int]:
        """Read the image (C, H, W) and the label of line i of the list."""
        image = read_image(self._paths[i], self.param.is_color, max_pixels=self.max_pixels)
        return self.resize(image), self._labels[i]

    def resize(self, image: np.ndarray) -> np.ndarray:
        """Return an image (C, H, W) in the size that the layer's parameters set."""
        return resize(image, self.param.new_height, self.param.new_width, self.max_pixels)


class ImageDataLayer(DataLayer):
    """Batches of the images that a list names, with `path label` on each line.

    With `shuffle`, each epoch has a new order, which the seed determines. It differs from Caffe's order.
    """

    dataset_class = ImageFileDataset
    label_shapes = staticmethod(scalar_label_shapes)
    batches_class: type[ImageBatches[int]] = ImageBatches
    transform_fields: tuple[str, ...] = ()
    size_fields: tuple[tuple[str, str], ...] = SIZE_FIELDS
    supported_fields: tuple[str, ...] = (
        *LIST_FIELDS,
        *("scale", "mean_file", "crop_size", "mirror"),  # in old files; Caffe ignores them here
    )

    def check_settings(self) -> None:
        """Check image_data_param and transform_param."""
        param = self.layer_param.image_data_param
        check_all(
            lambda: check_list_param(param, "image_data_param", self.supported_fields, self.size_fields),
            lambda: check_transform(self.definition, self.transform_fields),
        )

    def open(self, tops: TopSpecs) -> Batches:
        """Read the list. All missing images are reported at once."""
        dataset = self.dataset_class(self.definition, self.rng)
        batch_size = self.layer_param.image_data_param.batch_size
        return self.batches_class(self.definition, dataset, batch_size, self.rng, tops)


IMAGE_DATA = register("ImageData", ImageDataLayer.implementation(), bottoms=0, tops=2, param="image_data_param")
