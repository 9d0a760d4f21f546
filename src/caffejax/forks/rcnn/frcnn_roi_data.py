"""The FrcnnRoiData layer of caffe-faster-rcnn: an image, its size, and the boxes of its objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...base.errors import DataError, check_all, raise_if_any
from ...core.data.data_layer import DataLayer, float32_top, refuse_unsupported
from ...core.data.image_batches import Examples
from ...core.data.image_data import FileListDataset
from ...core.data.image_decoding import check_pixel_count, read_image
from ...core.data.image_list import find_files, get_search_folders
from ...core.data.import_cv2 import cv2
from ...core.data.prefetch import Batch, Batches
from ...core.data.sampling import CounterRng
from ...core.data.transform import check_transform
from ...core.layers.context import LayerDefinition, Shape
from ...core.layers.data_source import SourceSpec, TopSpecs
from ...core.layers.declaration import register
from ..detection.data.annotated_data import choose_num_rows
from ..general.augmented_batches import AugmentedBatches
from ..general.window_files import ReadIntegers, read_window_file
from .frcnn_config import FrcnnConfig

_PARAM = "window_data_param"
_NO_OBJECT = (-1, 0, 0, 0, 0)  # a row of padding


class _Order(NamedTuple):
    shuffle: bool = True
    rand_skip: int = 0


class RoiDataset(FileListDataset[np.ndarray]):
    """The images of a list with their objects, float32 (n, 5): x1, y1, x2, y2 in pixels, and class.

    The list has, for each image, "#", its number, its path, the number of objects, and for each of them class, x1, y1,
    x2, y2, and 1 if it is difficult and left out, otherwise 0.

    Args:
        definition: the layer's definition.
        num_classes: the number of classes, background included.
        rng: the source of the order, another one in each epoch.

    Raises:
        DataError: if the list, or an image that it names, is missing or malformed.
    """

    def __init__(self, definition: LayerDefinition, num_classes: int, rng: CounterRng) -> None:
        param, self._max_pixels = definition.layer.window_data_param, definition.config.max_image_pixels
        file = definition.path(param.source)

        def read_entry(name: str, read_integers: ReadIntegers) -> tuple[str, np.ndarray]:
            (count,) = read_integers(1)
            rows = np.array(read_integers(6 * count), np.float32).reshape(-1, 6)
            if not ((rows[:, 0] > 0) & (rows[:, 0] < num_classes)).all():
                raise ValueError(f"a class is not above 0, or not below n_classes {num_classes}")
            if (rows[:, 3:5] < rows[:, 1:3]).any():
                raise ValueError("a box ends before it begins (x2 < x1 or y2 < y1)")
            return name, rows[rows[:, 5] != 1][:, (1, 2, 3, 4, 0)]

        names, self.objects = zip(*read_window_file(file, read_entry), strict=True)
        paths = find_files(file, names, param.root_folder, get_search_folders(definition, file))
        super().__init__(paths, _Order(), rng)

    def read_example(self, n: int, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Read the image and the objects of image i of the list."""
        return read_image(self._paths[i], color=True, max_pixels=self._max_pixels), self.objects[i]

    def checksum(self) -> int:
        """Return 0: the list is compared as a whole."""
        return 0


