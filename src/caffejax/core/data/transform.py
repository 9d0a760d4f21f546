"""The transform of images to a batch: cropping, (pixel - mean) * scale, and mirroring.

If the mean does not depend on the crop or the mirroring, the batch is copied to the device as bytes, a quarter of the
size of floats, and `Normalize` subtracts and scales in the compiled net.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ...base.errors import DataError, Problem, WeightsError, check_all
from ...base.human_readable import format_shape
from ..layers.context import LayerDefinition
from ..schema.blob_proto import read_blob_proto
from .data_layer import refuse_unsupported
from .import_cv2 import cv2
from .sampling import CounterRng

_SUPPORTED_FIELDS = {"scale", "mirror", "crop_size", "mean_file", "mean_value", "force_color", "force_gray"} | {
    *("crop_h", "crop_w", "crop_height", "crop_width"),
}


def check_transform(
    definition: LayerDefinition, extra_fields: Iterable[str] = (), supported_fields: Container[str] | None = None
) -> None:
    """Check the settings of a layer's transform_param, and its mean_file if the file exists.

    Args:
        definition: the layer's definition.
        extra_fields: names of further fields, which the layer applies itself.
        supported_fields: the supported fields of a layer that does not use `Transform`, or None.

    Raises:
        DataError: if settings contradict each other or are not supported. The message lists all problems.
    """
    param = definition.layer.transform_param

    def check_mean_file() -> None:
        if param.mean_file and not param.mean_value and os.path.exists(definition.path(param.mean_file)):
            read_mean(definition)

    supported = _SUPPORTED_FIELDS.union(extra_fields) if supported_fields is None else supported_fields
    check_all(
        lambda: refuse_unsupported(param, "transform_param", supported),
        lambda: _refuse_both(param, "force_color", "force_gray"),
        lambda: parse_crop(param, is_random=False),
        lambda: _refuse_both(param, "mean_file", "mean_value"),
        check_mean_file,
    )


def _refuse_both(param: Any, a: str, b: str) -> None:
    if getattr(param, a) and getattr(param, b):
        raise DataError(f"transform_param has both {a} and {b}; keep one of them")


class Crops(NamedTuple):
    """The crops of a batch of images.

    Attributes:
        origins: row and column of the upper left corners, uint64 (N, 2).
        flips: whether crops are mirrored, bool (N,).
        mean_flips: whether the mean is mirrored together with the image before it is subtracted, bool (N,), or None if
            it is wherever the crop is mirrored, as in Caffe. It concerns the mean of a file only.
    """

    origins: np.ndarray
    flips: np.ndarray
    mean_flips: np.ndarray | None = None


class Transform:
    """The transform of a layer's transform_param, which `check_transform` has checked.

    Args:
        definition: the layer's definition.
        rng: the source of random crops and mirroring.

    Raises:
        DataError: if the mean cannot be read.
    """

    def __init__(self, definition: LayerDefinition, rng: CounterRng) -> None:
        param = definition.layer.transform_param
        self._crop = parse_crop(param, is_random=definition.training)
        self._mean = read_mean(definition)
        self._scale = np.float32(param.scale)
        self.device_transform = Normalize(self._mean.values, self._scale)  # the part that runs on the device
        self._mirror: bool = param.mirror
        # whether the mean is the same for every crop, so that `Normalize` can subtract it on the device
        self._normalizes_on_device = self._mean.file is None or not (self._crop.height or param.mirror)
        self._rng = rng

    def shape(self, image_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape (C, h, w) of a transformed image (C, H, W).

        Raises:
            DataError: if the image does not fit the crop or the mean.
        """
        self._mean.broadcast_to(image_shape)
        return self._crop.shape(image_shape)

    def __call__(self, images: Sequence[np.ndarray], start: int) -> np.ndarray:
        """Transform a batch.

        Args:
            images: arrays (C, H, W) that all have the same `shape(...)`, or one uint8 array (N, C, H, W).
            start: the number of the first example, counted from the start of training. It determines the random
                numbers.

        Returns:
            The batch, (N, C, h, w): uint8 if `device_transform` subtracts and scales, otherwise float32.
        """
        return self.apply(images, self.sample_crops(images, start))

    def sample_crops(self, images: Sequence[np.ndarray], start: int) -> Crops:
        """Sample the crop of each image. See `__call__` for the arguments."""
        words = self._rng.words(start, len(images))
        extents = np.array([image.shape[1:] for image in images], np.uint64)
        return Crops(self._crop.origins(extents, words[:, 1:3]), (words[:, 0] % 2 == 1) & self._mirror)

    def windows(self, images: Sequence[np.ndarray], crops: Crops) -> np.ndarray:
        """Return the crops as boxes, float32 (N, 4), of xmin, ymin, xmax and ymax relative to the images' sides."""
        extents = np.array([image.shape[1:] for image in images], np.float32)
        sides = np.array([self._crop.shape(image.shape)[1:] for image in images], np.float32)
        low = crops.origins.astype(np.float32)
        return np.concatenate([(low / extents)[:, ::-1], ((low + sides) / extents)[:, ::-1]], axis=1)

    def apply(self, images: Sequence[np.ndarray], crops: Crops) -> np.ndarray:
        """Transform a batch of images as `__call__` does, but with the given crops."""
        shape = (len(images), *self._crop.shape(images[0].shape))
        dtypes = {images.dtype} if isinstance(images, np.ndarray) else {image.dtype for image in images}
        is_uint8 = self._normalizes_on_device and dtypes == {np.dtype(np.uint8)}
        if isinstance(images, np.ndarray) and is_uint8:
            return _crop_batch(images, crops, shape)
        if is_uint8:
            return crop_uint8(images, crops, shape[1:])
        with np.errstate(over="ignore", invalid="ignore"):  # infinity and NaN are kept, as in Caffe
            batch = np.empty(shape, np.float32)
            _subtract_mean(images, crops, self._mean, batch)
            if self._scale != 1:
                batch *= self._scale
        return batch


