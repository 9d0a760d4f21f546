"""Data parallelism: each device of a mesh runs passes on different batches, and gradients are summed over devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from ..ops.vma import vary, varying_axes
from .mesh import DATA

Passes = Callable[[Any, Any, Any, jax.Array], tuple[Any, Any, jax.Array, Any]]

_FIRST_AXIS_SPEC, _SECOND_AXIS_SPEC, _REPLICATED_SPEC = PartitionSpec(DATA), PartitionSpec(None, DATA), PartitionSpec()


def data_parallel(passes: Passes, mesh: Mesh, *, sum_in_bfloat16: bool = False) -> Passes:
    """Convert a function of the batches of one device to a function of the batches of all devices.

    The loss is the same on all devices. The gradients are summed over the devices, which gives the gradient of the
    concatenated batch. XLA partitions the work along other axes of the mesh.

    Args:
        passes: a function `passes(params, state, batches, key)` that returns gradients, the new state, the loss and
            outputs. The `axis_name` of its net must be `DATA`.
        mesh: the devices.
        sum_in_bfloat16: whether each device rounds gradients of two or more axes to bfloat16 before the sum, which
            halves the bytes sent between devices. Such gradients are returned in bfloat16. It is ignored if the mesh
            has axes other than `DATA`.

    Returns:
        A function like `passes`, with these differences if the mesh has several rows. State arrays have a new first
        axis, the rows. Batches have a new second axis, the rows; their first axis is the passes. Outputs are a pair of
        dictionaries: blobs that differ between rows, with a new first axis, and blobs that are the same in all rows.
    """
    if mesh.shape[DATA] == 1:  # one batch, which all devices compute together
        return passes
    # on CPUs XLA aborts the process when bfloat16 is summed over only a part of a mesh's axes
    sum_in_bfloat16 = sum_in_bfloat16 and set(mesh.axis_names) == {DATA}

    def run_local_passes(params: Any, state: Any, batches: Any, key: jax.Array) -> Any:
        # params are marked as varying over devices, so that their gradients are summed once, after all passes
        grads, state, loss, outputs = passes(_vary(params), _squeeze(state, 0), _squeeze(batches, 1), key)
        replicated_outputs = {
            name: x
            for name, x in outputs.items()
            if not any(DATA in varying_axes(jax.typeof(leaf)) for leaf in jax.tree.leaves(x))
        }
        varying_outputs = {name: x for name, x in outputs.items() if name not in replicated_outputs}
        state, varying_outputs = jax.tree.map(lambda x: x[None], (_vary(state), varying_outputs))
        if sum_in_bfloat16:
            grads = jax.tree.map(
                lambda x: x.astype(jnp.bfloat16) if x.ndim > 1 and x.dtype == jnp.float32 else x, grads
            )
        return jax.lax.psum(grads, DATA), state, loss, (varying_outputs, replicated_outputs)

    return jax.shard_map(
        run_local_passes,
        mesh=mesh,
        in_specs=(_REPLICATED_SPEC, _FIRST_AXIS_SPEC, _SECOND_AXIS_SPEC, _REPLICATED_SPEC),
        out_specs=(_REPLICATED_SPEC, _FIRST_AXIS_SPEC, _REPLICATED_SPEC, (_FIRST_AXIS_SPEC, _REPLICATED_SPEC)),
        axis_names={DATA},
    )


def _vary(tree: Any) -> Any:
    return jax.tree.map(lambda x: vary(x, frozenset((DATA,))), tree)


def _squeeze(tree: Any, axis: int) -> Any:
    return jax.tree.map(lambda x: x.squeeze(axis), tree)
