"""The mesh that training runs on: each row of devices takes a batch; those of a row cut large weights among them."""

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
    """Return whether this process is the one that writes files and logs."""
    return jax.process_index() == 0


def mesh_of(devices: Sequence[jax.Device], model: int = 1) -> Mesh:
    """Arrange devices in rows of `model`, process by process; the axes are `DATA` and, if rows are longer, `MODEL`.

    Raises:
        CaffejaxError: if rows do not come out even, a device is named twice, or some process has none among these.
    """
    if model < 1 or len(devices) % model:
        raise CaffejaxError(f"{len(devices)} devices cannot be arranged in rows of {model} that share weights")
    if len(set(devices)) < len(devices):
        raise CaffejaxError("a device is named twice; each can take one batch")
    missing = sorted(set(range(jax.process_count())) - {d.process_index for d in devices})
    if missing:
        raise CaffejaxError(f"process {missing[0]} has none of the {len(devices)} devices; give each process some")
    ordered = sorted(devices, key=lambda d: (d.process_index, d.id))
    names = (DATA, MODEL) if model > 1 else (DATA,)
    shape = (-1, model) if model > 1 else (-1,)
    return Mesh(np.array(ordered).reshape(shape), names, axis_types=(AxisType.Auto,) * len(names))


@functools.cache
def share_of(mesh: Mesh) -> Share:
    """Return which batches this process reads: those of the rows in which it has devices."""
    rows = mesh.devices.reshape(mesh.shape[DATA], -1)
    own = [i for i, row in enumerate(rows) if any(d.process_index == jax.process_index() for d in row)]
    return Share(own[0], len(own), len(rows))


_LARGE = 2**16  # numbers; of smaller arrays, gathering takes longer than the memory is worth


def cut_params(params: Any, mesh: Mesh, *axes: str) -> Any:
    """Return shardings of params, or of a tree alike: large ones are cut over these axes of the mesh, if it has them.

    Each is cut along the first of its axes that comes out even, which is that of the outputs where that does: then no
    sum over inputs changes its order. One that has none, and vectors, such as biases, stay whole.
    """
    names = [name for name in axes if name in mesh.shape]
    return jax.tree.map(lambda x: NamedSharding(mesh, _spec(x.shape, mesh, names)), params)


def _spec(shape: Sequence[int], mesh: Mesh, names: Sequence[str]) -> PartitionSpec:
    cut: dict[int, str] = {}
    for name in names if math.prod(shape) >= _LARGE else ():
        even = (i for i, n in enumerate(shape) if i not in cut and n % mesh.shape[name] == 0 and len(shape) > 1)
        if (axis := next(even, None)) is not None:
            cut[axis] = name
    return PartitionSpec(*(cut.get(i) for i in range(len(shape))))


Place = Sharding | Format
"""Where an array lies, and perhaps in which layout."""

# of float32, by platform; arrays there say the same of themselves, so that steps find a state as they left it
_TILES = {"tpu": ((8, 128),)}
_LANES = 128


def as_convolutions_want(x: Any, sharding: Sharding) -> Place:
    """Return where an array like `x` lies: if it is a large 1x1 weight, in tiles as a TPU's convolutions want them.

    Without that, such weights (outputs, inputs, 1, 1) lie there in tiles of one row. Each step then brings weights and
    what the update rule remembers into other tiles, and both back. Outputs come last, as in the gradients, unless only
    inputs fill the tiles.
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


def sharding_of(where: Place) -> Sharding:
    """Return where an array lies, in whichever layout."""
    if isinstance(where, Sharding):
        return where
    assert where.sharding is not None
    return where.sharding


def in_layout(array: Any, where: Place) -> jax.Array:
    """Return an array that lies there already in the layout that is wanted there."""
    lies_so = isinstance(where, Sharding) or array.format.layout == where.layout
    found: jax.Array = array if lies_so else jax.device_put(array, where)
    return found
