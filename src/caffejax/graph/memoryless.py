"""Whether a forward pass of a net leaves anything to the next."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..layers import Traced
from ..layers.calling import forward
from .model import Graph, Layer


def is_memoryless(graph: Graph) -> bool:
    """Return whether every forward pass leaves state as it was, and no layer runs on the host, which may keep anything.

    BatchNorm, for one, changes its statistics unless it normalises by them.
    """
    if graph.has_host_layers:
        return False
    stateful = [layer for layer in graph.layers if isinstance(layer.type.runs, Traced) and layer.type.runs.stateful]
    shapes = [tuple(graph.blobs[name] for name in layer.bottoms) for layer in stateful]
    alike = {(layer.context, bottoms): layer for layer, bottoms in zip(stateful, shapes, strict=True)}
    return not any(_changes_state(layer, bottoms) for (_, bottoms), layer in alike.items())


def _changes_state(layer: Layer, bottoms: tuple[jax.ShapeDtypeStruct, ...]) -> bool:
    """Return whether what a layer gives for its state is anything but what it was given."""
    known, shapes = layer.type.facts.by_channel, [p.spec.shape for p in layer.owned]
    if (
        known
        and len(bottoms) == 1 < len(bottoms[0].shape)
        and known.holds(layer.context, shapes, 1, bottoms[0].shape[1])
    ):
        return False  # it normalizes by its statistics
    blobs = tuple(jax.ShapeDtypeStruct(p.spec.shape, jnp.float32) for p in layer.owned)
    kept: list[bool] = []

    def traced(key: jax.Array, blobs: tuple[Any, ...], bottoms: tuple[Any, ...]) -> Any:
        _, new = forward(layer.context.with_key((key, 0)), blobs, bottoms)
        old = [b for b, p in zip(blobs, layer.owned, strict=True) if not p.spec.learnable]
        kept.extend(n is o for n, o in zip(new, old, strict=False))
        return new

    with layer.located():
        jax.eval_shape(traced, jax.eval_shape(lambda: jax.random.key(0)), blobs, bottoms)
    return not all(kept)
