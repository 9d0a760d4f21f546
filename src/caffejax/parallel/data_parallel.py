"""Data parallelism: a pass on each device of a mesh with a separate batch, and gradients summed over all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from ..kernels.vma import vary, varying
from .mesh import DATA

Passes = Callable[[Any, Any, Any, jax.Array], tuple[Any, Any, jax.Array, Any]]

_EACH, _SECOND, _ALL = PartitionSpec(DATA), PartitionSpec(None, DATA), PartitionSpec()


def data_parallel(passes: Passes, mesh: Mesh, *, in_bfloat16: bool = False) -> Passes:
    """Make `passes(params, state, batches, key)` of one device's batches a function of all devices'.

    It returns gradients, new state, the loss and outputs. Outputs are two dictionaries: those of each device, and those
    that are the same on all. The state and the former have a first axis more, of the devices, and batches a second,
    after that of the passes. The net's `axis_name` must be `DATA`: then the loss is the same on
    all devices, and gradients of it, added up, are those of the joined batch. Each device has random numbers of its
    own. What devices do along other axes of the mesh is left to XLA.

    With `in_bfloat16` each device rounds its gradients of several axes to bfloat16, so that half of the bytes go over
    the links. They come back so. It means nothing where the mesh has other axes.
    """
    # XLA ends a process on CPUs that is to add up bfloat16 over some of a mesh's axes
    in_bfloat16 = in_bfloat16 and set(mesh.axis_names) == {DATA}
    if mesh.shape[DATA] == 1:  # one batch, which all devices compute together

        def of_all(params: Any, state: Any, batches: Any, key: jax.Array) -> Any:
            grads, state, loss, outputs = passes(params, _of_one(state, 0), _of_one(batches, 1), key)
            return grads, jax.tree.map(lambda x: x[None], state), loss, ({}, outputs)

        return of_all

    def of_one(params: Any, state: Any, batches: Any, key: jax.Array) -> Any:
        key = jax.random.fold_in(key, jax.lax.axis_index(DATA))
        # made to differ at once, params have gradients that are added up once, after all passes
        grads, state, loss, outputs = passes(_vary(params), _of_one(state, 0), _of_one(batches, 1), key)
        same = {name: x for name, x in outputs.items() if DATA not in varying(jax.typeof(x))}
        own = {name: x for name, x in outputs.items() if name not in same}
        state, own = jax.tree.map(lambda x: x[None], (_vary(state), own))
        return jax.lax.psum(_narrow(grads) if in_bfloat16 else grads, DATA), state, loss, (own, same)

    return jax.shard_map(
        of_one,
        mesh=mesh,
        in_specs=(_ALL, _EACH, _SECOND, _ALL),
        out_specs=(_ALL, _EACH, _ALL, (_EACH, _ALL)),
        axis_names={DATA},
    )


def _narrow(grads: Any) -> Any:
    return jax.tree.map(lambda x: x.astype(jnp.bfloat16) if x.ndim > 1 and x.dtype == jnp.float32 else x, grads)


def _vary(tree: Any) -> Any:
    return jax.tree.map(lambda x: vary(x, frozenset((DATA,))), tree)


def _of_one(tree: Any, axis: int) -> Any:
    return jax.tree.map(lambda x: x.squeeze(axis), tree)
