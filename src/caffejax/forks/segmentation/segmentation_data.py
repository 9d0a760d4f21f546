"""Layers of images with label maps: ImageSegData, DenseImageData and ImageLabelmapData.

An image and its map are resized, padded, cropped and mirrored together.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from ...base.errors import DataError, check_all, raise_if_any
from ...base.human_readable import format_shape
from ...core.data.data_layer import DataLayer
from ...core.data.image_batches import Examples, ImageBatches
from ...core.data.image_data import LIST_FIELDS, FileListDataset, check_list_param
from ...core.data.image_decoding import BadImageError, read_image
from ...core.data.image_list import find_files, get_search_folders, read_list, read_names, read_pairs
from ...core.data.import_cv2 import cv2
from ...core.data.prefetch import Batch, Batches
from ...core.data.sampling import CounterRng
from ...core.data.transform import check_transform, crop_uint8, parse_crop, read_mean
from ...core.layers.context import LayerDefinition, Shape
from ...core.layers.data_source import TopSpecs
from ...core.layers.declaration import register
from ...core.schema.caffe_pb2 import ImageDataParameter


class LabelMap(NamedTuple):
    """The label map of an image.

    Attributes:
        labels: uint8 (1, H, W).
        size: height and width of the image in its file.
    """

    labels: np.ndarray
    size: tuple[int, int]


@dataclass(frozen=True)
class LabelMapSource:
    """A description of how a layer type gets the label maps of its images.

    Attributes:
        label_type: "pixels" if there is a map file for each image, "image" if the list has one label for each image, or
            "none".
        fill_label: the label of all pixels if `label_type` is "none", 0 to 255.
        interpolation: OpenCV's interpolation flag for resizing maps.
        convert: a function that is applied to maps after resizing, or None.
        divisor: the height and width of a map are those of its image divided by this number, and rounded down. If the
            number is above 1, nothing is cropped.
    """

    label_type: Literal["pixels", "image", "none"] = "pixels"
    fill_label: int = 0
    interpolation: int = cv2.INTER_NEAREST
    convert: Callable[[np.ndarray], np.ndarray] | None = None
    divisor: int = 1

    def map_size(self, image_shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the height and width of the map of an image (C, H, W)."""
        return image_shape[1] // self.divisor, image_shape[2] // self.divisor


class LabelMapDataset(FileListDataset[LabelMap]):
    """The images of a list with their label maps.

    Args:
        definition: the layer's definition.
        param: its parameters: source, root_folder, shuffle, rand_skip, new_height, new_width and is_color.
        maps: how the label maps are obtained.
        rng: the source of the random order.

    Raises:
        DataError: if the list, or a file that it names, is missing or malformed.
    """

    def __init__(self, definition: LayerDefinition, param: Any, maps: LabelMapSource, rng: CounterRng) -> None:
        self._param, self._maps = param, maps
        self._max_pixels = definition.config.max_image_pixels
        file = definition.path(param.source)
        folders = get_search_folders(definition, file)
        self._label_items: Sequence[str | int]
        if maps.label_type == "pixels":
            names, label_names = read_pairs(file)
            paths = find_files(file, names, param.root_folder, folders)
            self._label_items = find_files(file, label_names, param.root_folder, folders, "label image")
        elif maps.label_type == "image":
            names, labels = read_list(file)
            paths, self._label_items = find_files(file, names, param.root_folder, folders), labels
            if not all(0 <= label < 256 for label in labels):
                raise DataError(f"{file} has labels outside 0 to 255, the range of a pixel")
        else:
            paths = find_files(file, read_names(file), param.root_folder, folders)
            self._label_items = [maps.fill_label] * len(paths)
        super().__init__(paths, param, rng)

    def read_example(self, n: int, i: int) -> tuple[np.ndarray, LabelMap]:
        """Read the image and the label map of line i of the list."""
        image = read_image(self._paths[i], self._param.is_color, max_pixels=self._max_pixels)
        size, label = image.shape[1:], self._label_items[i]
        if isinstance(label, str):
            labels = read_image(label, color=False, max_pixels=self._max_pixels)
        else:
            labels = np.full((1, *size), label, np.uint8)
        if labels.shape[1:] != (size if self._param.new_height else self._maps.map_size(image.shape)):
            division_note = f", to be divided by {self._maps.divisor}" if self._maps.divisor > 1 else ""
            raise BadImageError(
                f"image '{self._paths[i]}' is {format_shape(size)} (HxW){division_note}, but its label image '{label}' "
                f"is {format_shape(labels.shape[1:])}"
            )
        if self._param.new_height:
            image = _resize(image, (self._param.new_height, self._param.new_width), cv2.INTER_LINEAR)
            labels = _resize(labels, self._maps.map_size(image.shape), self._maps.interpolation)
        convert = self._maps.convert
        return image, LabelMap(labels if convert is None else convert(labels), (size[0], size[1]))


