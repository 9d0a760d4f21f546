"""Blobs that are the same whatever the inputs hold, once their shapes are known: SSD's prior boxes, for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..execution import PassInputs, Trees, compute
from ..execution.schedule import part_of
from ..graph import Graph, Layer
from ..layers import Traced

Constants = dict[str, Any]  # arrays of NumPy's or JAX's


def without_constants(graph: Graph, variables: Trees) -> tuple[Graph, Constants]:
    """Compute what does not depend on the inputs' numbers.

    Returns:
        The graph without the layers that do so, and the blobs that they make.
    """
    known: Constants = {}
    layers = []
    for layer in graph.layers:
        tops = _constant_tops(graph, layer, variables, known)
        if tops is None:
            layers.append(layer)
        else:
            known |= tops
    return replace(graph, layers=tuple(layers)), known


def _constant_tops(graph: Graph, layer: Layer, variables: Trees, known: Mapping[str, Any]) -> Constants | None:
    """Return a layer's tops if they are always the same."""
    if layer.type.is_fed or layer.type.on_host or layer.carried or not layer.bottoms:
        return None
    if not layer.type.traits.depends_only_on_shapes and not known.keys() >= set(layer.bottoms):
        return None
    if (compute_tops := host_function(layer)) is not None:
        return compute_tops([known.get(b, _zeros(graph, b)) for b in layer.bottoms])
    params, state = variables
    before = {b: jnp.asarray(known.get(b, _zeros(graph, b))) for b in layer.bottoms}
    return dict(compute(part_of([layer]), PassInputs(params, state, {}, None, {}), before).values)


def _zeros(graph: Graph, blob: str) -> np.ndarray:
    like = graph.blobs[blob]
    return np.broadcast_to(np.zeros((), like.dtype), like.shape)  # no memory for each of them


def host_function(layer: Layer) -> Callable[[Sequence[Any]], Constants] | None:
    """Return a function of a layer's bottoms that computes its tops, by name, with NumPy; None where there is none."""
    runs = layer.type.implementation
    if not isinstance(runs, Traced) or runs.host_forward is None or layer.all_params or any(layer.loss_weights):
        return None
    forward = runs.host_forward

    def compute_tops(bottoms: Sequence[Any]) -> Constants:
        with layer.located():
            tops = forward(layer.context, *(np.asarray(b, np.float32) for b in bottoms))
        return dict(zip(layer.tops, tops if isinstance(tops, tuple) else (tops,), strict=True))

    return compute_tops
