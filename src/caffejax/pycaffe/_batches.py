"""Any number of examples, cut into batches and put together again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np


class Rows:
    """What batches gave, by name, row after row."""

    def __init__(self, names: Iterable[str]) -> None:
        self._rows: dict[str, list[Any]] = {name: [] for name in names}

    def add(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take the arrays of a batch; a number counts as a row."""
        for name, array in arrays.items():
            self._rows[name].extend(np.atleast_1d(array).copy())

    def cut(self, n: int, size: int) -> dict[str, np.ndarray]:
        """Return arrays without the rows that only filled up the last of the batches of `size` for `n` examples."""
        filled = -(-n // size) * size
        return {name: np.asarray(rows[:n] if len(rows) == filled else rows) for name, rows in self._rows.items()}


def batches(arrays: Mapping[str, Any], size: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield arrays with all examples in batches of `size`; the last is filled up with zeros."""
    if not arrays:
        return
    for start in range(0, len(next(iter(arrays.values()))), size):
        batch = {name: np.asarray(array[start : start + size]) for name, array in arrays.items()}
        yield {name: _filled(array, size) for name, array in batch.items()}


def _filled(array: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([array, np.zeros((size - len(array), *array.shape[1:]), array.dtype)])