def crop_uint8(images: Sequence[np.ndarray], crops: Crops, shape: tuple[int, ...]) -> np.ndarray:
    """Crop and mirror uint8 images to `shape`, which is (C, h, w), and return them as uint8 (N, C, h, w)."""
    batch = np.empty((len(images), *shape), np.uint8)
    height, width = shape[1:]
    columns = crops.origins.tolist(), crops.flips.tolist()
    for image, (row, column), flip, out in zip(images, *columns, batch, strict=True):
        _copy_window(image[:, row : row + height, column : column + width], flip, out)
    return batch


def _crop_batch(images: np.ndarray, crops: Crops, shape: tuple[int, ...]) -> np.ndarray:
    origins, flips, _ = crops
    windows = sliding_window_view(images, shape[2:], axis=(2, 3))
    batch: np.ndarray = windows[np.arange(len(images)), :, origins[:, 0], origins[:, 1]]
    rows = batch[flips].reshape(-1, shape[-1])
    if len(rows):  # OpenCV flips rows three times as fast as NumPy
        batch[flips] = cv2.flip(rows, 1).reshape(-1, *shape[1:])
    return batch


def _subtract_mean(images: Sequence[np.ndarray], crops: Crops, mean: Mean, batch: np.ndarray) -> None:
    """Fill a batch (N, C, h, w) with crops of images (C, H, W) minus the mean, in one pass over the pixels."""
    mean_flips = crops.flips if crops.mean_flips is None else crops.mean_flips
    columns = crops.origins.tolist(), crops.flips.tolist(), mean_flips.tolist()
    height, width = batch.shape[2:]
    for image, (row, column), flip, mean_flip, out in zip(images, *columns, batch, strict=True):
        window = np.s_[:, row : row + height, column : column + width]
        mean_window = mean.broadcast_to(image.shape)[window]
        if flip != mean_flip:
            mean_window = mean_window[:, :, ::-1]
        np.subtract(image[window], mean_window, out=out[:, :, ::-1] if flip else out)


def _copy_window(window: np.ndarray, flip: bool, out: np.ndarray) -> None:
    if window.strides[0] == 1 < len(window):  # a decoded image with interleaved channels: OpenCV separates them faster
        pixels = window.transpose(1, 2, 0)
        # with the copy it takes 14 instead of 150 us for 224 x 224
        cv2.split(cv2.flip(pixels, 1) if flip else pixels.copy(), list(out))
    else:
        out[...] = window[:, :, ::-1] if flip else window


@dataclass(frozen=True, eq=False)
class Normalize:
    """The part of the transform that runs on the device: (pixel - mean) * scale for uint8 images.

    Attributes:
        mean: float32 (C, H, W) or (C, 1, 1).
        scale: the factor.
    """

    mean: np.ndarray
    scale: np.float32

    def __call__(self, images: jax.Array, *labels: jax.Array) -> tuple[jax.Array, ...]:
        """Return the tops: the images as float32 (N, C, h, w), and the labels unchanged."""
        if images.dtype == jnp.uint8:
            images = (images.astype(jnp.float32) - self.mean) * self.scale
        return (images, *labels)


def preprocess_pixels(pixels: jax.Array, normalize: Normalize, crop: Crop) -> jax.Array:
    """Return pixels minus the mean, times the scale, and cropped in the center, whatever their dtype.

    Args:
        pixels: (..., H, W), with the axes of the channels before them as the mean has them.
        normalize: the mean and scale.
        crop: the size of the crop. Pixels that have this size already are not cropped, and a larger mean is cropped.

    Returns:
        An array (..., h, w), float64 for float64 pixels, otherwise float32.

    Raises:
        DataError: if the pixels are smaller than the crop, or do not fit the mean.
    """
    mean, size = jnp.asarray(normalize.mean), pixels.shape[-2:]
    if crop.height and size == (crop.height, crop.width):
        mean = _crop_center(mean, crop) if mean.shape[-2:] != (1, 1) else mean
    if mean.shape[-2:] not in ((1, 1), size) or mean.shape[0] not in (1, pixels.shape[-mean.ndim]):
        raise DataError(f"pixels of shape {pixels.shape} do not fit the mean of shape {normalize.mean.shape}")
    if crop.height > size[0] or crop.width > size[1]:
        raise DataError(f"pixels of shape {pixels.shape} are smaller than the crop, {crop.height} x {crop.width}")
    dtype = pixels.dtype if pixels.dtype == jnp.float64 else jnp.float32
    normalized = (pixels.astype(dtype) - mean.astype(dtype)) * jnp.asarray(normalize.scale, dtype)
    return _crop_center(normalized, crop) if crop.height else normalized


