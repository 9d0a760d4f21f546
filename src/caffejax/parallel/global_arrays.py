"""Global arrays on a mesh: made from the parts of each process, and gathered again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..errors import DataError
from .mesh import DATA, Place, in_layout, is_first, sharding_of, share_of


def replicated(mesh: Mesh) -> NamedSharding:
    """Return the sharding of what lies on every device as a whole."""
    return NamedSharding(mesh, PartitionSpec())


def place(tree: Any, shardings: Any) -> Any:
    """Place arrays, which every process has, as a tree of shardings or formats says, or one sharding for all."""
    if isinstance(shardings, jax.sharding.Sharding):
        shardings = jax.tree.map(lambda _: shardings, tree)
    return jax.tree.map(_placed, tree, shardings)


def moved(tree: Any, shardings: Any) -> Any:
    """Do as `place`, but for arrays that lie so already: these are returned as they are."""

    def found(array: Any, where: Place) -> jax.Array:
        lies_so = isinstance(array, jax.Array) and array.sharding.is_equivalent_to(sharding_of(where), array.ndim)
        return in_layout(array, where) if lies_so else _placed(array, where)

    return jax.tree.map(found, tree, shardings)


def _placed(array: Any, where: Place) -> jax.Array:
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_placed(jax.random.key_data(array), where))
    held = np.asarray(array)
    # a copy, of the part only: steps reuse the memory of what they are given
    found = jax.make_array_from_callback(held.shape, where, lambda index: np.array(held[index]))
    return found.block_until_ready()  # till then the copy is there as well


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
    leaves: list[Any]
    structure: Any
    leaves, structure = jax.tree.flatten(tree)
    cut = [i for i, x in enumerate(leaves) if _is_cut(x)]
    if cut:
        found = _gather(leaves[cut[0]].sharding.mesh)([leaves[i] for i in cut])
        for i, x in zip(cut, settled(found), strict=True):
            leaves[i] = x
    return structure.unflatten(leaves)


def whole_on_host(tree: Any) -> Any:
    """Return arrays that are cut as NumPy's, put together one at a time: all may be more than a device holds.

    Those that each device has as a whole stay as they are. All processes must call it together.
    """
    return jax.tree.map(lambda array: np.array(whole(array)) if _is_cut(array) else array, tree)


def whole_on_first(tree: Any) -> Any:
    """Return arrays as NumPy's in the first process, None in others; later steps leave them alone.

    Those that are cut are put together one at a time: in the host's memory, or, of several processes, on a device. All
    processes must call it together.
    """

    def found(array: Any) -> np.ndarray | None:
        together = whole(array) if _is_cut(array) and not array.is_fully_addressable else array
        return np.asarray(together) if is_first() else None  # of a CPU's memory no copy: JAX does not reuse it then

    return jax.tree.map(found, tree)


def _is_cut(array: Any) -> bool:
    return isinstance(array, jax.Array) and not array.is_fully_replicated


def first_rows(tree: Any, mesh: Mesh) -> Any:
    """Return the first along the first axis of each array, whole on each device; all processes call it together."""
    return settled(_first(mesh)(tree))


@functools.cache
def _gather(mesh: Mesh) -> Callable[[Any], Any]:
    return jax.jit(lambda tree: tree, out_shardings=replicated(mesh))


@functools.cache
def _first(mesh: Mesh) -> Callable[[Any], Any]:
    return jax.jit(lambda tree: jax.tree.map(lambda x: x[0], tree), out_shardings=replicated(mesh))


def on_one(tree: Any) -> Any:
    """Return arrays that each device has as a whole as they lie on this process's first."""
    return jax.tree.map(lambda x: x.addressable_data(0) if isinstance(x, jax.Array) else x, tree)


def check_shapes(batch: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise `DataError` for a batch of other shapes than these, which no other device would have."""
    for name, array in batch.items():
        if array.shape != shapes[name]:
            raise DataError(
                f"blob '{name}' comes as {array.shape}, not {shapes[name]}: devices that work together need batches of "
                "one shape, which crop_size or new_height and new_width give; or run on one device"
            )


def join_batches(mesh: Mesh, own: Sequence[Mapping[str, np.ndarray]], axis: int) -> dict[str, jax.Array]:
    """Make arrays of the whole mesh, with a new axis of the devices' batches, of those that this process has read.

    Args:
        mesh: the mesh.
        own: arrays by blob, for each row of the mesh in which this process has devices.
        axis: where the new axis comes; before it are those that count passes.
    """
    share = share_of(mesh)
    joined: dict[str, jax.Array] = {}
    for name, first in own[0].items():
        sharding = NamedSharding(mesh, PartitionSpec(*(None,) * axis, DATA))

        def piece(index: Any, name: str = name) -> np.ndarray:
            return np.expand_dims(own[(index[axis].start or 0) - share.first][name], axis)

        shape = (*first.shape[:axis], share.of, *first.shape[axis:])
        joined[name] = jax.make_array_from_callback(shape, sharding, piece, dtype=first.dtype)
    return joined
