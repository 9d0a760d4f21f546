"""Batches of labelled images, wherever they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np

from ..errors import DataError, located
from ..layers.context import Site
from ..layers.source import Tops
from .datum import BadImageError
from .pipeline import Batch
from .rng import CounterRng
from .shapes import dims, float32_top
from .transform import Transform


class Examples(Protocol):
    """Labelled images by number, without end. Several threads may read at once.

    Attributes:
        threads: how many threads can read faster than one.
    """

    threads: int

    def read_range(self, start: int, count: int) -> tuple[Sequence[np.ndarray], Sequence[int]]:
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
        tops: what an earlier look has shown; else the first image is read for them.

    Raises:
        DataError: if the first image cannot be read or does not fit the layer.
    """

    def __init__(
        self, site: Site, examples: Examples, batch_size: int, rng: CounterRng, tops: Tops | None = None
    ) -> None:
        self.batch_size = batch_size
        self._site = site
        self._examples = examples
        self._transform = Transform(site, rng)
        self.threads = examples.threads
        self.tops = self._look() if tops is None else tops

    def _look(self) -> Tops:
        tops = float32_top(self.batch_size, *self._shape(self._read_range(0, 1))), float32_top(self.batch_size)
        return tops[: len(self._site.layer.top)]

    def read(self, start: int) -> Batch:
        """Read the batch from example `start` on.

        Raises:
            DataError: naming the example that cannot be read or has another shape than the batch's first.
        """
        with located(layer=self._site.layer.name, layer_type=self._site.layer.type):
            examples = self._read_range(start, self.batch_size)
            self._shape(examples)
            images = self._transform(examples.images, start)
        return Batch((images, np.array(examples.labels, np.float32))[: len(self.tops)], examples.warnings)

    def close(self) -> None:
        """Let go of files. Reading on opens them again."""
        self._examples.close()

    def _read_range(self, start: int, count: int) -> _ExampleRange:
        """Read that many examples from number `start` on, or what stands in for them."""
        try:
            return _ExampleRange(range(start, start + count), *self._examples.read_range(start, count))
        except BadImageError:
            if not self._site.reading.skip_bad:
                raise
        bad: list[BadImageError] = []
        found = [self._next_good(n, bad) for n in range(start, start + count)]
        warnings = dict.fromkeys(f"{error}; the next one takes its place" for error in bad)
        return _ExampleRange(*zip(*found, strict=True))._replace(warnings=tuple(warnings))

    def _next_good(self, n: int, bad: list[BadImageError]) -> tuple[int, np.ndarray, int]:
        """Find the first example from number n on that can be decoded; return its number, image and label."""
        for number in range(n, n + self.batch_size + 1):
            try:
                [image], [label] = self._examples.read_range(number, 1)
                return number, image, label
            except BadImageError as error:
                bad.append(error)
        [last] = bad[-1].problems
        raise DataError(replace(last, message=f"{last.message}; no better are the {self.batch_size} before it"))

    def _shape(self, examples: _ExampleRange) -> tuple[int, ...]:
        """Return the shape (C, h, w) that all images of a batch come out with."""
        shape: tuple[int, ...] = ()
        seen: tuple[int, ...] = ()
        one_array = isinstance(examples.images, np.ndarray)
        for n, image in zip(
            examples.numbers, examples.images[:1] if one_array else examples.images, strict=not one_array
        ):
            if image.shape == seen:
                continue
            try:
                own = self._transform.shape(image.shape)
                if own != (shape or own):
                    raise DataError(
                        f"comes out as {dims(own)} (CxHxW), the batch's first as {dims(shape)}: "
                        "a batch needs one shape; crop_size, force_color or batch_size: 1 may give it"
                    )
            except DataError as error:
                raise self._examples.error(n, error) from error
            shape, seen = own, image.shape
        return shape


class _ExampleRange(NamedTuple):
    """Consecutive examples: their numbers, images and labels, and what to warn of."""

    numbers: Sequence[int]
    images: Sequence[np.ndarray]
    labels: Sequence[int]
    warnings: tuple[str, ...] = ()
