"""Initial values of params and state, from the net's definition or from fillers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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


def _make_initializer(
    graph: Graph, key: jax.Array | None, dtype: Any, shardings: Mapping[str, Any]
) -> Callable[[Param], jax.Array]:
    """Return a function that returns the initial value of a param; see `make_initial_param`.

    `shardings` is a tree like params. One compiled program creates the shards of all params that `shardings` splits
    over several devices.
    """
    target_shardings = {p.slot: shardings.get(p.slot.layer, {}).get(p.slot.name) for p in graph.variables}
    sharded_params = [
        p
        for p in graph.variables
        if not (target_shardings[p.slot] is None or target_shardings[p.slot].is_fully_replicated)
    ]
    sharded_arrays: dict[Slot, jax.Array] = {}
    if sharded_params:

        def make_sharded(data: Any) -> list[jax.Array]:
            return [
                make_initial_param(graph, p, jax.random.wrap_key_data(data, impl=impl), dtype) for p in sharded_params
            ]

        assert key is not None
        data, impl = np.asarray(jax.random.key_data(key)), jax.random.key_impl(key)  # equal in all processes
        arrays = jax.jit(make_sharded, out_shardings=[target_shardings[p.slot] for p in sharded_params])(data)
        sharded_arrays = {p.slot: array for p, array in zip(sharded_params, arrays, strict=True)}
    return lambda p: sharded_arrays[p.slot] if p.slot in sharded_arrays else make_initial_param(graph, p, key, dtype)


def make_initial_param(graph: Graph, param: Param, key: jax.Array | None, dtype: Any) -> jax.Array:
    """Return the initial value of a param. A random value depends on the key, the layer's name and the param's index.

    Raises:
        LayerError: if the blobs in the layer's definition do not fit the layer, or its filler is invalid.
    """
    layer = graph.layer(param.slot.layer)
    with layer.locate_errors():
        if layer.definition.layer.blobs:
            return jnp.asarray(_param_from_definition(layer, param), dtype)
        if param.spec.value is not None:
            return jnp.asarray(param.spec.value, dtype)
        param_key = None
        if is_random(param.spec.filler):  # most are not random, and creating a key takes time
            assert key is not None
            param_key = jax.random.fold_in(fold_in_name(key, param.slot.layer), param.index)
        return fill(param.spec.filler, param_key, param.spec.shape, dtype)


def _param_from_definition(layer: Layer, param: Param) -> Array:
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


def make_host_variables(graph: Graph, arrays: Mapping[Slot, Array]) -> Variables:
    """Return params and state as NumPy arrays, without starting JAX.

    A blob that is not in `arrays` has the value in the layer's definition, or is zero.

    Args:
        graph: the net's graph.
        arrays: float32 arrays by slot.

    Raises:
        LayerError: if the blobs in a layer's definition do not fit the layer.
    """

    def get_array(param: Param) -> Any:
        if param.slot in arrays:
            return arrays[param.slot]
        layer = graph.layer(param.slot.layer)
        if layer.definition.layer.blobs:
            with layer.locate_errors():
                return _param_from_definition(layer, param)
        value = np.zeros(param.spec.shape) if param.spec.value is None else param.spec.value
        return np.asarray(value, np.float32)

    return Variables(*graph.map_variables(get_array))


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
    make_param = _make_initializer(graph, key, dtype, shardings)

    def get_initial(param: Param) -> jax.Array:
        return existing_arrays[param.slot] if param.slot in existing_arrays else make_param(param)

    return Variables(*graph.map_variables(get_initial))
