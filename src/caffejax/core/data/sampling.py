"""Random numbers, example order and positions of data layers."""

from __future__ import annotations

import zlib

import numpy as np

from ...base.errors import DataError


class CounterRng:
    """The random numbers of a data layer, which depend on the seed and the layer's name.

    The numbers of example n do not depend on earlier calls, so reading can start at any example, and adding or removing
    other layers changes nothing.
    """

    def __init__(self, seed: int, name: str) -> None:
        self._seed = (seed % 2**64, zlib.crc32(name.encode()))

    def words(self, start: int, count: int) -> np.ndarray:
        """Return random words, uint64 (count, 4): four for each of `count` examples, beginning with example `start`."""
        # Philox maps a counter, here the number of the example, to four words.
        stream = np.random.Philox(key=np.array(self._seed, np.uint64), counter=start)
        return np.asarray(stream.random_raw(4 * count)).reshape(count, 4)

    def generator(self, n: int) -> np.random.Generator:
        """Return a generator of random numbers for example n, independent of the example's `words`."""
        return np.random.Generator(np.random.Philox(key=np.array(self._seed, np.uint64), counter=[0, n, 0, 1]))

    def permutation(self, n: int, *key: int) -> np.ndarray:
        """Return a permutation of 0 to n - 1, int64 (n,), that is determined by a key such as (epoch, file)."""
        return np.random.default_rng((*self._seed, *key)).permutation(n)

    def random_integer(self, n: int, *key: int) -> int:
        """Return a random integer from 0 to n - 1 that is determined by a key."""
        return int(np.random.default_rng((*self._seed, *key)).integers(n))


class IndexSampler:
    """A map from the number of an example to the index of its file.

    With `shuffle`, each epoch has a different order.

    Args:
        num_files: the number of files.
        rng: the source of the order and of the number of skipped files.
        shuffle: whether the order is random.
        rand_skip: the number below which a random number of files is skipped at the start, or 0.

    Raises:
        DataError: if all files are skipped.
    """

    def __init__(self, num_files: int, rng: CounterRng, *, shuffle: bool, rand_skip: int = 0) -> None:
        self._num_files, self._shuffle, self._rng = num_files, shuffle, rng
        self._num_skipped = rng.random_integer(rand_skip) if rand_skip else 0
        if self._num_skipped >= num_files:
            problem = f"rand_skip skips {self._num_skipped} of {num_files} images"
            raise DataError(f"{problem}; it must be less than {num_files}")
        self._orders: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        """Return the number of files in an epoch."""
        return self._num_files

    def __getitem__(self, n: int) -> int:
        """Return the index of the file of example n."""
        epoch, i = divmod(self._num_skipped + n, self._num_files)
        if not self._shuffle:
            return i
        orders = self._orders
        if epoch not in orders:
            # a different thread may still read the previous epoch
            self._orders = orders = {e: order for e, order in orders.items() if abs(e - epoch) == 1}
            orders[epoch] = self._rng.permutation(self._num_files, epoch)
        return int(orders[epoch][i])
