"""The common interface of data layers: `probe` when a graph is built, and `open` to read batches."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Container, Sequence
from typing import Any

import jax
import numpy as np

from ...base.errors import DataError, check_all, locate_errors
from ...base.host_memory import find_memory_problem
from ..layers.context import LayerDefinition, Shape
from ..layers.data_source import Source, SourceSpec, TopSpecs
from ..layers.types import SourceInput
from ..schema.fork_fields import IGNORED_FIELDS
from .prefetch import Batches, Pipeline
from .sampling import CounterRng

_MAX_PREFETCH = 1024  # batches


class DataLayer(ABC):
    """A layer whose tops are batches that it reads from a source.

    A subclass defines `check_settings`, `probe` and `open`, and its layer type is registered with its
    `implementation()`. The docstring of the subclass is the layer's description in the documentation.

    Args:
        definition: the layer's definition. The constructor opens no files.

    Attributes:
        definition: the layer's definition.
        layer_param: its LayerParameter.
        rng: the layer's random numbers.
        any_shape: see `SourceInput.any_shape`.
    """

    any_shape = False

    def __init__(self, definition: LayerDefinition) -> None:
        self.definition = definition
        self.layer_param = definition.layer
        self.rng = CounterRng(definition.config.seed, definition.layer.name)

    @property
    def prefetch(self) -> int:
        """The number of batches to prefetch, for each batch that a training step uses."""
        return int(self.layer_param.data_param.prefetch)  # other layers than Data read it from data_param, too

    @abstractmethod
    def check_settings(self) -> None:
        """Check all settings that can be checked without the source, which may be missing.

        Raises:
            DataError: if settings are invalid or not supported. The message lists all problems.
        """

    @abstractmethod
    def probe(self) -> SourceSpec:
        """Read enough of the source to determine the shapes of the tops, and close all files.

        `check_settings` has been called before.
        """

    @abstractmethod
    def open(self, tops: TopSpecs) -> Batches:
        """Open the source, and return its batches. `tops` are the shapes and dtypes that `probe` returned."""

    @staticmethod
    def image_size(layer: Any) -> tuple[int, int] | None:
        """Return the height and width of images that settings of this type alone state, or None; see `SourceInput`."""
        return None

    @staticmethod
    def label_shapes(layer: Any, batch_size: int, height: int, width: int) -> Sequence[Shape] | None:
        """Return the shapes of the tops after the first, without opening the source, or None if they are unknown.

        Args:
            layer: the LayerParameter.
            batch_size: the number of examples in a batch.
            height, width: the size of the images in pixels.
        """
        return None

    @classmethod
    def implementation(cls) -> SourceInput:
        """Return the class as the implementation of a `LayerType`. Errors of `probe` and `open` name the layer."""

        def check(definition: LayerDefinition) -> None:
            with locate_errors(layer=definition.layer.name, layer_type=definition.layer.type):
                data_layer = cls(definition)
                check_all(lambda: _check_prefetch(data_layer.prefetch), data_layer.check_settings)

        def probe(definition: LayerDefinition) -> SourceSpec:
            check(definition)
            with locate_errors(layer=definition.layer.name, layer_type=definition.layer.type):
                return cls(definition).probe()

        def open_source(definition: LayerDefinition, tops: TopSpecs) -> Source:
            with locate_errors(layer=definition.layer.name, layer_type=definition.layer.type):
                _check_batch_fits(tops)
                data_layer, shard = cls(definition), definition.config.shard
                return Pipeline(
                    data_layer.open(tops), data_layer.prefetch * shard.count, definition.config.workers, shard
                )

        open_source.__doc__ = cls.__doc__
        return SourceInput(
            probe,
            open_source,
            check,
            image_size=cls.image_size,
            label_shapes=cls.label_shapes,
            any_shape=cls.any_shape,
        )


def _check_prefetch(prefetch: int) -> None:
    if not 1 <= prefetch <= _MAX_PREFETCH:
        raise DataError(f"prefetch must be 1 to {_MAX_PREFETCH} batches, not {prefetch}")


def _check_batch_fits(tops: TopSpecs) -> None:
    """Check that a batch fits into the memory of this machine.

    Raises:
        DataError: if it does not fit.
    """
    num_bytes = sum(math.prod(top.shape) * top.dtype.itemsize for top in tops)
    if problem := find_memory_problem(num_bytes, "a batch", "make batch_size, or the crop of each image, smaller"):
        raise DataError(problem)


def float32_top(*shape: int) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of a float32 top. Tops of Caffe's data layers have no other dtype."""
    return jax.ShapeDtypeStruct(shape, np.float32)


def refuse_unsupported(message: Any, message_name: str, supported: Container[str]) -> None:
    """Check that a message sets only fields in `supported`, or fields that are ignored with a warning.

    Raises:
        DataError: if any other field has a value that differs from its default. The message names each such field.
    """
    unsupported_fields = [
        field.name
        for field, value in message.ListFields()
        if field.name not in supported and field.name not in IGNORED_FIELDS.get(message.DESCRIPTOR.name, {})
        if value != field.default_value
    ]
    if unsupported_fields:
        raise DataError([f"{message_name}.{field} is not supported yet" for field in unsupported_fields])
