"""The order in which layers go through the files of a list, and the settings that they share."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np

from ..errors import DataError
from .fields import refuse_unsupported
from .rng import CounterRng


def check_list_param(param: Any, name: str, known: Container[str]) -> None:
    """Check the settings of a layer that reads the files of a list.

    Raises:
        DataError: if they are wrong, or want what is not supported.
    """
    if not param.source:
        raise DataError(f"{name} has no source; name a text file that lists images and labels")
    if param.batch_size < 1:
        raise DataError(f"{name}.batch_size must be 1 or more")
    if bool(param.new_height) != bool(param.new_width):
        raise DataError(f"{name} has only one of new_height and new_width; give both or none")
    refuse_unsupported(param, name, known)


class Order:
    """Which file of a list is example n, round and round; with `shuffle` in an order of its own each round.

    Args:
        count: how many files there are.
        param: has `shuffle` and `rand_skip`.
        rng: decides.

    Raises:
        DataError: if all files are skipped.
    """

    def __init__(self, count: int, param: Any, rng: CounterRng) -> None:
        self._count, self._shuffle, self._rng = count, param.shuffle, rng
        self._skip = rng.below(param.rand_skip) if param.rand_skip else 0
        if self._skip >= count:
            raise DataError(f"rand_skip skips {self._skip} of {count} images; lower it")
        self._orders: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        """Return how many files there are before they come again."""
        return self._count

    def __getitem__(self, n: int) -> int:
        epoch, i = divmod(self._skip + n, self._count)
        return int(self._order(epoch)[i]) if self._shuffle else i

    def _order(self, epoch: int) -> np.ndarray:
        orders = self._orders
        if epoch not in orders:
            # the one before may still be read by another thread
            self._orders = orders = {e: order for e, order in orders.items() if abs(e - epoch) == 1}
            orders[epoch] = self._rng.permutation(self._count, epoch)
        return orders[epoch]
