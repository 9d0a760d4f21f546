"""Batches of labelled images from a data set with random access."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

import jax
import numpy as np

from ...base.errors import DataError, locate_errors
from ...base.host_memory import count_available_cores
from ...base.human_readable import format_shape
from ..layers.context import LayerDefinition
from ..layers.data_source import SourceSpec, TopSpecs
from .data_identity import checksum_arrays
from .data_layer import float32_top
from .image_decoding import BadImageError
from .prefetch import Batch
from .sampling import CounterRng
from .transform import Transform

Label = TypeVar("Label")


class ImageDataset(ABC, Generic[Label]):
    """Labelled images, indexed by example number. The numbers have no limit: the first image follows the last.

    Several threads may read at once.
    """

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of images in an epoch."""

    @abstractmethod
    def read(self, start: int, count: int) -> tuple[Sequence[np.ndarray], Sequence[Label]]:
        """Read consecutive examples.

        Args:
            start: the number of the first example.
            count: the number of examples.

        Returns:
            The images (C, H, W), uint8 or float32, and the labels. Images of the same shape may be an array
            (N, C, H, W).

        Raises:
            DataError: if an example cannot be read. The message names it. The error is a `BadImageError` if other
                examples can be read nevertheless.
        """

    @abstractmethod
    def locate_error(self, n: int, error: DataError) -> DataError:
        """Return `error` with the name of example n in its message."""

    def checksum(self) -> int:
        """Return a checksum of the first and the last example of the first epoch."""
        examples = [self.read(n, 1) for n in (0, len(self) - 1)]
        return checksum_arrays(array for images, labels in examples for array in (*images, *labels))

    def count_threads(self) -> int:
        """Return the number of threads to read with. The method may read an example."""
        return count_available_cores()  # decoding releases Python's lock

    def close(self) -> None:
        """Close open files. The next read opens them again."""


class Examples(NamedTuple, Generic[Label]):
    """The examples of one batch.

    Attributes:
        indices: the number of each example in the data set.
        images: arrays (C, H, W), or one array (N, C, H, W).
        labels: one for each image.
        warnings: messages for the user.
    """

    indices: Sequence[int]
    images: Sequence[np.ndarray]
    labels: Sequence[Label]
    warnings: tuple[str, ...] = ()


class ImageBatches(Generic[Label]):
    """Batches of a data set's images, transformed by the layer's transform_param.

    The tops are images, (N, C, h, w), and labels, float32 (N, ...). The first image of a batch determines the shape of
    the batch. With `skip_bad`, an image that cannot be decoded is replaced by the next one that can, so the examples
    of a batch depend on the batch's number alone.

    Args:
        definition: the layer's definition.
        dataset: the images.
        batch_size: the number of examples in a batch.
        rng: the source of random crops and mirroring.
        tops: the shape and dtype of each top, as `probe` returned them; empty before `probe`.

    Raises:
        DataError: if the mean of transform_param cannot be read.
    """

    def __init__(
        self,
        definition: LayerDefinition,
        dataset: ImageDataset[Label],
        batch_size: int,
        rng: CounterRng,
        tops: TopSpecs = (),
    ) -> None:
        self.tops = tops
        self.batch_size = batch_size
        self._location = {"layer": definition.layer.name, "layer_type": definition.layer.type}  # for errors
        self._dataset = dataset
        self._skip_bad = definition.config.skip_bad
        self._rng = rng
        self._transform = Transform(definition, rng)

    @functools.cached_property
    def num_threads(self) -> int:
        """The number of threads to read with. Evaluated when reading begins."""
        with locate_errors(**self._location):
            return self._dataset.count_threads()

    @property
    def num_examples(self) -> int:
        """The number of examples in an epoch."""
        return len(self._dataset)

    def probe(self, n_tops: int) -> SourceSpec:
        """Read the first example to determine the shapes of the tops, and close the data set.

        Raises:
            DataError: if the example cannot be read or does not fit the layer.
        """
        self.tops = (float32_top(1),) * n_tops
        with closing(self):
            arrays = self._assemble(self._read_examples(0, 1), 0).arrays
        tops = tuple(float32_top(self.batch_size, *array.shape[1:]) for array in arrays)
        host_specs = jax.ShapeDtypeStruct(tops[0].shape, arrays[0].dtype), *tops[1:]
        return SourceSpec(tops, self._transform.device_transform, host_specs)

    def read(self, start: int) -> Batch:
        """Read the batch that begins at example `start`.

        Raises:
            DataError: if an example cannot be read, or its shape differs from the first example's. The message names
                the example.
        """
        with locate_errors(**self._location):
            return self._assemble(self._read_examples(start, self.batch_size), start)

    def checksum(self) -> int:
        """Return a checksum of a few examples, or 0 if one of them cannot be decoded."""
        try:
            return self._dataset.checksum()
        except BadImageError:
            return 0  # reading reports it, or replaces it

    def close(self) -> None:
        """Close open files. The next read opens them again."""
        self._dataset.close()

    def _assemble(self, examples: Examples[Label], start: int) -> Batch:
        """Make a batch of examples. The random numbers depend on `start`, the number of the first example."""
        self._check_equal_shapes(examples)
        images = self._transform(examples.images, start)
        return Batch((images, np.array(examples.labels, np.float32))[: len(self.tops)], examples.warnings)

    def _read_examples(self, start: int, count: int) -> Examples[Label]:
        try:
            return Examples(range(start, start + count), *self._dataset.read(start, count))
        except BadImageError:
            if not self._skip_bad:
                raise
        errors: list[BadImageError] = []
        examples = [self._read_next_decodable(n, errors) for n in range(start, start + count)]
        warnings = dict.fromkeys(f"{error}; the next image replaces it" for error in errors)
        return Examples(*zip(*examples, strict=True))._replace(warnings=tuple(warnings))

    def _read_next_decodable(self, n: int, errors: list[BadImageError]) -> tuple[int, np.ndarray, Label]:
        for index in range(n, n + self.batch_size + 1):
            try:
                [image], [label] = self._dataset.read(index, 1)
                return index, image, label
            except BadImageError as error:
                errors.append(error)
        [last_problem] = errors[-1].problems
        message = f"{last_problem.message}; the {self.batch_size} preceding images could not be decoded either"
        raise DataError(replace(last_problem, message=message))

    @contextmanager
    def _locate_errors(self, n: int) -> Iterator[None]:
        try:
            yield
        except DataError as error:
            raise self._dataset.locate_error(n, error) from error

    def _check_equal_shapes(self, examples: Examples[Label]) -> tuple[int, ...]:
        """Return the shape (C, h, w) that all images have after the transform, or raise an error that names one."""
        images = examples.images
        if isinstance(images, np.ndarray):  # all images have the same shape
            images = images[:1]
        shape: tuple[int, ...] = ()
        previous_shape: tuple[int, ...] = ()
        for n, image in zip(examples.indices, images, strict=False):
            if image.shape == previous_shape:
                continue
            with self._locate_errors(n):
                transformed_shape = self._transform.shape(image.shape)
                if transformed_shape != (shape or transformed_shape):
                    raise DataError(
                        f"becomes {format_shape(transformed_shape)} (CxHxW), but the batch's first image becomes "
                        f"{format_shape(shape)}: all images of a batch must have the same shape; set crop_size, "
                        "force_color or batch_size: 1"
                    )
            shape, previous_shape = transformed_shape, image.shape
        return shape
