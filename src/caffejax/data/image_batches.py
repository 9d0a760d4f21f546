"""Batches of labelled images, wherever they come from."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Generic, NamedTuple, Protocol, TypeVar

import jax
import numpy as np

from ..errors import DataError, located
from ..layers.context import Site
from ..layers.source import Look, Tops
from .common import CounterRng, dims, float32_top
from .image_decoding import BadImageError
from .prefetch import Batch
from .transform import Transform

Label = TypeVar("Label")
AnyLabel_co = TypeVar("AnyLabel_co", covariant=True)


class Examples(Protocol[AnyLabel_co]):
    """Labelled images by number, without end. Several threads may read at once."""

    def __len__(self) -> int:
        """Return how many there are before they come again."""
        ...

    def count_threads(self) -> int:
        """Return how many threads can read faster than one. May read an example to find out."""
        ...

    def read_range(self, start: int, count: int) -> tuple[Sequence[np.ndarray], Sequence[AnyLabel_co]]:
        """Read that many examples from number `start` on: images (C, H, W), uint8 or float32, and labels.

        Images of one shape may be one array (N, C, H, W).

        Raises:
            DataError: naming the example; BadImageError, if that alone cannot be decoded.
        """
        ...

    def error(self, n: int, error: DataError) -> DataError:
        """Return an error that says what is wrong with example n, with the example's name."""
        ...

    def close(self) -> None:
        """Let go of files."""
        ...


def look_at_images(site: Site, examples: Examples[int], batch_size: int, rng: CounterRng) -> Look:
    """Read the first image for the tops' shapes, and close the examples.

    Raises:
        DataError: if it cannot be read or does not fit the layer.
    """
    with closing(examples):
        transform = Transform(site, rng)
        first = GoodExamples(examples, batch_size, site.reading.skip_bad).read_range(0, 1)
        tops = float32_top(batch_size, *batch_shape(first, examples, transform)), float32_top(batch_size)
    given = jax.ShapeDtypeStruct(tops[0].shape, transform.dtype(first.images)), tops[1]
    n = len(site.layer.top)
    return Look(tops[:n], transform.finish, given[:n])


class LabelledBatches:
    """Batches of labelled images, transformed as the layer says.

    Tops are the images, (N, C, h, w), and if the layer has two, the labels, float32 (N,). The first image of a
    batch decides the batch's shape. With `skip_bad`, the next example that can be decoded stands in for one that
    cannot, so that which examples make a batch still follows from its number alone.

    Args:
        site: the layer.
        examples: the images.
        batch_size: how many make a batch.
        rng: what decides over crops and mirroring.
        tops: what the look has shown.

    Raises:
        DataError: if transform_param is wrong.
    """

    def __init__(self, site: Site, examples: Examples[int], batch_size: int, rng: CounterRng, tops: Tops) -> None:
        self.tops = tops
        self.batch_size = batch_size
        self._layer = {"layer": site.layer.name, "layer_type": site.layer.type}  # for errors
        self._examples = examples
        self._good = GoodExamples(examples, batch_size, site.reading.skip_bad)
        self._transform = Transform(site, rng)

    @functools.cached_property
    def threads(self) -> int:
        """How many threads can read faster than one; asked for when reading begins."""
        with located(**self._layer):
            return self._examples.count_threads()

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
            examples = self._good.read_range(start, self.batch_size)
            batch_shape(examples, self._examples, self._transform)
            images = self._transform(examples.images, start)
        return Batch((images, np.array(examples.labels, np.float32))[: len(self.tops)], examples.warnings)

    def close(self) -> None:
        """Let go of files. Reading on opens them again."""
        self._examples.close()


class GoodExamples(Generic[Label]):
    """Examples that can be decoded: with `skip_bad`, the next such one stands in for one that cannot."""

    def __init__(self, examples: Examples[Label], batch_size: int, skip_bad: bool) -> None:
        self._examples = examples
        self._batch_size = batch_size
        self._skip_bad = skip_bad

    def read_range(self, start: int, count: int) -> ExampleRange[Label]:
        """Read that many examples from number `start` on, or what stands in for them."""
        try:
            return ExampleRange(range(start, start + count), *self._examples.read_range(start, count))
        except BadImageError:
            if not self._skip_bad:
                raise
        bad: list[BadImageError] = []
        found = [self._next_good(n, bad) for n in range(start, start + count)]
        warnings = dict.fromkeys(f"{error}; the next one takes its place" for error in bad)
        return ExampleRange(*zip(*found, strict=True))._replace(warnings=tuple(warnings))

    def _next_good(self, n: int, bad: list[BadImageError]) -> tuple[int, np.ndarray, Label]:
        """Find the first example from number n on that can be decoded; return its number, image and label."""
        for number in range(n, n + self._batch_size + 1):
            try:
                [image], [label] = self._examples.read_range(number, 1)
                return number, image, label
            except BadImageError as error:
                bad.append(error)
        [last] = bad[-1].problems
        raise DataError(replace(last, message=f"{last.message}; no better are the {self._batch_size} before it"))


def batch_shape(batch: ExampleRange[Label], examples: Examples[Label], transform: Transform) -> tuple[int, ...]:
    """Return the shape (C, h, w) that all images of a batch come out with."""
    shape: tuple[int, ...] = ()
    seen: tuple[int, ...] = ()
    one_array = isinstance(batch.images, np.ndarray)
    for n, image in zip(batch.numbers, batch.images[:1] if one_array else batch.images, strict=not one_array):
        if image.shape == seen:
            continue
        try:
            own = transform.shape(image.shape)
            if own != (shape or own):
                raise DataError(
                    f"comes out as {dims(own)} (CxHxW), the batch's first as {dims(shape)}: "
                    "a batch needs one shape; crop_size, force_color or batch_size: 1 may give it"
                )
        except DataError as error:
            raise examples.error(n, error) from error
        shape, seen = own, image.shape
    return shape


class ExampleRange(NamedTuple, Generic[Label]):
    """Consecutive examples: their numbers, images and labels, and what to warn of."""

    numbers: Sequence[int]
    images: Sequence[np.ndarray]
    labels: Sequence[Label]
    warnings: tuple[str, ...] = ()
