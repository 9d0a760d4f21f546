"""Variants of Data and ImageData: records in random order, labels of pairs of images, and other sizes of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.data.database import DATA, DatabaseLayer, DatumDataset
from ...core.data.image_data import IMAGE_DATA, ImageDataLayer, ImageFileDataset
from ...core.data.image_decoding import resize
from ...core.data.import_cv2 import cv2
from ...core.data.prefetch import Batches
from ...core.layers.context import Shape
from ...core.layers.data_source import TopSpecs
from ...core.layers.registry import register_variants


class ForkDatabaseLayer(DatabaseLayer):
    """Batches of Datums from an LMDB or LevelDB. With `shuffle`, each epoch has a different random order."""

    data_fields = ("shuffle",)

    @staticmethod
    def label_shapes(layer: Any, batch_size: int, height: int, width: int) -> Sequence[Shape]:
        """Return the shape of the labels, or of MyCaffe's labels of pairs of images and of several labels.

        The latter are refused, but a net with them can be checked. The number of several labels that are not one-hot is
        in the source alone; a label for each pixel is assumed.
        """
        param = layer.data_param
        if param.label_type == "MULTIPLE":
            size: Shape = (param.one_hot_label_size, 1, 1) if param.one_hot_label_size else (height * width,)
        else:
            size = (param.images_per_blob,) if param.output_all_labels and param.images_per_blob > 1 else ()
        return [(batch_size, *size)]

    def open(self, tops: TopSpecs) -> Batches:
        """Open the database."""
        dataset = DatumDataset(self.definition, self.rng, shuffle=self.layer_param.data_param.shuffle)
        return self.make_batches(dataset, tops)


_DATA_SETTINGS = ("shuffle", "label_type", "one_hot_label_size", "output_all_labels", "images_per_blob")

register_variants(
    "Data",
    lambda layer: "of forks" if any(layer.data_param.HasField(name) for name in _DATA_SETTINGS) else None,
    {
        "of forks": DATA.variant(
            ForkDatabaseLayer.implementation(),
            fork_settings=("shuffle",),
            origin="NVIDIA Caffe, Intel Caffe, yjxiong/caffe",
        ).type
    },
    "With `shuffle` the records are in random order. MyCaffe's settings of pairs and labels are refused.",
)


class ResizedImageDataset(ImageFileDataset):
    """The images that a list names, resized to a size that may depend on the image; see `_resized_size`."""

    def resize(self, image: np.ndarray) -> np.ndarray:
        """Return an image (C, H, W) in the size that the layer's parameters set."""
        interpolation = cv2.INTER_CUBIC if self.param.bicubic else cv2.INTER_LINEAR
        return resize(image, *_resized_size(self.param, *image.shape[1:]), self.max_pixels, interpolation)


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


RESIZE_SETTINGS = ("short_side", "new_dim", "bicubic", "min_height", "min_width")


class ResizedImageDataLayer(ImageDataLayer):
    """Batches of the images that a list names, resized by settings of forks.

    The shorter side gets `short_side` (NVIDIA Caffe) or `new_dim` (channel-pruning) pixels, or images that are smaller
    than `min_height` or `min_width` (Intel Caffe) are enlarged; `bicubic` interpolates by cubic functions.
    """

    dataset_class = ResizedImageDataset
    size_fields = (*ImageDataLayer.size_fields, ("min_height", "min_width"))
    supported_fields = (*ImageDataLayer.supported_fields, *RESIZE_SETTINGS)


register_variants(
    "ImageData",
    lambda layer: "resized" if any(layer.image_data_param.HasField(name) for name in RESIZE_SETTINGS) else None,
    {
        "resized": IMAGE_DATA.variant(
            ResizedImageDataLayer.implementation(),
            fork_settings=RESIZE_SETTINGS,
            origin="NVIDIA Caffe, Intel Caffe, channel-pruning",
        ).type
    },
    "With `short_side`, `new_dim`, `bicubic`, `min_height` or `min_width`, forks resize the images.",
)
