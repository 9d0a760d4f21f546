"""Whether there is room for a net's layers, before anything is allocated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax

from ..errors import GraphError, Problem
from ..graph import Graph
from ..host_memory import device_memory, memory, memory_problem
from ..human_readable import in_words
from ..summary import layer_summary


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
        summary = layer_summary(layer, graph, count=False)
        shapes = ", ".join(map(str, (*summary.param_shapes, *summary.top_shapes)))
        sizes = [in_words(n) for n in (summary.parameter_bytes, summary.activation_bytes)]
        purpose = f"{sizes[0]} of params and {sizes[1]} of tops ({shapes})"
        remedy = "check the layer's sizes and its inputs'"
        total = summary.parameter_bytes + summary.activation_bytes
        if problem := memory_problem(total, purpose, remedy, available):
            yield layer.problem(problem)


def _room() -> int:
    """Return the bytes of the largest device, or of the machine."""
    return max(memory(), device_memory(jax.devices()[0]) or 0)
