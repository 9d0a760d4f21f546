"""Variants of Data and ImageData of the SSD fork, which resize images and add noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....base.errors import DataError, check_all, raise_if_any
from ....core.data.database import DATA
from ....core.data.image_batches import Examples, ImageDataset
from ....core.data.image_data import IMAGE_DATA
from ....core.data.prefetch import Batch
from ....core.data.sampling import CounterRng
from ....core.data.transform import read_mean
from ....core.layers.context import LayerDefinition
from ....core.layers.data_source import TopSpecs
from ....core.layers.registry import register_variants
from ...general.augmented_batches import AugmentedBatches
from ...general.image_sources import RESIZE_SETTINGS, ForkDatabaseLayer, ResizedImageDataLayer
from .annotated_image import AnnotatedImage
from .color_changes import noise_problems
from .ssd_augmentation import Augmentation, resize_problems

_FIELDS = ("resize_param", "noise_param")
_NO_OBJECTS = np.zeros((0, 7), np.float32)


class ResizedBatches(AugmentedBatches[int]):
    """Batches of images that are resized and get noise before they are cropped. The image of the mean is not mirrored.

    See `ImageBatches` for the arguments.
    """

    def __init__(
        self,
        definition: LayerDefinition,
        dataset: ImageDataset[int],
        batch_size: int,
        rng: CounterRng,
        tops: TopSpecs = (),
    ) -> None:
        super().__init__(definition, dataset, batch_size, rng, tops)
        self._augment = Augmentation(definition, read_mean(definition).values.reshape(-1))

    def _assemble(self, examples: Examples[int], start: int) -> Batch:
        def change(image: np.ndarray, _: int, rng: np.random.Generator) -> np.ndarray:
            plain_image = AnnotatedImage(image.transpose(1, 2, 0), _NO_OBJECTS)
            return self._augment(plain_image, rng, is_encoded=False).image.pixels.transpose(2, 0, 1)

        images = self._change_examples(change, examples, start)
        self._check_equal_shapes(examples._replace(images=images))
        crops = self._transform.sample_crops(images, start)
        pixels = self._transform.apply(images, crops._replace(mean_flips=np.zeros_like(crops.flips)))
        return Batch((pixels, np.array(examples.labels, np.float32))[: len(self.tops)], examples.warnings)


def _list_problems(param: Any) -> Iterator[str]:
    if len(param.resize_param) > 1:
        yield "transform_param has several resize_param, which only AnnotatedData takes; keep one of them"
    yield from resize_problems(param.resize_param)
    yield from noise_problems(param.noise_param) if param.HasField("noise_param") else ()


class SsdDatabaseLayer(ForkDatabaseLayer):
    """Batches of Datums from an LMDB or LevelDB, resized by `resize_param`, with the noise of `noise_param`."""

    batches_class = ResizedBatches
    transform_fields = _FIELDS

    def check_settings(self) -> None:
        """Check data_param and transform_param."""
        problems = _list_problems(self.layer_param.transform_param)
        check_all(super().check_settings, lambda: raise_if_any(DataError, problems))


class SsdImageDataLayer(ResizedImageDataLayer):
    """Batches of the images that a list names, resized by `resize_param`, with the noise of `noise_param`.

    Settings of image_data_param resize an image before `resize_param` does.
    """

    batches_class = ResizedBatches
    transform_fields = _FIELDS

    def check_settings(self) -> None:
        """Check image_data_param and transform_param."""
        problems = _list_problems(self.layer_param.transform_param)
        check_all(super().check_settings, lambda: raise_if_any(DataError, problems))


def _select(layer: Any) -> str | None:
    param = layer.transform_param
    return "of SSD" if param.resize_param or param.HasField("noise_param") else None


_SELECTION = "With `resize_param` or `noise_param` in transform_param, SSD resizes the images and adds noise."

register_variants(
    "Data",
    _select,
    {
        "of SSD": DATA.variant(
            SsdDatabaseLayer.implementation(),
            fork_settings=("shuffle",),
            origin="SSD",
            restrictions="Images that are stored uncompressed are changed like others; the fork leaves out their "
            "noise, and stops where it should resize them.",
        ).type
    },
    _SELECTION,
)
register_variants(
    "ImageData",
    _select,
    {
        "of SSD": IMAGE_DATA.variant(
            SsdImageDataLayer.implementation(),
            fork_settings=RESIZE_SETTINGS,
            origin="SSD",
        ).type
    },
    _SELECTION,
)
