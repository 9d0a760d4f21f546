"""Running statistics of devices whose batches count as one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ..kernels.varying import varying
from ..variables import Params
from .net import Net


def same_statistics(net: Net, state: Params) -> Params:
    """Return running statistics that are the same on all devices, with `sync_bn` under `jax.shard_map`: their means.

    They are so anyway, but for what was trained without it before. All come by one collective, where each layer would
    need one of its own to know. What layers carry from one pass to the next stays each device's.
    """
    name = net.run.axis_name if net.run.sync_bn else None
    slots = [p.slot for p in net.graph.learnable if not p.spec.learnable]
    arrays = [state[layer][index] for layer, index in slots]
    if name is None or not any(name in varying(jax.typeof(x)) for x in arrays):
        return state
    ends = np.cumsum([x.size for x in arrays])[:-1].tolist()
    parts = jnp.split(jax.lax.pmean(jnp.concatenate([x.ravel() for x in arrays]), name), ends)
    new = {layer: dict(blobs) for layer, blobs in state.items()}
    for (layer, index), x, part in zip(slots, arrays, parts, strict=True):
        new[layer][index] = part.reshape(x.shape)
    return new
