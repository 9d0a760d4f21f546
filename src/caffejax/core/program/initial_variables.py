"""Initial values of params and state, from the net's definition or from fillers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import LayerError
from ...base.human_readable import format_count
from ...base.variables import Variables
from ..graph import Graph, Layer, Param, Slot
from ..layers.context import fold_in_name
from ..layers.fillers import fill, is_random
from ..schema.blob_proto import Array, decode_blob


def make_initial_param(graph: Graph, param: Param, key: jax.Array | None, dtype: Any) -> jax.Array:
    """Return the initial value of a param. A random value depends on the key, the layer's name and the param's index.

    Raises:
        LayerError: if the blobs in the layer's definition do not fit the layer, or its filler is invalid.
    """
    layer = graph.layer(param.slot.layer)
    with layer.locate_errors():
        if layer.definition.layer.blobs:
            return jnp.asarray(param_from_definition(layer, param), dtype)
        if param.spec.value is not None:
            return jnp.asarray(param.spec.value, dtype)
        param_key = None
        if is_random(param.spec.filler):  # most are not random, and creating a key takes time
            assert key is not None
            param_key = jax.random.fold_in(fold_in_name(key, param.slot.layer), param.index)
        return fill(param.spec.filler, param_key, param.spec.shape, dtype)


def param_from_definition(layer: Layer, param: Param) -> Array:
    """Return a param's value in the field `blobs` of its layer's definition, float32.

    Raises:
        LayerError: if the number of blobs or a shape does not fit the layer.
    """
    blobs = layer.definition.layer.blobs
    if len(blobs) != len(layer.params):
        raise LayerError(
            f"the field 'blobs' of its definition has {format_count(len(blobs), 'array')}, but the layer needs "
            f"{len(layer.params)}"
        )
    try:
        array = decode_blob(memoryview(blobs[param.index].SerializeToString()))
    except ValueError as error:
        raise LayerError(f"blob {param.index} in the field 'blobs' of its definition: {error}") from error
    if math.prod(array.shape) != math.prod(param.spec.shape):
        raise LayerError(
            f"blob {param.index} in the field 'blobs' of its definition has shape {array.shape}, but the layer "
            f"needs {param.spec.shape}"
        )
    return array.reshape(param.spec.shape)


def make_initial_variables(
    graph: Graph,
    key: jax.Array | None,
    dtype: Any,
    shardings: Mapping[str, Any],
    existing_arrays: Mapping[Slot, jax.Array] = {},
) -> Variables:
    """Return initial params and state, like `Net.init`.

    Args:
        graph: the net's graph.
        key: a random key; None if no random value is needed.
        dtype: the dtype of the initial values.
        shardings: see `Net.init`.
        existing_arrays: arrays by slot, which are used instead of initial values.
    """
    sharding_of = {p.slot: shardings.get(p.slot.layer, {}).get(p.slot.name) for p in graph.variables}
    split_params = [p for p in graph.variables if not getattr(sharding_of[p.slot], "is_fully_replicated", True)]
    arrays = dict(existing_arrays)
    if split_params:
        assert key is not None
        data, impl = np.asarray(jax.random.key_data(key)), jax.random.key_impl(key)  # equal in all processes

        def make_shards(data: Any) -> list[jax.Array]:
            key = jax.random.wrap_key_data(data, impl=impl)
            return [make_initial_param(graph, p, key, dtype) for p in split_params]

        # one program creates the shards of all params, so that no device holds a whole one
        created = jax.jit(make_shards, out_shardings=[sharding_of[p.slot] for p in split_params])(data)
        arrays = {p.slot: array for p, array in zip(split_params, created, strict=True)} | arrays

    def get_initial(param: Param) -> jax.Array:
        return arrays[param.slot] if param.slot in arrays else make_initial_param(graph, param, key, dtype)

    return Variables(*graph.map_variables(get_initial))
