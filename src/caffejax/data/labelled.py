"""Batches of labelled images, wherever they come from."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ..errors import DataError, located
from ..layers.context import Context
from .draws import Draws
from .pipeline import Batch
from .shapes import by, top
from .transform import Transform


class Examples(Protocol):
    """Labelled images by number, without end. Several threads may read at once.

    Attributes:
        threads: how many threads can read faster than one.
    """

    threads: int

    def run(self, start: int, count: int) -> list[tuple[np.ndarray, int]]:
        """The images (C, H, W), uint8 or float32, and the labels of that many examples from number `start` on.

        Raises:
            DataError: naming the example.
        """
        ...

    def error(self, n: int, error: DataError) -> DataError:
        """An error that only says what is wrong with example n, with its name."""
        ...

    def close(self) -> None:
        """Lets go of files."""
        ...


class LabelledBatches:
    """Batches of labelled images, transformed as the layer says.

    Tops are the images, (N, C, h, w), and if the layer has two, the labels, float32 (N,). The first image of a
    batch decides the batch's shape.

    Args:
        ctx: the layer.
        examples: the images.
        batch_size: how many make a batch.
        draws: what decides over crops and mirroring.

    Raises:
        DataError: if the first image cannot be read or does not fit the layer.
    """

    def __init__(self, ctx: Context, examples: Examples, batch_size: int, draws: Draws) -> None:
        self.batch_size = batch_size
        self._ctx = ctx
        self._examples = examples
        self._transform = Transform(ctx, draws)
        [(image, _)] = examples.run(0, 1)
        self.threads = examples.threads
        tops = top(batch_size, *self._shape([image], 0)), top(batch_size)
        self.tops = tops[: ctx.n_tops]

    def read(self, start: int) -> Batch:
        """The batch from example `start` on.

        Raises:
            DataError: naming the example that cannot be read or has another shape than the batch's first.
        """
        with located(layer=self._ctx.layer.name, layer_type=self._ctx.type.name):
            examples = self._examples.run(start, self.batch_size)
            images = [image for image, _ in examples]
            self._shape(images, start)
            batch = self._transform(images, start)
        return (batch, np.array([label for _, label in examples], np.float32))[: len(self.tops)]

    def close(self) -> None:
        """Lets go of files; reading on opens them again."""
        self._examples.close()

    def _shape(self, images: list[np.ndarray], start: int) -> tuple[int, ...]:
        """The shape (C, h, w) that all images of a batch come out with."""
        shape: tuple[int, ...] = ()
        seen: tuple[int, ...] = ()
        for n, image in enumerate(images, start):
            if image.shape == seen:
                continue
            try:
                own = self._transform.shape(image.shape)
                if own != (shape or own):
                    raise DataError(
                        f"comes out as {by(own)} (CxHxW), the batch's first as {by(shape)}: "
                        "a batch needs one shape; crop_size, force_color or batch_size: 1 may give it"
                    )
            except DataError as error:
                raise self._examples.error(n, error) from error
            shape, seen = own, image.shape
        return shape
