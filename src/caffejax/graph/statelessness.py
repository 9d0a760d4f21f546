"""Statelessness and randomness of nets and layers, found by tracing their forward functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..layers import Traced
from ..layers.dispatch import forward
from .graph import Graph, Layer


def is_stateless(graph: Graph) -> bool:
    """Return whether a forward pass never changes the state.

    A BatchNorm layer changes its statistics, except if it uses them to normalize. The result is False for a net with
    host layers, because they may keep state.
    """
    if graph.has_host_layers:
        return False
    stateful_layers = [
        layer
        for layer in graph.layers
        if isinstance(layer.type.implementation, Traced) and layer.type.implementation.stateful
    ]
    shapes = [tuple(graph.blobs[name] for name in layer.bottoms) for layer in stateful_layers]
    distinct_layers = {(layer.context, bottoms): layer for layer, bottoms in zip(stateful_layers, shapes, strict=True)}
    return not any(_changes_state(layer, bottoms) for (_, bottoms), layer in distinct_layers.items())


def _changes_state(layer: Layer, bottoms: tuple[jax.ShapeDtypeStruct, ...]) -> bool:
    """Return whether a layer's forward function returns a state that differs from its input."""
    by_channel, shapes = layer.type.traits.by_channel, [p.spec.shape for p in layer.all_params]
    if (
        by_channel
        and len(bottoms) == 1 < len(bottoms[0].shape)
        and by_channel.applies(layer.context, shapes, 1, bottoms[0].shape[1])
    ):
        return False  # the layer normalizes by its statistics
    blobs = tuple(jax.ShapeDtypeStruct(p.spec.shape, jnp.float32) for p in layer.all_params)
    is_unchanged: list[bool] = []

    def trace(key: jax.Array, blobs: tuple[Any, ...], bottoms: tuple[Any, ...]) -> Any:
        _, new_state = forward(layer.context.with_key((key, 0)), blobs, bottoms)
        old_state = [b for b, p in zip(blobs, layer.all_params, strict=True) if not p.spec.learnable]
        is_unchanged.extend(n is o for n, o in zip(new_state, old_state, strict=False))
        return new_state

    with layer.locate_errors():
        jax.eval_shape(trace, jax.eval_shape(lambda: jax.random.key(0)), blobs, bottoms)
    return not all(is_unchanged)


def is_random(layer: Layer, bottoms: Sequence[Any]) -> bool:
    """Return whether a layer uses random numbers in its phase.

    Args:
        layer: the layer. A user's host layer is assumed to be deterministic.
        bottoms: shapes and dtypes of its bottoms; for a host layer, arrays.
    """
    if layer.type.is_input or (layer.type.on_host and layer.type.instance is not None):
        return False
    recorder = _RecordingKey((jax.random.key(0), 0))
    context = layer.context.with_key(recorder)
    if layer.type.on_host:
        forward(context, [np.zeros(p.spec.shape, np.float32) for p in layer.all_params], bottoms)
    else:
        params = [jax.ShapeDtypeStruct(p.spec.shape, np.float32) for p in layer.all_params]
        jax.eval_shape(lambda *arrays: forward(context, *arrays), params, bottoms)
    return recorder.used


class _RecordingKey(tuple[Any, ...]):
    """A placeholder for a layer's base key that records whether the layer uses it."""

    used = False

    def __iter__(self) -> Any:
        self.used = True
        return super().__iter__()