_EXTRA_TRANSFORM_FIELDS = ("scale_factors",)


def check_label_map_settings(definition: LayerDefinition, maps: LabelMapSource, ignore_label: int) -> None:
    """Check the settings of `LabelMapBatches` that need no file.

    Raises:
        DataError: if they are invalid. The message lists all problems.
    """
    transform_param = definition.layer.transform_param

    def list_problems() -> Iterator[str]:
        has_crop = parse_crop(transform_param, is_random=False).height > 0
        if has_crop and transform_param.mean_file:
            yield (
                "transform_param has a mean_file and a crop; set mean_value instead, because the images differ in size"
            )
        if not 0 <= ignore_label < 256:
            yield f"ignore_label must be 0 to 255, the range of a pixel, not {ignore_label}"
        if not all(0 < factor < math.inf for factor in transform_param.scale_factors):
            factors = ", ".join(f"{factor:g}" for factor in transform_param.scale_factors)
            yield f"transform_param.scale_factors must be positive and finite, but are {factors}"
        if maps.divisor > 1 and (has_crop or transform_param.scale_factors):
            yield "label_divide_factor cannot be combined with a crop or scale_factors; use new_height and new_width"

    check_transform(definition, _EXTRA_TRANSFORM_FIELDS)
    raise_if_any(DataError, list_problems())


