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
    places = [
        (layer.key, param.slot.index)
        for layer in net.graph.layers
        for param in layer.params
        if name is not None and param.owned and not param.spec.learnable
    ]
    own = [array for key, i in places if (array := state[key][i]) is not None]
    if name is None or not any(name in varying(jax.typeof(x)) for x in own):
        return state
    ends = np.cumsum([x.size for x in own])[:-1].tolist()
    parts = jnp.split(jax.lax.pmean(jnp.concatenate([x.ravel() for x in own]), name), ends)
    new = {key: list(arrays) for key, arrays in state.items()}
    for (key, i), x, part in zip(places, own, parts, strict=True):
        new[key][i] = part.reshape(x.shape)
    return {key: tuple(arrays) for key, arrays in new.items()}
