"""Batches of examples that are changed one by one, which forks' data layers have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from ...core.data.image_batches import Examples, ImageBatches, Label

Result = TypeVar("Result")


class AugmentedBatches(ImageBatches[Label]):
    """The base class of batches whose examples are changed one by one, at random; see `ImageBatches`."""

    def _change_examples(
        self,
        change: Callable[[np.ndarray, Label, np.random.Generator], Result],
        examples: Examples[Label],
        start: int,
    ) -> list[Result]:
        """Return `change(image, label, rng)` for each example. The random numbers depend on the example's number.

        Args:
            change: the function. Its errors name the example.
            examples: the examples of a batch.
            start: the number of the first example.
        """
        results = []
        for i, (n, image, label) in enumerate(zip(examples.indices, examples.images, examples.labels, strict=True)):
            with self._locate_errors(n):
                results.append(change(image, label, self._rng.generator(start + i)))
        return results