class RoiBatches(AugmentedBatches[np.ndarray]):
    """Batches of one image, whose tops are the image, its size and scale, and its objects.

    Args:
        definition: the layer's definition.
        config: the settings.
        rng: the source of all random choices.
        tops: the shape and dtype of each top, as `probe` returned them.

    Raises:
        DataError: if a setting or the list is invalid.
    """

    def __init__(self, definition: LayerDefinition, config: FrcnnConfig, rng: CounterRng, tops: TopSpecs = ()) -> None:
        dataset = RoiDataset(definition, int(config.number("n_classes")), rng)
        super().__init__(definition, dataset, 1, rng, tops)
        self._max_pixels = definition.config.max_image_pixels
        self._scales, self._max_side = config.numbers("scales"), config.number("max_size")
        if min(*self._scales, self._max_side) < 1:
            raise DataError(
                f"scales and max_size of the config must be 1 or more, not {self._scales}, {self._max_side}"
            )
        self._mean = np.array(config.numbers("pixel_means", 3), np.float32)
        self._mirror = definition.training and config.number("use_flipped") != 0
        self._min_rows = choose_num_rows([len(objects) for objects in dataset.objects], 1)
        config.refuse(use_hist_equalize=0, use_haze_free=0, use_retinex=0, data_jitter=-1, im_size_align=1)

    def probe(self, n_tops: int) -> SourceSpec:
        """Read the first image to determine the shapes of the tops."""
        arrays = self._assemble(self._read_examples(0, 1), 0).arrays
        self.close()
        self.tops = tuple(float32_top(*array.shape) for array in arrays)
        return SourceSpec(self.tops, padded_tops=(2,))

    def _assemble(self, examples: Examples[np.ndarray], start: int) -> Batch:
        [(data, info, objects)] = self._change_examples(self._change, examples, start)
        num_rows = max(self._min_rows, choose_num_rows([len(objects)], 1))
        rows = np.tile(np.array(_NO_OBJECT, np.float32)[:, None, None], (num_rows, 1, 1, 1))
        rows[: len(objects), :, 0, 0] = objects
        return Batch((data[None], info.reshape(1, 3, 1, 1), rows), examples.warnings)

    def _change(
        self, image: np.ndarray, objects: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the image (3, h, w), its height, width and scale, and its objects in pixels of the result."""
        is_mirrored = self._mirror and rng.integers(2) == 1
        short_side = np.float32(self._scales[rng.integers(len(self._scales))])
        height, width = image.shape[1:]
        scale = np.float32(short_side / min(height, width))
        if scale * np.float32(max(height, width)) > self._max_side:
            scale = np.float32(self._max_side / max(height, width))
        check_pixel_count(round(height * float(scale)), round(width * float(scale)), self._max_pixels)
        low, high = (
            np.maximum(objects[:, :2], 0),
            np.minimum(objects[:, 2:4], np.array([width - 1, height - 1], np.float32)),
        )
        if is_mirrored:
            image = image[:, :, ::-1]
            low[:, 0], high[:, 0] = width - high[:, 0] - 1, width - low[:, 0] - 1
        pixels = image.transpose(1, 2, 0).astype(np.float32) - self._mean
        resized = cv2.resize(pixels, None, fx=float(scale), fy=float(scale))
        size = np.array(resized.shape[1::-1], np.float32)
        boxes = np.concatenate([np.maximum(low * scale, 0), np.where(high * scale >= size, size - 1, high * scale)], 1)
        info = np.array([*resized.shape[:2], scale], np.float32)
        return resized.transpose(2, 0, 1), info, np.concatenate([boxes, objects[:, 4:]], axis=1)


class FrcnnRoiDataLayer(DataLayer):
    """Batches of one image with the boxes of its objects, for Faster R-CNN.

    The tops are the image (1, 3, h, w), resized so that its shorter side is one of `scales` and its longer side at most
    `max_size`; im_info (1, 3, 1, 1), its height, width and scale; and the objects (G, 5, 1, 1), rows x1, y1, x2, y2 and
    class. Rows of padding are -1, 0, 0, 0, 0. `config` names the JSON file with these settings, `pixel_means`,
    `use_flipped` and `n_classes`. Difficult objects are left out.
    """

    supported_fields = ("source", "config", "root_folder", "cache_images")

    def check_settings(self) -> None:
        """Check window_data_param and transform_param."""
        param = self.layer_param.window_data_param
        check_all(
            lambda: raise_if_any(DataError, self._list_problems()),
            lambda: refuse_unsupported(param, _PARAM, self.supported_fields),
            lambda: check_transform(self.definition, supported_fields=()),
            lambda: self.definition.path(param.source),
        )

    def _list_problems(self) -> Iterator[str]:
        param = self.layer_param.window_data_param
        if not param.source:
            yield f"{_PARAM} has no source; name a list of images with boxes"
        if not param.config:
            yield f"{_PARAM} has no config; name the JSON file with the settings"

    @staticmethod
    def label_shapes(layer: Any, batch_size: int, height: int, width: int) -> Sequence[Shape]:
        """Return the shapes of the size and of a few boxes."""
        return [(1, 3, 1, 1), (8, 5, 1, 1)]

    def open(self, tops: TopSpecs) -> Batches:
        """Read the list. All missing images are reported at once."""
        config = FrcnnConfig(self.definition.path(self.layer_param.window_data_param.config))
        return RoiBatches(self.definition, config, self.rng, tops)


register(
    "FrcnnRoiData",
    FrcnnRoiDataLayer.implementation(),
    bottoms=0,
    tops=3,
    param=_PARAM,
    fork_settings=("config",),
    origin="caffe-faster-rcnn",
    restrictions="`cache_images` has no effect. The augmentation and the enhancement of images of later versions are "
    "refused, as are settings of transform_param, which the fork ignores.",
)
