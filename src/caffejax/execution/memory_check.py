"""Whether there is room for a net's layers, before anything is allocated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax

from ..errors import GraphError, Problem
from ..graph import Graph
from ..host_memory import device_memory, memory, memory_problem
from ..human_readable import in_words
from ..summary import layer_sizes


def check_room(graph: Graph, shardings: Any = None) -> None:
    """Check that each layer by itself fits into the memory of the device that runs it.

    With `shardings` of its params, into that of the devices that they are cut over.

    Raises:
        GraphError: naming all layers that do not, with what they take and what there is.
    """
    devices = max((len(s.device_set) for s in jax.tree.leaves(shardings) if not s.is_fully_replicated), default=1)
    problems = list(_problems(graph, _room() * devices))
    if problems:
        raise GraphError(problems)


def _problems(graph: Graph, available: int) -> Iterator[Problem]:
    for layer in graph.layers:
        parameters, _, activation_bytes = layer_sizes(layer, graph)
        parameter_bytes = 4 * parameters  # float32
        if parameter_bytes + activation_bytes <= available:
            continue
        top_shapes = (graph.blobs[top].shape for top in layer.tops)
        shapes = ", ".join(map(str, (*(p.spec.shape for p in layer.params), *top_shapes)))
        purpose = f"{in_words(parameter_bytes)} of params and {in_words(activation_bytes)} of tops ({shapes})"
        remedy = "check the layer's sizes and its inputs'"
        if problem := memory_problem(parameter_bytes + activation_bytes, purpose, remedy, available):
            yield layer.problem(problem)


def _room() -> int:
    """Return the bytes of the largest device, or of the machine."""
    return max(memory(), device_memory(jax.devices()[0]) or 0)
