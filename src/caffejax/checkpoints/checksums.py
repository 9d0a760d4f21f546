"""Checksums of arrays wherever they lie: of a cut array every device adds up its own part.

A checksum is the sum of an array's bits, number by number, each times an odd weight that its place gives, modulo
2**32: any one number that changes changes it, and sums of parts add up to that of the whole.
"""

from __future__ import annotations

import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..parallel import settled, whole

_SPREAD = 0x9E3779B1  # odd, so that no two places have one weight
_SMALL = 2**20  # numbers; up to here the host is done before a program would be compiled


def checksums(arrays: Any) -> dict[str, int]:
    """Return the checksum of each array of a tree by its path; all processes that have parts of it call it together."""
    flat = jax.tree_util.tree_leaves_with_path(arrays)
    found = {jax.tree_util.keystr(path): _checksum(array) for path, array in flat}
    return {path: int(number) for path, number in found.items()}


def old_checksums(arrays: Any) -> dict[str, int]:
    """Return the checksums that checkpoints had before; all processes call it together.

    Each array has to be brought together for them.
    """
    flat = jax.tree_util.tree_leaves_with_path(arrays)
    return {jax.tree_util.keystr(path): zlib.crc32(_bytes(np.asarray(whole(array)))) for path, array in flat}


def _checksum(array: Any) -> Any:
    if isinstance(array, jax.Array):
        if array.is_fully_replicated:
            array = array.addressable_data(0)
        elif not array.is_fully_addressable or array.size > _SMALL:
            return settled(_of_devices(array))
        if array.size > _SMALL:
            return _of_devices(array)
    return _of_host(np.asarray(array))


def _of_host(array: np.ndarray) -> int:
    size = min(array.dtype.itemsize, 4)
    bits, total = np.frombuffer(_bytes(array), f"u{size}"), 0
    for first in range(0, len(bits), _SMALL):
        part = bits[first : first + _SMALL].astype(np.uint32)
        places = np.arange(first, first + len(part), dtype=np.uint64).astype(np.uint32)
        total += int(np.sum(part * (places * np.uint32(_SPREAD) | np.uint32(1)), dtype=np.uint32))
    return total % 2**32


def _bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


@jax.jit
def _of_devices(array: jax.Array) -> jax.Array:
    """Do as `_of_host`, where the array lies."""
    size = min(array.dtype.itemsize, 4)
    if array.dtype == bool:
        array = array.astype(jnp.uint8)
    bits = jax.lax.bitcast_convert_type(array, f"uint{8 * size}").astype(jnp.uint32)
    place, stride = jnp.zeros(bits.shape, jnp.uint32), 1
    for axis in reversed(range(bits.ndim)):
        place += jax.lax.broadcasted_iota(jnp.uint32, bits.shape, axis) * np.uint32(stride % 2**32)
        stride *= bits.shape[axis]
    return jnp.sum(bits * (place * np.uint32(_SPREAD) | np.uint32(1)), dtype=jnp.uint32)
