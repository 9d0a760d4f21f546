"""Arrays of the whole mesh: made of what each process has, and brought back to where each has all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..errors import DataError
from .mesh import DATA, share_of


def replicated(mesh: Mesh) -> NamedSharding:
    """Return the sharding of what lies on every device as a whole."""
    return NamedSharding(mesh, PartitionSpec())


def place(tree: Any, shardings: Any) -> Any:
    """Place arrays, which every process has, as a tree of shardings says, or one for all."""
    if isinstance(shardings, jax.sharding.Sharding):
        shardings = jax.tree.map(lambda _: shardings, tree)
    return jax.tree.map(_placed, tree, shardings)


def place_like(tree: Any, like: Any) -> Any:
    """Place arrays, which every process has, as others lie."""
    return place(tree, jax.tree.map(lambda array: array.sharding, like))


def _placed(array: Any, sharding: jax.sharding.Sharding) -> jax.Array:
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_placed(jax.random.key_data(array), sharding))
    # a copy: steps reuse the memory of what they are given
    held = np.array(array)
    return jax.make_array_from_callback(held.shape, sharding, lambda index: held[index])


def settled(tree: Any) -> Any:
    """Return what a program of several devices gives; wait for it where those are simulated on a CPU.

    They share a few threads, and programs that are under way at once, with collectives, may wait for each other's.
    """
    arrays = [x for x in jax.tree.leaves(tree) if isinstance(x, jax.Array)]
    if any(d.platform == "cpu" for x in arrays[:1] for d in x.devices()) and jax.local_device_count() > 1:
        jax.block_until_ready(arrays)
    return tree


def whole(tree: Any) -> Any:
    """Return the same arrays such that each device has all of each; those that lie so already as they are.

    All processes must call it together.
    """

    def gathered(array: Any) -> Any:
        if not isinstance(array, jax.Array) or array.is_fully_replicated:
            return array
        assert isinstance(array.sharding, NamedSharding)  # others lie on one device
        gather = jax.jit(lambda x: x, out_shardings=NamedSharding(array.sharding.mesh, PartitionSpec()))
        return settled(gather(array))

    return jax.tree.map(gathered, tree)


def on_one(tree: Any) -> Any:
    """Return arrays that each device has as a whole as they lie on this process's first."""
    return jax.tree.map(lambda x: x.addressable_data(0) if isinstance(x, jax.Array) else x, tree)


def join_batches(mesh: Mesh, own: Sequence[Mapping[str, np.ndarray]], axis: int) -> dict[str, jax.Array]:
    """Make arrays of the whole mesh, with a new axis of the devices' batches, of those that this process has read.

    Args:
        mesh: the mesh.
        own: arrays by blob, for each row of the mesh in which this process has devices.
        axis: where the new axis comes; before it are those that count passes.

    Raises:
        DataError: if the batches differ in their shapes.
    """
    share = share_of(mesh)
    joined: dict[str, jax.Array] = {}
    for name, first in own[0].items():
        shapes = {batch[name].shape[axis:] for batch in own}
        if len(shapes) > 1:
            raise DataError(
                f"blob '{name}' has another shape from device to device, {' and '.join(map(str, sorted(shapes)))}: "
                "devices that train together need batches of one shape; crop_size or new_height and new_width give it"
            )
        sharding = NamedSharding(mesh, PartitionSpec(*(None,) * axis, DATA))

        def piece(index: Any, name: str = name) -> np.ndarray:
            return np.expand_dims(own[(index[axis].start or 0) - share.first][name], axis)

        shape = (*first.shape[:axis], share.of, *first.shape[axis:])
        joined[name] = jax.make_array_from_callback(shape, sharding, piece, dtype=first.dtype)
    return joined
