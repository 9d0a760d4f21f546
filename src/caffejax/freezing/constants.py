"""Blobs that are the same whatever the inputs hold, once their shapes are known: SSD's prior boxes, for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..graph import Graph, Layer
from ..layers import Traced
from ..schedule import Given, Trees, compute
from ..schedule.model import part_of

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
    if not layer.type.facts.by_shapes and not known.keys() >= set(layer.bottoms):
        return None
    if (tops := compute_on_host(layer, [known.get(b, _zeros(graph, b)) for b in layer.bottoms])) is not None:
        return tops
    params, state = variables
    before = {b: jnp.asarray(known.get(b, _zeros(graph, b))) for b in layer.bottoms}
    return dict(compute(part_of([layer]), Given(params, state, {}, None, {}), before).values)


def _zeros(graph: Graph, blob: str) -> np.ndarray:
    like = graph.blobs[blob]
    return np.broadcast_to(np.zeros((), like.dtype), like.shape)  # no memory for each of them


def has_host_forward(layer: Layer) -> bool:
    """Return whether a layer can compute on NumPy arrays."""
    runs = layer.type.runs
    return isinstance(runs, Traced) and runs.host_forward is not None and not any(layer.loss_weights)


def compute_on_host(layer: Layer, bottoms: Sequence[Any], blobs: Sequence[Any] = ()) -> Constants | None:
    """Compute a layer's tops on NumPy arrays, or return None if it cannot.

    Args:
        layer: the layer.
        bottoms: its bottoms.
        blobs: its params and state.
    """
    runs = layer.type.runs
    if not has_host_forward(layer) or not isinstance(runs, Traced) or runs.host_forward is None:
        return None
    given = [np.asarray(b) for b in bottoms]
    if any(b.dtype != np.float32 for b in given):
        given = [b.astype(np.float32) for b in given]
    with layer.located():
        own = (tuple(map(np.asarray, blobs)),) if layer.owned else ()
        tops = runs.host_forward(layer.context, *own, *given)
    return dict(zip(layer.tops, tops if isinstance(tops, tuple) else (tops,), strict=True))
