"""Arrays as the source of a MemoryData layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ...base.errors import DataError, raise_if_any
from ...base.human_readable import format_shape
from ..layers.position_values import decode_count
from .data_layer import float32_top


class ArraySource(Iterator[tuple[np.ndarray, ...]]):
    """Batches of arrays in memory, in order. The first batch follows the last.

    Args:
        data: images (n, C, H, W), converted to float32. Float32 arrays are not copied.
        labels: one number for each image, in any shape.
        batch_size: the number of examples in a batch; n must be a multiple of it, as in Caffe.

    Raises:
        DataError: if the arrays have wrong shapes.
    """

    def __init__(self, data: np.ndarray, labels: np.ndarray, batch_size: int) -> None:
        if batch_size < 1:
            raise DataError(f"memory_data_param.batch_size must be 1 or more, not {batch_size}")
        self._batch_size = batch_size
        self.reset(data, labels)

    def __next__(self) -> tuple[np.ndarray, ...]:
        """Return copies of the next batch: images (N, C, H, W) and labels (N,)."""
        start = self._position % len(self._data)
        batch = np.s_[start : start + self._batch_size]
        self._position += self._batch_size
        return self._data[batch].copy(), self._labels[batch].copy()

    def reset(self, data: np.ndarray, labels: np.ndarray) -> None:
        """Replace the arrays and start from the first batch.

        Raises:
            DataError: if the arrays have wrong shapes. The previous arrays are then kept.
        """
        data, labels = np.asarray(data, np.float32), np.asarray(labels, np.float32)
        problems = []
        if data.ndim != 4:
            problems.append(f"the data is {format_shape(data.shape) or 'a number'}, but must be images (n, C, H, W)")
        elif labels.size != len(data):
            problems.append(f"there are {labels.size} labels for {len(data)} images, but each image needs one label")
        if data.ndim and (not data.size or len(data) % self._batch_size):
            problems.append(f"the number of images, {len(data)}, must be a multiple of batch_size {self._batch_size}")
        raise_if_any(DataError, problems)
        self._data, self._labels = data, labels.reshape(-1)
        self._position = 0
        self.tops = float32_top(self._batch_size, *data.shape[1:]), float32_top(self._batch_size)

    def get_state(self) -> Mapping[str, int]:
        """Return the position of the next batch."""
        return {"examples": self._position}

    def set_state(self, state: Mapping[str, int]) -> None:
        """Restore a position that `get_state` returned."""
        position = decode_count(state, "examples")
        if position % self._batch_size:
            raise DataError(f"position {position} is not a multiple of batch_size {self._batch_size}")
        self._position = position

    def close(self) -> None:
        """Do nothing: no file is open."""
