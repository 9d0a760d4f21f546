"""Blobs that are the same whatever the inputs hold, once their shapes are known: SSD's prior boxes, for one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp

from ..graph import Graph, Layer
from ..schedule import Given, Trees, Values, compute
from ..schedule.model import part_of


def without_constants(graph: Graph, variables: Trees) -> tuple[Graph, Values]:
    """Compute what does not depend on the inputs' numbers.

    Returns:
        The graph without the layers that do so, and the blobs that they make.
    """
    known: Values = {}
    layers = []
    for layer in graph.layers:
        found = _constant(graph, layer, variables, known)
        if found is None:
            layers.append(layer)
        else:
            known |= found
    return replace(graph, layers=tuple(layers)), known


def _constant(graph: Graph, layer: Layer, variables: Trees, known: Mapping[str, jax.Array]) -> Values | None:
    """Return a layer's tops if they are always the same."""
    if layer.type.is_fed or layer.type.on_host or layer.carried or not layer.bottoms:
        return None
    if not layer.type.facts.by_shapes and not known.keys() >= set(layer.bottoms):
        return None
    blobs = {name: graph.blobs[name] for name in layer.bottoms}
    before = {name: known.get(name, jnp.zeros(like.shape, like.dtype)) for name, like in blobs.items()}
    params, state = variables
    return compute(part_of([layer]), Given(params, state, {}, None, {}), before).values
