"""Checksums of arrays on the host and on devices. Each device sums over its shard of a sharded array.

Each element's bits are read as an integer and multiplied by an odd weight that depends on the element's index. The
checksum is the sum of the products modulo 2**32. A change of one element changes the checksum, and the checksums of the
shards add up to the checksum of the array.
"""

from __future__ import annotations

import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..parallel import all_gather, wait_on_cpu

_SPREAD = 0x9E3779B1  # odd, so that no two indices have the same weight
_SMALL = 2**20  # elements; up to this size the host is faster than compiling a program


def checksums(arrays: Any) -> dict[str, int]:
    """Return the checksum of each array of a tree, by the array's path in the tree.

    If arrays are sharded over several processes, all these processes must call it together.
    """
    flat = jax.tree_util.tree_leaves_with_path(arrays)
    sums = {jax.tree_util.keystr(path): _checksum(array) for path, array in flat}  # computed by devices in parallel
    return {path: int(number) for path, number in sums.items()}


def old_checksums(arrays: Any) -> dict[str, int]:
    """Return the CRC-32 checksum of each array, as older checkpoints store it, by the array's path in the tree.

    Each sharded array is gathered; all processes must call it together.
    """
    flat = jax.tree_util.tree_leaves_with_path(arrays)
    return {jax.tree_util.keystr(path): zlib.crc32(_bytes(np.asarray(all_gather(array)))) for path, array in flat}


def _checksum(array: Any) -> Any:
    if isinstance(array, jax.Array):
        if array.is_fully_replicated:
            array = array.addressable_data(0)
        elif not array.is_fully_addressable or array.size > _SMALL:
            return wait_on_cpu(_sum_on_devices(array))
        if array.size > _SMALL:
            return _sum_on_devices(array)
    return _sum_on_host(np.asarray(array))


def _sum_on_host(array: np.ndarray) -> int:
    size = min(array.dtype.itemsize, 4)
    bits, total = np.frombuffer(_bytes(array), f"u{size}"), 0
    for first in range(0, len(bits), _SMALL):
        part = bits[first : first + _SMALL].astype(np.uint32)
        indices = np.arange(first, first + len(part), dtype=np.uint64).astype(np.uint32)
        total += int(np.sum(part * (indices * np.uint32(_SPREAD) | np.uint32(1)), dtype=np.uint32))
    return total % 2**32


def _bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


@jax.jit
def _sum_on_devices(array: jax.Array) -> jax.Array:
    """Return the checksum of an array, uint32, computed on the devices of the array."""
    size = min(array.dtype.itemsize, 4)
    if array.dtype == bool:
        array = array.astype(jnp.uint8)
    bits = jax.lax.bitcast_convert_type(array, f"uint{8 * size}").astype(jnp.uint32)
    index, stride = jnp.zeros(bits.shape, jnp.uint32), 1
    for axis in reversed(range(bits.ndim)):
        index += jax.lax.broadcasted_iota(jnp.uint32, bits.shape, axis) * np.uint32(stride % 2**32)
        stride *= bits.shape[axis]
    return jnp.sum(bits * (index * np.uint32(_SPREAD) | np.uint32(1)), dtype=jnp.uint32)
