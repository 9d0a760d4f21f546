"""Which params, and what update rules remember of them, are cut over the devices of a mesh, and along which axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

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
