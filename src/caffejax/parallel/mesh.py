"""The mesh that training runs on: each row of devices takes a batch; those of a row cut large weights among them."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

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
