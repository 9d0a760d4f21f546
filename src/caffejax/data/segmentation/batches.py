"""Batches of images with maps of labels: both are scaled, padded, cropped and mirrored alike."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import jax
import numpy as np

from ...errors import DataError, located
from ...layers.context import Site
from ...layers.source import Look, Tops
from ..crop import crop_of
from ..labelled import ExampleRange, GoodExamples, batch_shape
from ..mean import read_mean
from ..opencv import cv2
from ..pipeline import Batch, available_cores
from ..rng import CounterRng
from ..shapes import float32_top
from ..transform import Transform, cut_each
from .examples import LabelMap, MapExamples, Reading, scaled

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
