"""The mesh of devices: each row takes a batch, and the devices of a row shard large weights."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Format, Layout
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

from ..errors import CaffejaxError
from ..options import MESH_AXES, Share

DATA, MODEL = MESH_AXES


def is_first() -> bool:
    """Return whether this process is the first, which writes files and logs."""
    return jax.process_index() == 0


def make_mesh(devices: Sequence[jax.Device], model: int = 1) -> Mesh:
    """Arrange devices in rows of `model` devices, ordered by process.

    The axes are `DATA` and, if `model` is greater than 1, `MODEL`.

    Raises:
        CaffejaxError: if the number of devices is not a multiple of `model`, a device is named twice, or a process has
            no device in the mesh.
    """
    if model < 1 or len(devices) % model:
        raise CaffejaxError(f"{len(devices)} devices cannot be arranged in rows of {model} that share weights")
    if len(set(devices)) < len(devices):
        raise CaffejaxError("a device is named twice; each can take one batch")
    missing = sorted(set(range(jax.process_count())) - {d.process_index for d in devices})
    if missing:
        raise CaffejaxError(f"process {missing[0]} has none of the {len(devices)} devices; give each process a device")
    ordered = sorted(devices, key=lambda d: (d.process_index, d.id))
    names = (DATA, MODEL) if model > 1 else (DATA,)
    shape = (-1, model) if model > 1 else (-1,)
    return Mesh(np.array(ordered).reshape(shape), names, axis_types=(AxisType.Auto,) * len(names))


@functools.cache
def local_share(mesh: Mesh) -> Share:
    """Return the rows of the mesh in which this process has devices: it reads their batches."""
    rows = mesh.devices.reshape(mesh.shape[DATA], -1)
    local = [i for i, row in enumerate(rows) if any(d.process_index == jax.process_index() for d in row)]
    return Share(local[0], len(local), len(rows))


_LARGE = 2**16  # elements; gathering a smaller array costs more time than sharding saves memory


def param_shardings(params: Any, mesh: Mesh, *axes: str) -> Any:
    """Return shardings of params, or of a tree of the same structure.

    Arrays of at least 65,536 elements are sharded over the named axes of the mesh, if the mesh has them. Each is
    sharded along its first axis that divides evenly; this is usually the axis of outputs, so that the order of sums
    over inputs does not change. Arrays without such an axis, and vectors such as biases, are replicated.
    """
    names = [name for name in axes if name in mesh.shape]
    return jax.tree.map(lambda x: NamedSharding(mesh, _spec(x.shape, mesh, names)), params)


def _spec(shape: Sequence[int], mesh: Mesh, names: Sequence[str]) -> PartitionSpec:
    mesh_axes: dict[int, str] = {}
    for name in names if math.prod(shape) >= _LARGE else ():
        even = (i for i, n in enumerate(shape) if i not in mesh_axes and n % mesh.shape[name] == 0 and len(shape) > 1)
        if (axis := next(even, None)) is not None:
            mesh_axes[axis] = name
    return PartitionSpec(*(mesh_axes.get(i) for i in range(len(shape))))


ShardingOrFormat = Sharding | Format
"""The sharding of an array, or its sharding and memory layout."""

# float32 tiles by platform; arrays report the same tiles, so that the layout of a state does not change between steps
_TILES = {"tpu": ((8, 128),)}
_LANES = 128


def tpu_conv_layout(x: Any, sharding: Sharding) -> ShardingOrFormat:
    """Return the sharding of an array, with the tiled layout of a TPU's convolutions if it is a large 1x1 weight.

    By default, a TPU stores weights (outputs, inputs, 1, 1) in tiles of one row, and each step would convert weights
    and the optimizer's history to the tiles of convolutions and back. Outputs are the minor axis, as in the gradients,
    unless only the inputs fill whole tiles.

    Args:
        x: the array, or its shape and dtype; float32 weights qualify.
        sharding: its sharding.
    """
    devices: set[Any] = sharding.device_set
    (platform, *others) = {d.platform for d in devices}
    if others or platform not in _TILES or x.dtype != jnp.float32 or len(x.shape) < 3 or math.prod(x.shape[2:]) > 1:
        return sharding
    outputs, inputs, *ones = sharding.shard_shape(x.shape)
    if min(outputs, inputs) < _LANES:
        return sharding
    last = (0, 1) if outputs % _LANES and not inputs % _LANES else (1, 0)
    return Format(Layout((*range(2, 2 + len(ones)), *last), _TILES[platform]), sharding)


def sharding_of(where: ShardingOrFormat) -> Sharding:
    """Return the sharding without a layout."""
    if isinstance(where, Sharding):
        return where
    assert where.sharding is not None
    return where.sharding


def with_layout(array: Any, where: ShardingOrFormat) -> jax.Array:
    """Return an array, which has the requested sharding, in the requested layout."""
    has_layout = isinstance(where, Sharding) or array.format.layout == where.layout
    result: jax.Array = array if has_layout else jax.device_put(array, where)
    return result
