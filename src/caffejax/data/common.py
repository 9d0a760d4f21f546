"""Random numbers, example order, positions and checks that all data layers share."""

from __future__ import annotations

import zlib
from collections.abc import Container, Mapping
from typing import Any

import jax
import numpy as np

from ..errors import DataError

_MAX_POSITION = 2**62  # examples; more is damage


def encode_position(examples: int) -> dict[str, int]:
    """Return the position after that many examples."""
    return {"examples": examples}


def decode_position(state: Mapping[str, int]) -> int:
    """Return how many examples lie before a position.

    Raises:
        DataError: if this is no position.
    """
    examples = state.get("examples") if isinstance(state, Mapping) else None
    if not isinstance(examples, int) or isinstance(examples, bool) or not 0 <= examples < _MAX_POSITION:
        raise DataError(f"{str(state)[:60]} is not the position of a data source")
    return examples


def dims(shape: tuple[int, ...]) -> str:
    """Format a shape for messages: `(3, 32, 40)` as "3x32x40"."""
    return "x".join(map(str, shape))


def float32_top(*shape: int) -> jax.ShapeDtypeStruct:
    """Return a float32 top of that shape: Caffe's data layers give no other type."""
    return jax.ShapeDtypeStruct(shape, np.float32)


def refuse_unsupported(message: Any, name: str, known: Container[str]) -> None:
    """Check that no field of a parameter message is set but the known ones.

    Raises:
        DataError: naming every other field that is set to anything but its default.
    """
    unsupported = [
        field.name for field, value in message.ListFields() if field.name not in known and value != field.default_value
    ]
    if unsupported:
        raise DataError([f"{name}.{field} is not supported yet" for field in unsupported])


class CounterRng:
    """The random numbers of a data layer, from the seed and the layer's name.

    Example n always gets the same four words, whatever was drawn before, so that reading can start anywhere
    and other layers coming or going change nothing.
    """

    def __init__(self, seed: int, name: str) -> None:
        self._seed = (seed % 2**64, zlib.crc32(name.encode()))

    def words(self, start: int, count: int) -> np.ndarray:
        """Return four random words each for the examples from `start` on: uint64 (count, 4)."""
        # Philox turns a counter into four words; the counter is the example's number.
        stream = np.random.Philox(key=np.array(self._seed, np.uint64), counter=start)
        return np.asarray(stream.random_raw(4 * count)).reshape(count, 4)

    def generator(self, n: int) -> np.random.Generator:
        """Return a generator of as many numbers as one example needs: those of example n, and none of its `words`."""
        return np.random.Generator(np.random.Philox(key=np.array(self._seed, np.uint64), counter=[0, n, 0, 1]))

    def permutation(self, n: int, *where: int) -> np.ndarray:
        """Return an order of 0 ... n-1 for a place (an epoch, a file in it): int64 (n,)."""
        return np.random.default_rng((*self._seed, *where)).permutation(n)

    def below(self, n: int, *where: int) -> int:
        """Return a number from 0 to n-1 for a place."""
        return int(np.random.default_rng((*self._seed, *where)).integers(n))


class IndexSampler:
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
