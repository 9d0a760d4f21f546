"""JAX's default random bits, Threefry-2x32, of a few numbers on the host: equal to JAX's, without compiling."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def threefry(key: np.ndarray, first: Any, second: Any) -> np.ndarray:
    """Return the two words of uint32 that Threefry with 20 rounds makes of two words, by a key of two: (2,)."""
    words = np.asarray([first, second], np.uint32)
    keys = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    with np.errstate(over="ignore"):
        words += np.asarray(keys[:2], np.uint32)
        for block in range(5):
            for rotation in _ROTATIONS[block % 2]:
                words[0] += words[1]
                words[1] = (words[1] << np.uint32(rotation) | words[1] >> np.uint32(32 - rotation)) ^ words[0]
            words[0] += keys[(block + 1) % 3]
            words[1] += keys[(block + 2) % 3] + np.uint32(block + 1)
    return words


def folded_bits(key: jax.Array, number: Any) -> int:
    """Return `jax.random.bits(jax.random.fold_in(key, number))` as an int."""
    if str(jax.random.key_impl(key)) != "threefry2x32" or not jax.config.values["jax_threefry_partitionable"]:
        return int(jax.random.bits(jax.random.fold_in(key, number)))
    folded = threefry(np.asarray(jax.random.key_data(key)), 0, number)
    high, low = threefry(folded, 0, 0)
    return int(high ^ low)
