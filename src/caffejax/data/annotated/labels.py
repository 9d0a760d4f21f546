"""The label top of AnnotatedData: a row for each object of a batch, and rows of padding after them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

COLUMNS = 8  # image, class, instance, xmin, ymin, xmax, ymax, difficult
PADDING = -1
_RARELY = 4  # standard deviations; how rarely a batch has more boxes than was thought enough


def enough_rows(boxes: Sequence[int], batch_size: int) -> int:
    """Return a number of rows that is enough for nearly all batches, a power of two.

    Args:
        boxes: how many some images have.
        batch_size: how many images make a batch.
    """
    some = list(boxes) or [0]
    wanted = batch_size * np.mean(some) + _RARELY * math.sqrt(batch_size) * np.std(some)
    return _power_of_two(math.ceil(wanted))


def label_rows(objects: Sequence[np.ndarray], least: int) -> np.ndarray:
    """Return the label top: float32 (1, 1, G, 8).

    A net is compiled for each G. So G is `least`, or the first power of two that is enough. Rows that are not needed
    hold -1 only, as in Caffe the one row of a batch without any box, and layers that take labels skip them.

    Args:
        objects: of each image, as `Picture` has them.
        least: how many rows to make at least.
    """
    count = sum(map(len, objects))
    label = np.full((1, 1, max(least, _power_of_two(count)), COLUMNS), PADDING, np.float32)
    if count:
        label[0, 0, :count, 0] = np.repeat(np.arange(len(objects)), [len(o) for o in objects])
        label[0, 0, :count, 1:] = np.concatenate(objects)
    return label


def _power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()
