"""Device mesh for training: each row of devices processes a batch, and the devices of a row shard large weights."""

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

from ...base.config import MESH_AXES, DataShard
from ...base.errors import CaffejaxError

DATA, MODEL = MESH_AXES


def is_first() -> bool:
    """Return whether this is process 0, the process that writes files and logs."""
    return jax.process_index() == 0


def make_mesh(devices: Sequence[jax.Device], row_size: int = 1) -> Mesh:
    """Return a mesh of devices in rows of `row_size` devices, ordered by process.

    The axes are `DATA` and, if `row_size` is greater than 1, `MODEL`.

    Raises:
        CaffejaxError: if the number of devices is not a multiple of `row_size`, a device is named twice, or a process
            has no device in the mesh.
    """
    if row_size < 1 or len(devices) % row_size:
        raise CaffejaxError(
            f"{len(devices)} devices cannot be arranged in equal rows of {row_size} devices that share weights; "
            f"the size of a row must be a divisor of {len(devices)}"
        )
    if len(set(devices)) < len(devices):
        repeated_device = next(d for i, d in enumerate(devices) if d in devices[:i])
        raise CaffejaxError(f"device {repeated_device} is named twice; name each device once")
    missing_processes = sorted(set(range(jax.process_count())) - {d.process_index for d in devices})
    if missing_processes:
        raise CaffejaxError(
            f"process {missing_processes[0]} has none of the {len(devices)} devices; name at least one device of each "
            "process"
        )
    ordered_devices = sorted(devices, key=lambda d: (d.process_index, d.id))
    names = (DATA, MODEL) if row_size > 1 else (DATA,)
    shape = (-1, row_size) if row_size > 1 else (-1,)
    return Mesh(np.array(ordered_devices).reshape(shape), names, axis_types=(AxisType.Auto,) * len(names))


def one_device_mesh(device: jax.Device) -> Mesh:
    """Return a mesh of one device, whose axis is `DATA`. Other processes need none."""
    return Mesh(np.array([device]), (DATA,), axis_types=(AxisType.Auto,))


def first_local_device(mesh: Mesh) -> jax.Device:
    """Return the first device of the mesh that belongs to this process."""
    return next(d for d in mesh.devices.flat if d.process_index == jax.process_index())


@functools.cache
def local_shard(mesh: Mesh) -> DataShard:
    """Return the rows of the mesh whose batches this process reads: the rows in which it has devices."""
    rows = mesh.devices.reshape(mesh.shape[DATA], -1)
    local_rows = [i for i, row in enumerate(rows) if any(d.process_index == jax.process_index() for d in row)]
    return DataShard(local_rows[0], len(local_rows), len(rows))


# elements; for smaller arrays, the memory saved by sharding is not worth the time for gathering
_MIN_SHARDED_SIZE = 2**16


def param_shardings(params: Any, mesh: Mesh, *axes: str) -> Any:
    """Return the sharding of each array of a tree such as a net's parameters.

    Arrays of at least 65,536 elements and two or more axes are sharded over the mesh axes named in `axes`, if the mesh
    has them. A mesh axis shards the first array axis whose length it divides. That is usually the axis of outputs, so
    that sums over inputs keep their order. Other arrays are replicated.
    """
    names = [name for name in axes if name in mesh.shape]
    return jax.tree.map(lambda x: NamedSharding(mesh, _partition_spec(x.shape, mesh, names)), params)


def _partition_spec(shape: Sequence[int], mesh: Mesh, names: Sequence[str]) -> PartitionSpec:
    mesh_axes: dict[int, str] = {}
    for name in names if math.prod(shape) >= _MIN_SHARDED_SIZE else ():
        free_axes = [i for i in range(len(shape)) if i not in mesh_axes and len(shape) > 1]
        divisible_axes = (i for i in free_axes if shape[i] % mesh.shape[name] == 0)
        if (axis := next(divisible_axes, None)) is not None:
            mesh_axes[axis] = name
    return PartitionSpec(*(mesh_axes.get(i) for i in range(len(shape))))


ShardingOrFormat = Sharding | Format
"""The sharding of an array, or its sharding and memory layout."""

# float32 tiles by platform; arrays report the same tiles, so that the layout of a state does not change between steps
_TILES = {"tpu": ((8, 128),)}
_LANES = 128


def tpu_conv_layout(x: Any, sharding: Sharding) -> ShardingOrFormat:
    """Return the sharding of an array. On TPUs, add a faster layout if the array is a large 1x1 convolution weight.

    By default, a TPU stores a weight (outputs, inputs, 1, 1) in tiles of one row. Each step would convert the weight
    and the optimizer's history to the tiles of convolutions and back.
    The returned layout needs no conversion. Its minor axis is the axis of outputs, as in the gradients, or the axis of
    inputs if only the inputs fill whole tiles.

    Args:
        x: the array, or its shape and dtype. Only float32 arrays get a layout.
        sharding: the sharding of the array.
    """
    devices: set[Any] = sharding.device_set
    (platform, *other_platforms) = {d.platform for d in devices}
    is_1x1_weight = x.dtype == jnp.float32 and len(x.shape) >= 3 and math.prod(x.shape[2:]) <= 1
    if other_platforms or platform not in _TILES or not is_1x1_weight:
        return sharding
    outputs, inputs, *kernel = sharding.shard_shape(x.shape)
    if min(outputs, inputs) < _LANES:
        return sharding
    minor_axes = (0, 1) if outputs % _LANES and not inputs % _LANES else (1, 0)
    return Format(Layout((*range(2, 2 + len(kernel)), *minor_axes), _TILES[platform]), sharding)
