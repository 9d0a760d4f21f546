"""Check that the layers of a net fit into memory, before arrays are allocated."""

from __future__ import annotations

from typing import Any

import jax

from ...base.errors import GraphError, raise_if_any
from ...base.host_memory import find_memory_problem, get_device_memory, get_total_memory
from ...base.human_readable import format_bytes
from ..graph import Graph
from ..graph.element_counts import count_layer_elements


def check_layers_fit(graph: Graph, shardings: Any = None) -> None:
    """Check that each layer by itself fits into the memory of the device that runs it.

    Args:
        graph: the net's graph.
        shardings: a tree like params. If it splits params over n devices, the memory of n devices is available.

    Raises:
        GraphError: if layers do not fit. The message names each with its size, and the available memory.
    """
    devices = max((len(s.device_set) for s in jax.tree.leaves(shardings) if not s.is_fully_replicated), default=1)
    largest_memory = max(get_total_memory(), get_device_memory(jax.devices()[0]) or 0)
    available, problems = largest_memory * devices, []
    for layer in graph.layers:
        parameters, _, activation_bytes = count_layer_elements(layer, graph)
        parameter_bytes = 4 * parameters  # float32
        if parameter_bytes + activation_bytes <= available:
            continue
        top_shapes = (graph.blobs[top].shape for top in layer.tops)
        shapes = ", ".join(map(str, (*(p.spec.shape for p in layer.params), *top_shapes)))
        purpose = f"{format_bytes(parameter_bytes)} of params and {format_bytes(activation_bytes)} of tops ({shapes})"
        remedy = "check the sizes of the layer and its inputs"
        if problem := find_memory_problem(parameter_bytes + activation_bytes, purpose, remedy, available):
            problems.append(layer.make_problem(problem))
    raise_if_any(GraphError, problems)
