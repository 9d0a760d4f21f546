"""Placement, resharding and gathering of arrays on a device mesh."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Format
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ...base.errors import DataError
from .mesh import DATA, ShardingOrFormat, is_first, local_shard


def replicated_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of an array that is replicated on every device of a mesh."""
    return NamedSharding(mesh, PartitionSpec())


def put_global(tree: Any, shardings: Any) -> Any:
    """Return arrays placed on devices by their shardings. Every process must pass all arrays.

    Args:
        tree: a pytree of arrays.
        shardings: a pytree of shardings or formats of the same structure, or one sharding for all arrays.
    """
    if isinstance(shardings, jax.sharding.Sharding):
        shardings = jax.tree.map(lambda _: shardings, tree)
    return jax.tree.map(_place_array, tree, shardings)


def reshard(tree: Any, shardings: Any) -> Any:
    """Place arrays like `put_global`. Arrays that already have the requested sharding and layout are not copied."""

    def reshard_array(array: Any, target: Any) -> Any:
        sharding: Any = target.sharding if isinstance(target, Format) else target
        is_placed = isinstance(array, jax.Array) and array.sharding.is_equivalent_to(sharding, array.ndim)
        if not is_placed:
            return _place_array(array, target)
        is_in_layout = target is sharding or array.format.layout == target.layout
        return array if is_in_layout else jax.device_put(array, target)

    return jax.tree.map(reshard_array, tree, shardings)


def _place_array(array: Any, target: ShardingOrFormat) -> jax.Array:
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_place_array(jax.random.key_data(array), target))
    is_elsewhere = isinstance(array, jax.Array) and not array.is_fully_addressable
    values = np.asarray(all_gather(array) if is_elsewhere else array)
    # each shard is copied: steps donate their arguments' memory
    global_array = jax.make_array_from_callback(values.shape, target, lambda index: np.array(values[index]))
    return global_array.block_until_ready()  # frees the copies before the next array is placed


def wait_on_cpu(tree: Any) -> Any:
    """Return `tree`. If a CPU simulates several devices, first wait until the arrays of the tree are computed.

    Simulated devices share a few threads, so two programs with collectives can deadlock if they run at the same time.
    """
    arrays = [x for x in jax.tree.leaves(tree) if isinstance(x, jax.Array)]
    if any(d.platform == "cpu" for x in arrays[:1] for d in x.devices()) and jax.local_device_count() > 1:
        jax.block_until_ready(arrays)
    return tree


def all_gather(tree: Any) -> Any:
    """Return the arrays replicated on every device; all processes must call it together.

    Arrays that are replicated already are returned unchanged.
    """
    leaves: list[Any]
    structure: Any
    leaves, structure = jax.tree.flatten(tree)
    sharded_indices = [i for i, x in enumerate(leaves) if _is_sharded(x)]
    if sharded_indices:
        sharded_arrays = [leaves[i] for i in sharded_indices]
        gathered_arrays = _jit_all_gather(sharded_arrays[0].sharding.mesh)(sharded_arrays)
        for i, x in zip(sharded_indices, wait_on_cpu(gathered_arrays), strict=True):
            leaves[i] = x
    return structure.unflatten(leaves)


def gather_to_host(tree: Any) -> Any:
    """Return sharded arrays as NumPy arrays, and replicated arrays unchanged; all processes must call it together.

    Arrays are gathered one at a time, because together they may exceed the memory of a device.
    """
    return jax.tree.map(lambda array: np.array(all_gather(array)) if _is_sharded(array) else array, tree)


def gather_to_first(tree: Any) -> Any:
    """Return arrays as NumPy arrays in the first process, and None in the others; all processes must call it together.

    Later training steps do not overwrite the NumPy arrays. Sharded arrays are gathered one at a time, on the devices if
    several processes have the shards, otherwise on the host.
    """

    def gather_array(array: Any) -> np.ndarray | None:
        full_array = all_gather(array) if _is_sharded(array) and not array.is_fully_addressable else array
        # a view of a CPU's memory, which JAX does not donate while the view exists
        return np.asarray(full_array) if is_first() else None

    return jax.tree.map(gather_array, tree)


def _is_sharded(array: Any) -> bool:
    return isinstance(array, jax.Array) and not array.is_fully_replicated


def first_replica(tree: Any, mesh: Mesh) -> Any:
    """Return `x[0]` of each array `x` of a tree, replicated on every device; all processes must call it together."""
    return wait_on_cpu(_jit_first_replica(mesh)(tree))


@functools.cache
def _jit_all_gather(mesh: Mesh) -> Callable[[Any], Any]:
    return jax.jit(lambda tree: tree, out_shardings=replicated_sharding(mesh))


@functools.cache
def _jit_first_replica(mesh: Mesh) -> Callable[[Any], Any]:
    return jax.jit(lambda tree: jax.tree.map(lambda x: x[0], tree), out_shardings=replicated_sharding(mesh))


def check_shapes(batch: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise `DataError` if the shapes of a batch differ from `shapes`, the shapes of the net's inputs by blob name."""
    for name, array in batch.items():
        if array.shape != shapes[name]:
            raise DataError(
                f"blob '{name}' has shape {array.shape}, not {shapes[name]}: devices that work together need "
                "batches of one shape; set crop_size or new_height and new_width, or run on one device"
            )


def join_batches(mesh: Mesh, batches: Sequence[Mapping[str, np.ndarray]], axis: int) -> dict[str, jax.Array]:
    """Join the batches of all processes into global arrays, sharded along a new axis over the rows of the mesh.

    If the mesh has one row, there is no new axis, and the arrays are replicated.

    Args:
        mesh: the mesh.
        batches: for each row of the mesh in which this process has devices, arrays by blob name.
        axis: the index of the new axis: 1 after an axis of passes, or 2 after axes of steps and passes.
    """
    shard = local_shard(mesh)
    if shard.total == 1:
        return put_global(dict(batches[0]), replicated_sharding(mesh))
    sharding = NamedSharding(mesh, PartitionSpec(*(None,) * axis, DATA))

    def join(*arrays: np.ndarray) -> jax.Array:
        def get_row_batch(index: Any) -> np.ndarray:
            return np.expand_dims(arrays[(index[axis].start or 0) - shard.first], axis)

        shape = (*arrays[0].shape[:axis], shard.total, *arrays[0].shape[axis:])
        return jax.make_array_from_callback(shape, sharding, get_row_batch, dtype=arrays[0].dtype)

    return jax.tree.map(join, *map(dict, batches))
