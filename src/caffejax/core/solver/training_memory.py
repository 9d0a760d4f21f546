"""The memory that training takes, and the layers to rematerialize for a limit. No layer is run."""

from __future__ import annotations

import sys
from typing import Any

import jax

from ..graph import Graph
from ..graph.reshape import with_batch
from ..program import PassInputs
from ..program.net import Net
from ..program.rematerialize import RematGroups, choose_remat_groups

KEY_SHAPE = jax.eval_shape(jax.random.key, 0)


def estimate_training_memory(net: Net, batch: int | None = None, limit: int = sys.maxsize) -> RematGroups:
    """Estimate the memory of training, and choose layers to rematerialize if the memory exceeds a limit.

    Args:
        net: a net without host layers.
        batch: the batch size, or None for the net's batch size.
        limit: the bytes that training may take.

    Raises:
        GraphError: if the net does not support this batch size.
    """
    graph = net.graph if batch is None else with_batch(net.graph, batch)
    return choose_remat_groups(net.layer_schedule, make_pass_inputs(net, graph), limit)


def make_pass_inputs(net: Net, graph: Graph) -> PassInputs:
    """Return the shapes of the params, state and inputs of a pass of a net, for the input shapes of a graph."""
    params, state = jax.eval_shape(net.init, KEY_SHAPE)
    inputs: Any = {name: graph.blobs[name] for name in net.input_names}
    return PassInputs(params, state, inputs, KEY_SHAPE, {})