class LabelMapBatches(ImageBatches[LabelMap]):
    """Batches of images with label maps.

    The tops are the images, (N, C, h, w), the labels, float32 (N, 1, h, w), and the sizes, float32 (N, 1, 1, 2). A size
    is the height and width of the image in its file, in pixels, but not more than the crop's.

    Args:
        definition: the layer's definition.
        param: the parameters of `LabelMapDataset`, with `batch_size`.
        maps: how the label maps are obtained.
        ignore_label: the label of pixels that pad an image to the size of the crop, 0 to 255.
        tops: the shape and dtype of each top, as `probe` returned them.

    Raises:
        DataError: if a setting, the list or a file that it names is invalid.
    """

    def __init__(
        self, definition: LayerDefinition, param: Any, maps: LabelMapSource, ignore_label: int, tops: TopSpecs = ()
    ) -> None:
        rng = CounterRng(definition.config.seed, definition.layer.name)
        self._crop = parse_crop(definition.layer.transform_param, is_random=definition.training)
        self._mean = read_mean(definition)
        self._ignore_label = ignore_label
        self._scale_factors = list(definition.layer.transform_param.scale_factors)
        self._maps = maps
        dataset = LabelMapDataset(definition, param, maps, rng)
        super().__init__(definition, dataset, param.batch_size, rng, tops)

    def _assemble(self, examples: Examples[LabelMap], start: int) -> Batch:
        pairs = [
            self._pad(*self._rescale(image, label.labels, start + i))
            for i, (image, label) in enumerate(zip(examples.images, examples.labels, strict=True))
        ]
        images, maps = [image for image, _ in pairs], [labels for _, labels in pairs]
        shape = self._check_equal_shapes(examples._replace(images=images))
        crops = self._transform.sample_crops(images, start)
        labels = crop_uint8(maps, crops, (1, *self._maps.map_size(shape))).astype(np.float32)
        sizes = np.array([label.size for label in examples.labels], np.float32)
        visible_sizes = np.minimum(sizes, np.array(shape[1:], np.float32)).reshape(-1, 1, 1, 2)
        arrays = self._transform.apply(images, crops), labels, visible_sizes
        return Batch(arrays[: len(self.tops)], examples.warnings)

    def _rescale(self, image: np.ndarray, labels: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Resize the image and the label map of example n by one of the scale_factors, selected at random."""
        if not self._scale_factors:
            return image, labels
        factor = np.float32(self._scale_factors[self._rng.generator(n).integers(len(self._scale_factors))])
        height, width = (max(1, int(np.float32(side) * factor)) for side in image.shape[1:])
        return _resize(image, (height, width), cv2.INTER_LINEAR), _resize(labels, (height, width), cv2.INTER_NEAREST)

    def _pad(self, image: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pad an image with the mean, and its map with `ignore_label`, at the bottom and right to the crop's size."""
        if not self._crop.height:
            return image, labels
        # uint8 cannot represent the mean, and all batches are float32, so that the net is compiled once
        float_image = image.astype(np.float32)
        padding = max(0, self._crop.height - image.shape[1]), max(0, self._crop.width - image.shape[2])
        if not any(padding):
            return float_image, labels
        channels, height, width = float_image.shape
        canvas = np.empty((channels, height + padding[0], width + padding[1]), np.float32)
        canvas[...] = self._mean.broadcast_to((channels, 1, 1))
        canvas[:, :height, :width] = float_image
        return canvas, np.pad(labels, ((0, 0), (0, padding[0]), (0, padding[1])), constant_values=self._ignore_label)


def _resize(image: np.ndarray, size: tuple[int, int], interpolation: int) -> np.ndarray:
    """Resize an image (C, H, W) to a height and width."""
    pixels = cv2.resize(np.ascontiguousarray(image.transpose(1, 2, 0)), size[::-1], interpolation=interpolation)
    return pixels.reshape(*size, len(image)).transpose(2, 0, 1)


class LabelMapLayer(DataLayer):
    """The base class of layers whose tops are images with label maps."""

    param_name = "image_data_param"
    supported_fields: tuple[str, ...] = LIST_FIELDS  # the supported fields of the message `param_name`

    ignore_label = 0

    def check_settings(self) -> None:
        """Check the message `param_name` and transform_param."""
        check_all(
            lambda: check_list_param(self.param, self.param_name, self.supported_fields),
            lambda: check_label_map_settings(self.make_definition(), self.make_maps(), self.ignore_label),
        )

    @staticmethod
    def label_shapes(layer: Any, batch_size: int, height: int, width: int) -> Sequence[Shape]:
        """Return the shapes of the label maps and of the images' sizes."""
        divisor = layer.dense_image_data_param.label_divide_factor or 1
        return [(batch_size, 1, height // divisor, width // divisor), (batch_size, 1, 1, 2)]

    def open(self, tops: TopSpecs) -> Batches:
        """Read the list, and check that all its files exist."""
        return LabelMapBatches(self.make_definition(), self.param, self.make_maps(), self.ignore_label, tops)

    @property
    def param(self) -> Any:
        """The message `param_name`."""
        return getattr(self.layer_param, self.param_name)

    def make_definition(self) -> LayerDefinition:
        """Return the layer's definition with a transform_param that has all settings of the transform."""
        return self.definition

    @abstractmethod
    def make_maps(self) -> LabelMapSource:
        """Return how the label maps are obtained."""


class ImageSegDataLayer(LabelMapLayer):
    """Batches of the images and label images that a list names, cropped and mirrored together.

    Images smaller than the crop are padded with the mean, and their labels with `ignore_label`. The third top is the
    size of each image, limited to the crop.
    """

    fork_settings = ("label_type", "ignore_label")
    supported_fields = (*LIST_FIELDS, *fork_settings)

    @property
    def ignore_label(self) -> int:  # type: ignore[override]
        """The label of padding, which is not counted."""
        return int(self.param.ignore_label)

    def make_maps(self) -> LabelMapSource:
        """Return how the label maps are obtained, by label_type."""
        sources_by_type = {
            ImageDataParameter.PIXEL: LabelMapSource("pixels"),
            ImageDataParameter.IMAGE: LabelMapSource("image"),
        }
        return sources_by_type.get(self.param.label_type, LabelMapSource("none", fill_label=self.ignore_label))


class ImageLabelmapDataLayer(LabelMapLayer):
    """Batches of the images and maps that a list names, cropped and mirrored together.

    The second top is 1 where the map has a gray level of 128 or more, and 0 elsewhere.
    """

    def make_maps(self) -> LabelMapSource:
        """Return that there is a map file for each image, which is binarized."""
        return LabelMapSource("pixels", interpolation=cv2.INTER_LINEAR, convert=_binarize)


def _binarize(gray: np.ndarray) -> np.ndarray:
    return (gray >= 128).astype(np.uint8)  # the fork divides bytes by 255 with OpenCV, which rounds


class DenseImageDataLayer(LabelMapLayer):
    """Batches of the images and label images that a list names, with `image labels` on each line.

    Both are cropped and mirrored together; SegNet's layer refuses to do so. With ENet's `label_divide_factor`, labels
    are resized to that fraction of the image's size.
    """

    param_name = "dense_image_data_param"
    # the fork ignores mean_file here
    supported_fields = (*LIST_FIELDS, "mean_file", "mirror", "crop_width", "crop_height", "label_divide_factor")
    ignore_label = 255

    def make_definition(self) -> LayerDefinition:
        """Return the definition with dense_image_data_param's crop and mirroring in transform_param."""
        param = self.param
        layer_param = type(self.layer_param)()
        layer_param.CopyFrom(self.layer_param)
        transform_param = layer_param.transform_param
        transform_param.mirror |= param.mirror
        if param.crop_height or param.crop_width:
            if transform_param.crop_size or transform_param.crop_h or transform_param.crop_w:
                raise DataError("dense_image_data_param and transform_param both have a crop; keep one of them")
            transform_param.crop_h, transform_param.crop_w = param.crop_height, param.crop_width
        return replace(self.definition, layer=layer_param)

    def make_maps(self) -> LabelMapSource:
        """Return that there is a map file for each image, whose size is divided by label_divide_factor."""
        param, divisor = self.param, self.param.label_divide_factor
        if not 0 < divisor <= (min(param.new_height, param.new_width) or divisor):
            raise DataError(
                f"dense_image_data_param.label_divide_factor is {divisor}, but must be at least 1 and at most the "
                "smaller of new_height and new_width"
            )
        return LabelMapSource("pixels", divisor=divisor)


register(
    "ImageSegData",
    ImageSegDataLayer.implementation(),
    bottoms=0,
    tops=(1, 3),
    param="image_data_param",
    fork_settings=ImageSegDataLayer.fork_settings,
    origin="DeepLab",
    restrictions="Label images are resized to the nearest pixel. With a crop, the mean is mean_value.",
)
register(
    "ImageLabelmapData",
    ImageLabelmapDataLayer.implementation(),
    bottoms=0,
    tops=2,
    param="image_data_param",
    origin="HED",
    restrictions="With a crop, the mean is mean_value.",
)
register(
    "DenseImageData",
    DenseImageDataLayer.implementation(),
    bottoms=0,
    tops=2,
    param="dense_image_data_param",
    origin="SegNet",
    restrictions="With a crop, the mean is mean_value. Smaller images than the crop are padded, with label 255. "
    "ENet's label_divide_factor cannot be combined with a crop.",
)
