"""A random number generator without state: the number of an example is its counter."""

from __future__ import annotations

import zlib

import numpy as np


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
