"""Videos that a list names, as examples by number: in which order, with which labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np

from ...errors import DataError
from ..order import Order
from ..pipeline import available_cores

Label = TypeVar("Label")


class ListedVideos(ABC, Generic[Label]):
    """The videos of a list, round and round.

    Args:
        paths: where they lie.
        labels: of each.
        order: which of them is example n.
    """

    def __init__(self, paths: Sequence[str], labels: Sequence[Label], order: Order) -> None:
        self._paths, self._labels, self._order = paths, labels, order

    @abstractmethod
    def _read(self, n: int, i: int) -> np.ndarray:
        """Read example n, which is of video i."""

    def __len__(self) -> int:
        """Return how many videos there are before they come again."""
        return len(self._order)

    def count_threads(self) -> int:
        """Return how many threads can read faster than one: decoding runs outside of Python's lock."""
        return available_cores()

    def read_range(self, start: int, count: int) -> tuple[Sequence[np.ndarray], Sequence[Label]]:
        """Return that many examples and their labels."""
        numbers = [(n, self._order[n]) for n in range(start, start + count)]
        return [self._read(n, i) for n, i in numbers], [self._labels[i] for _, i in numbers]

    def error(self, n: int, error: DataError) -> DataError:
        """Return the error with the video's path."""
        return DataError(f"video '{self._paths[self._order[n]]}' {error}")

    def close(self) -> None:
        """Do nothing: no file is open between examples."""
