"""Params before training: what the net's definition holds, or what fillers make."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ..errors import LayerError
from ..graph import Graph, Layer, Param
from ..layers.context import name_key
from ..layers.fillers import fill, is_random
from ..schema.blobs import Array, decode_blob


def initial_param(graph: Graph, param: Param, key: jax.Array, dtype: Any) -> jax.Array:
    """Make the first value of a param; a random one from the key, the layer's name and the param's index.

    Raises:
        LayerError: if the layer's definition holds other blobs than it needs, or its filler cannot work.
    """
    layer = graph.layer(param.slot.layer)
    with layer.located():
        if layer.site.layer.blobs:
            return jnp.asarray(_defined_param(layer, param), dtype)
        if param.spec.value is not None:
            return jnp.asarray(param.spec.value, dtype)
        own_key = None
        if is_random(param.spec.filler):  # most are not, and a key costs time
            own_key = jax.random.fold_in(name_key(key, param.slot.layer), param.slot.index)
        return fill(param.spec.filler, own_key, param.spec.shape, dtype)


def _defined_param(layer: Layer, param: Param) -> Array:
    blobs = layer.site.layer.blobs
    if len(blobs) != len(layer.params):
        raise LayerError(f"its definition holds {len(blobs)} blobs, the layer has {len(layer.params)}")
    array = decode_blob(memoryview(blobs[param.slot.index].SerializeToString()))
    if math.prod(array.shape) != math.prod(param.spec.shape):
        raise LayerError(f"blob {param.slot.index} in its definition is {array.shape}, the layer's {param.spec.shape}")
    return array.reshape(param.spec.shape)
