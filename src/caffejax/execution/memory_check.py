"""Whether there is room for a net's layers, before anything is allocated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax

from ..errors import GraphError, Problem
from ..graph import Graph
from ..host_memory import device_memory, memory
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


def _problems(graph: Graph, room: int) -> Iterator[Problem]:
    for layer in graph.layers:
        found = layer_summary(layer, graph, count=False)
        if found.parameter_bytes + found.activation_bytes > room:
            shapes = ", ".join(map(str, (*found.param_shapes, *found.top_shapes)))
            sizes = [in_words(n) for n in (found.parameter_bytes, found.activation_bytes, room)]
            yield layer.problem(
                f"takes {sizes[0]} for its params and {sizes[1]} for its tops ({shapes}), and there are {sizes[2]} in "
                "all: is one of its sizes, or of its inputs', a mistake?"
            )


def _room() -> int:
    """Return the bytes of the largest device, or of the machine."""
    return max(memory(), device_memory(jax.devices()[0]) or 0)
