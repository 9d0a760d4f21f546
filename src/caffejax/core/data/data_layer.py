"""The common interface of data layers: `probe` when a graph is built, and `open` to read batches."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from ...base.errors import DataError, check_all, locate_errors, raise_if_any
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

    A subclass defines `check_settings` and `open`, and `probe` if `open` reads more than that needs. Its layer type is
    registered with its `implementation()`. Its docstring is the layer's description in the documentation.

    Args:
        definition: the layer's definition. The constructor opens no files.

    Attributes:
        definition: the layer's definition.
        layer_param: its LayerParameter.
        rng: the layer's random numbers.
        any_shape, image_size, label_shapes: see `SourceInput`. The latter two are static methods.
    """

    any_shape = False
    image_size: ClassVar[Callable[..., tuple[int, int] | None] | None] = None
    label_shapes: ClassVar[Callable[..., Sequence[Shape] | None] | None] = None

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

    def probe(self) -> SourceSpec:
        """Read enough of the source to determine the shapes of the tops, and close all files.

        `check_settings` has been called before. The default is the `probe` of the batches that `open` returns.
        """
        batches: Any = self.open(())
        spec: SourceSpec = batches.probe(len(self.layer_param.top))
        return spec

    @abstractmethod
    def open(self, tops: TopSpecs) -> Batches:
        """Open the source, and return its batches. `tops` are the shapes and dtypes from `probe`, or () before it."""

    @classmethod
    def implementation(cls) -> SourceInput:
        """Return the class as the implementation of a `LayerType`. Errors of `probe` and `open` name the layer."""

        def check(definition: LayerDefinition) -> None:
            with locate_errors(layer=definition.layer.name, layer_type=definition.layer.type):
                data_layer, problems = cls(definition), []
                if not 1 <= (prefetch := data_layer.prefetch) <= _MAX_PREFETCH:
                    problems.append(f"prefetch must be 1 to {_MAX_PREFETCH} batches, not {prefetch}")
                check_all(lambda: raise_if_any(DataError, problems), data_layer.check_settings)

        def probe(definition: LayerDefinition) -> SourceSpec:
            check(definition)
            with locate_errors(layer=definition.layer.name, layer_type=definition.layer.type):
                return cls(definition).probe()

        def open_source(definition: LayerDefinition, tops: TopSpecs) -> Source:
            with locate_errors(layer=definition.layer.name, layer_type=definition.layer.type):
                num_bytes = sum(math.prod(top.shape) * top.dtype.itemsize for top in tops)
                remedy = "make batch_size, or the crop of each image, smaller"
                if problem := find_memory_problem(num_bytes, "a batch", remedy):
                    raise DataError(problem)
                data_layer, shard = cls(definition), definition.config.shard
                num_prefetched = data_layer.prefetch * shard.count
                return Pipeline(data_layer.open(tops), num_prefetched, definition.config.workers, shard)

        open_source.__doc__ = cls.__doc__
        return SourceInput(
            probe, open_source, check, image_size=cls.image_size, label_shapes=cls.label_shapes, any_shape=cls.any_shape
        )


def scalar_label_shapes(layer: Any, batch_size: int, height: int, width: int) -> Sequence[Shape]:
    """Return the shape of one number for each example; see `SourceInput.label_shapes`."""
    return [(batch_size,)]


def float32_top(*shape: int) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of a float32 top. Tops of Caffe's data layers have no other dtype."""
    return jax.ShapeDtypeStruct(shape, np.float32)


def list_source_problems(param: Any, name: str, description: str) -> Iterator[str]:
    """Yield a message if settings have no source, and one if their batch size is less than 1.

    Args:
        param: the message with the settings.
        name: the name of the message.
        description: a noun phrase for the source, such as "the database's folder".
    """
    if not param.source:
        yield f"{name} has no source; name {description}"
    if param.batch_size < 1:
        yield f"{name}.batch_size must be 1 or more, not {param.batch_size}"


def refuse_unsupported(message: Any, message_name: str, supported: Container[str]) -> None:
    """Check that a message sets only fields in `supported`, or fields that are ignored with a warning.

    Raises:
        DataError: if any other field has a value that differs from its default. The message names each such field.
    """
    ignored = IGNORED_FIELDS.get(message.DESCRIPTOR.name, {})
    names = [field.name for field, value in message.ListFields() if value != field.default_value]
    unsupported = (name for name in names if name not in supported and name not in ignored)
    raise_if_any(DataError, (f"{message_name}.{name} is not supported yet" for name in unsupported))
