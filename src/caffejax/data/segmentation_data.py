"""The layers of images with maps of labels: ImageSegData, DenseImageData and ImageLabelmapData."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from ..errors import DataError, located
from ..layers.context import Site
from ..layers.registry import register
from ..layers.source import Look, Tops
from ..layers.types import LayerDocs, LayerType, Signature
from ..schema.caffe_pb2 import ImageDataParameter
from .common import CounterRng, Order, check_list_param, dims, float32_top
from .data_layer import prefetch_depth, reads_batches
from .image_batches import ExampleRange, GoodExamples, batch_shape
from .image_decoding import BadImageError, read_image
from .image_list import find_files, find_images, read_list, read_names, read_pairs
from .opencv import cv2
from .prefetch import Batch, Batches, available_cores
from .transform import Transform, crop_of, cut_each, read_mean


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


_FOLLOWED = ("scale_factors",)
_BYTES = np.dtype(np.uint8)


class MapBatches:
    """Batches of images with maps of labels.

    Tops are the images, (N, C, h, w), the labels, float32 (N, 1, h, w), and how much of each image's height and width
    lies in them, float32 (N, 1, 1, 2).

    Args:
        site: the layer.
        param: its parameters, as `MapExamples` takes them, with `batch_size`.
        reading: how the list is read.
        ignore_label: the label of what is no image: what is padded so that the crop fits.
        tops: what the look has shown; none while it looks.

    Raises:
        DataError: if settings, the list or a file that it names are wrong.
    """

    def __init__(self, site: Site, param: Any, reading: Reading, ignore_label: int, tops: Tops = ()) -> None:
        rng = CounterRng(site.reading.seed, site.layer.name)
        transform = site.layer.transform_param
        self.tops = tops
        self.batch_size: int = param.batch_size
        self._layer = {"layer": site.layer.name, "layer_type": site.layer.type}  # for errors
        self._rng = rng
        self._transform = Transform(site, rng, also=_FOLLOWED)
        self._crop = crop_of(transform, random=site.training)
        self._mean = read_mean(site)
        if self._crop.height and self._mean.file is not None:
            raise DataError("transform_param has a mean_file and a crop: images of all sizes need mean_value")
        if not 0 <= ignore_label < 256:
            raise DataError(f"ignore_label must be 0 to 255, what a pixel can be, not {ignore_label}")
        if any(factor <= 0 for factor in transform.scale_factors):
            raise DataError("transform_param.scale_factors must be positive")
        self._ignore = ignore_label
        self._factors = list(transform.scale_factors)
        self._examples = MapExamples(site, param, reading, rng)
        self._good = GoodExamples(self._examples, self.batch_size, site.reading.skip_bad)

    @property
    def threads(self) -> int:
        """How many threads can read faster than one."""
        return available_cores()

    def look(self, n_tops: int) -> Look:
        """Read the first image for the tops' shapes."""
        self.tops = (float32_top(1),) * n_tops
        with closing(self._examples):
            arrays = self._read(0, 1).arrays
        tops = tuple(float32_top(self.batch_size, *array.shape[1:]) for array in arrays)
        given = jax.ShapeDtypeStruct(tops[0].shape, arrays[0].dtype), *tops[1:]
        return Look(tops, self._transform.finish, given)

    @property
    def examples(self) -> int:
        """How many examples there are before they come again."""
        return len(self._examples)

    def read(self, start: int) -> Batch:
        """Read the batch from example `start` on.

        Raises:
            DataError: naming the example that cannot be read or has another shape than the batch's first.
        """
        with located(**self._layer):
            return self._read(start, self.batch_size)

    def close(self) -> None:
        """Do nothing: no file is open between images."""

    def _read(self, start: int, count: int) -> Batch:
        given = self._good.read_range(start, count)
        pairs = [
            self._padded(*self._rescaled(image, label.labels, start + i))
            for i, (image, label) in enumerate(zip(given.images, given.labels, strict=True))
        ]
        images, maps = [image for image, _ in pairs], [labels for _, labels in pairs]
        shape = batch_shape(given._replace(images=images), self._examples, self._transform)
        cuts = self._transform.draw(images, start)
        labels = cut_each(maps, cuts, (1, *shape[1:])).astype(np.float32)
        arrays = self._transform.cut(images, cuts), labels, _extents(given, shape)
        return Batch(arrays[: len(self.tops)], given.warnings)

    def _rescaled(self, image: np.ndarray, labels: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Resize both by one of the factors."""
        if not self._factors:
            return image, labels
        factor = np.float32(self._factors[self._rng.generator(n).integers(len(self._factors))])
        height, width = (max(1, int(np.float32(side) * factor)) for side in image.shape[1:])
        size = height, width
        return scaled(image, size, cv2.INTER_LINEAR), scaled(labels, size, cv2.INTER_NEAREST)

    def _padded(self, image: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pad both below and to the right, so that the crop fits: by the mean, and by the label that is ignored."""
        if not self._crop.height:
            return image, labels
        # floats for every batch, so that the net is compiled once: a byte could not hold the mean
        floats = image.astype(np.float32)
        low = max(0, self._crop.height - image.shape[1]), max(0, self._crop.width - image.shape[2])
        if not any(low):
            return floats, labels
        channels, height, width = floats.shape
        padded = np.empty((channels, height + low[0], width + low[1]), np.float32)
        padded[...] = self._mean.broadcast_to((channels, 1, 1))
        padded[:, :height, :width] = floats
        return padded, np.pad(labels, ((0, 0), (0, low[0]), (0, low[1])), constant_values=self._ignore)


def _extents(given: ExampleRange[LabelMap], shape: tuple[int, ...]) -> np.ndarray:
    """Return how much of each image lies in the batch."""
    sizes = np.array([label.size for label in given.labels], np.float32)
    return np.minimum(sizes, np.array(shape[1:], np.float32)).reshape(-1, 1, 1, 2)


_OF_FORKS = ("label_type", "ignore_label")
_KNOWN_SEG = {
    *("source", "batch_size", "rand_skip", "shuffle", "new_height", "new_width", "is_color", "root_folder"),
    *_OF_FORKS,
}


def look_at_image_seg_data(site: Site) -> Look:
    """Look at the first image of an ImageSegData layer, and for all files of its list."""
    check_list_param(site.layer.image_data_param, "image_data_param", _KNOWN_SEG)
    return _seg_batches(site).look(len(site.layer.top))


def open_image_seg_data(site: Site, tops: Tops) -> Batches:
    """Open the images and label images that an ImageSegData layer's list names, cropped and mirrored alike.

    What is smaller than the crop is padded with the mean and `ignore_label`. The third top holds each image's size.
    """
    return _seg_batches(site, tops)


def _seg_batches(site: Site, tops: Tops = ()) -> MapBatches:
    param = site.layer.image_data_param
    kinds = {ImageDataParameter.PIXEL: Reading("pixels"), ImageDataParameter.IMAGE: Reading("image")}
    reading = kinds.get(param.label_type, Reading("none", fill=param.ignore_label))
    return MapBatches(site, param, reading, param.ignore_label, tops)


register(
    LayerType(
        Signature("ImageSegData", bottoms=0, tops=(1, 3), param="image_data_param", fork_settings=_OF_FORKS),
        reads_batches(look_at_image_seg_data, open_image_seg_data, prefetch_depth),
        docs=LayerDocs(
            origin="DeepLab",
            restrictions="Label images are resized to the nearest pixel. With a crop, the mean is mean_value.",
        ),
    )
)


_KNOWN_LABELMAP = {"source", "batch_size", "rand_skip", "shuffle", "new_height", "new_width", "is_color", "root_folder"}


def look_at_image_labelmap_data(site: Site) -> Look:
    """Look at the first image of an ImageLabelmapData layer, and for all files of its list."""
    check_list_param(site.layer.image_data_param, "image_data_param", _KNOWN_LABELMAP)
    return _labelmap_batches(site).look(len(site.layer.top))


def open_image_labelmap_data(site: Site, tops: Tops) -> Batches:
    """Open the images and maps that an ImageLabelmapData layer's list names, cropped and mirrored alike.

    The second top is 1 where the map has a grey level of 128 or more, else 0.
    """
    return _labelmap_batches(site, tops)


def _labelmap_batches(site: Site, tops: Tops = ()) -> MapBatches:
    reading = Reading("pixels", shrink=cv2.INTER_LINEAR, change=_edges)
    return MapBatches(site, site.layer.image_data_param, reading, 0, tops)


def _edges(grey: np.ndarray) -> np.ndarray:
    return (grey >= 128).astype(np.uint8)  # as OpenCV rounds bytes divided by 255


register(
    LayerType(
        Signature("ImageLabelmapData", bottoms=0, tops=2, param="image_data_param"),
        reads_batches(look_at_image_labelmap_data, open_image_labelmap_data, prefetch_depth),
        docs=LayerDocs(origin="HED", restrictions="With a crop, the mean is mean_value."),
    )
)


# mean_file is what old files say and the fork ignores here
_KNOWN_DENSE = {
    "source",
    "batch_size",
    "rand_skip",
    "shuffle",
    "new_height",
    "new_width",
    "is_color",
    "root_folder",
} | {
    *("mean_file", "mirror", "crop_width", "crop_height"),
}


def look_at_dense_image_data(site: Site) -> Look:
    """Look at the first image of a DenseImageData layer, and for all files of its list."""
    check_list_param(site.layer.dense_image_data_param, "dense_image_data_param", _KNOWN_DENSE)
    return _dense_batches(site).look(len(site.layer.top))


def open_dense_image_data(site: Site, tops: Tops) -> Batches:
    """Open the images and label images that a DenseImageData layer's list names, `image labels` on each line.

    Both are cropped and mirrored alike, where the fork's own layer refuses to.
    """
    return _dense_batches(site, tops)


def _dense_batches(site: Site, tops: Tops = ()) -> MapBatches:
    param = site.layer.dense_image_data_param
    layer = type(site.layer)()
    layer.CopyFrom(site.layer)
    transform = layer.transform_param
    transform.mirror |= param.mirror
    if param.crop_height or param.crop_width:
        if transform.crop_size or transform.crop_h or transform.crop_w:
            raise DataError("dense_image_data_param and transform_param both have a crop; keep one of them")
        transform.crop_h, transform.crop_w = param.crop_height, param.crop_width
    return MapBatches(replace(site, layer=layer), param, Reading("pixels"), 255, tops)


register(
    LayerType(
        Signature("DenseImageData", bottoms=0, tops=2, param="dense_image_data_param"),
        reads_batches(look_at_dense_image_data, open_dense_image_data, prefetch_depth),
        docs=LayerDocs(
            origin="SegNet",
            restrictions="With a crop, the mean is mean_value; what is smaller than the crop gets label 255 around it.",
        ),
    )
)