def _crop_center(array: jax.Array, crop: Crop) -> jax.Array:
    height, width = array.shape[-2:]
    row, column = (height - crop.height) // 2, (width - crop.width) // 2
    return array[..., row : row + crop.height, column : column + crop.width]


# the names of height and width in BVLC Caffe, the SSD fork and PSPNet's fork
_SIZE_FIELDS = (("crop_size", "crop_size"), ("crop_h", "crop_w"), ("crop_height", "crop_width"))


@dataclass(frozen=True)
class Crop:
    """The size of crops.

    Attributes:
        height: the height in pixels, or 0 for images that are not cropped.
        width: the width in pixels, or 0 for images that are not cropped.
        is_random: whether crops are at random positions, as in training, instead of in the center.
    """

    height: int
    width: int
    is_random: bool

    def shape(self, image_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape (C, h, w) of the crop of an image (C, H, W).

        Raises:
            DataError: if the crop is larger than the image.
        """
        if self.height > image_shape[1] or self.width > image_shape[2]:
            size = str(self.height) if self.height == self.width else f"{self.height} x {self.width}"
            raise DataError(f"is {format_shape(image_shape)} (CxHxW), smaller than crop_size {size}")
        return (image_shape[0], self.height, self.width) if self.height else image_shape

    def origins(self, extents: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Return the row and column, uint64 (N, 2), of the upper left corner of each crop.

        Args:
            extents: heights and widths of the images, uint64 (N, 2).
            words: random words, uint64 (N, 2), used if crops are random.
        """
        if not self.height:
            return np.zeros_like(extents)
        margins = extents - np.array([self.height, self.width], np.uint64)
        return words % (margins + np.uint64(1)) if self.is_random else margins // np.uint64(2)


def parse_crop(param: Any, is_random: bool) -> Crop:
    """Return the crop of a TransformationParameter.

    Raises:
        DataError: if only one side is set, or two pairs of fields set the crop.
    """
    fields = [names for names in _SIZE_FIELDS if any(getattr(param, name) for name in names)]
    if len(fields) > 1:
        raise DataError(f"transform_param has both {fields[0][0]} and {fields[1][0]}; keep one of them")
    height, width = (getattr(param, name) for name in fields[0]) if fields else (0, 0)
    if bool(height) != bool(width):
        raise DataError(f"transform_param has only one of {fields[0][0]} and {fields[0][1]}; set both or none")
    return Crop(height, width, is_random)


@dataclass(frozen=True)
class Mean:
    """The mean that is subtracted from images.

    Attributes:
        values: float32 (C, H, W), or (C, 1, 1) for one value for each channel.
        file: the mean_file, or None. The mean of a file must have the shape of the images.
    """

    values: np.ndarray
    file: str | None = None

    def broadcast_to(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return the mean broadcast to an image's shape (C, H, W).

        Raises:
            DataError: if the mean does not fit the shape.
        """
        if self.file is not None and self.values.shape != shape:
            raise DataError(
                f"is {format_shape(shape)} (CxHxW), but mean_file {self.file} is {format_shape(self.values.shape)}: "
                "the shapes must be equal, even with a crop_size"
            )
        if len(self.values) not in (1, shape[0]):
            raise DataError(
                f"has {shape[0]} channels, but mean_value is set {len(self.values)} times; set it once, or once "
                "for each channel"
            )
        return np.broadcast_to(self.values, shape)


def read_mean(definition: LayerDefinition) -> Mean:
    """Return the mean of a layer's transform_param, or zero if it has none.

    Raises:
        DataError: if there are both mean_file and mean_value, or the file is missing or does not have one image.
    """
    param = definition.layer.transform_param
    if not param.HasField("mean_file"):
        return Mean(np.array(list(param.mean_value) or [0], np.float32).reshape(-1, 1, 1))
    _refuse_both(param, "mean_file", "mean_value")
    path = definition.path(param.mean_file)
    return Mean(_read_mean_file(path), str(path))


def _read_mean_file(path: Path) -> np.ndarray:
    try:
        mean = np.asarray(read_blob_proto(path), np.float32)
    except WeightsError as error:
        raise DataError(replace(p, message=f"mean_file: {p.message}") for p in error.problems) from error
    if mean.ndim not in (4, 5) or len(mean) != 1 or not mean.size:
        message = f"mean_file has shape {format_shape(mean.shape)}; it must be one image, 1xCxHxW"
        raise DataError(Problem(message, file=str(path)))
    return mean.reshape(-1, *mean.shape[-2:])  # in the mean of clips, 1xCxLxHxW, each frame has its channels
