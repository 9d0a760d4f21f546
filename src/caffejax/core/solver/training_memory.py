"""The check that training fits into memory, by an estimate that allocates and compiles nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax

from ...base.config import NetConfig
from ...base.errors import GraphError, Problem, SolverError
from ...base.host_memory import get_device_memory, get_free_memory
from ...base.human_readable import format_bytes
from ..graph import Graph
from ..graph.element_counts import count_elements
from ..graph.reshape import with_batch
from ..program.interpreter import PassInputs
from ..program.net import Net
from ..program.rematerialize import choose_remat_groups
from .reporting import log

KEY_SHAPE = jax.eval_shape(jax.random.key, 0)
# the measured memory was 0.7 to 1.1 times the estimate, so a net that is refused does not fit
_MARGIN = 1.5
_NO_REMEDY = "neither a smaller batch, recomputation nor bfloat16 would make it fit"
_MAX_BYTES_PER_ELEMENT = 8 * 4  # bytes for each element of params and tops: an upper bound of the memory for training


def check_memory(net: Net, device: jax.Device, memory_limit: int | None, rebuild: Callable[[NetConfig], Net]) -> None:
    """Check that training fits into free memory, and log a warning if it may not fit.

    Nets with layers on the host and nets without a loss are not checked.

    Args:
        net: the train net.
        device: the device to train on.
        memory_limit: the user's limit in bytes, which replaces the free memory, or None. With `remat="auto"`, the limit
            is only a target, and the check uses the larger of the limit and the free memory.
        rebuild: a function that takes a `NetConfig` and builds the net with it.

    Raises:
        SolverError: if training takes over 1.5 times the free memory. The message suggests changes with which training
            would fit.
    """
    graph, config = net.graph, net.config
    if net.has_host_layers or not any(graph.loss_weights):
        return
    capacity = get_device_memory(device) or get_free_memory()
    if memory_limit is not None:
        capacity = max(capacity, memory_limit) if config.remat == "auto" else memory_limit
    if _MAX_BYTES_PER_ELEMENT * sum(count_elements(graph)) < capacity:
        return
    limit = config.memory_limit if config.remat == "auto" else None
    required_bytes = _estimate_memory(net, limit)
    if required_bytes <= capacity:
        return
    source = "memory_limit allows" if capacity == memory_limit else "are free"
    message = (
        f"training takes about {format_bytes(required_bytes)}, {format_bytes(required_bytes - capacity)} more than the "
        f"{format_bytes(capacity)} that {source}"
    )
    if required_bytes <= _MARGIN * capacity:
        log.warning("%s; training may run out of memory", message)
        return
    remedies = "; ".join(_find_remedies(net, capacity, rebuild)) or _NO_REMEDY
    hint = "" if capacity == memory_limit else "; if there is more memory, set --memory_limit=SIZE"
    raise SolverError(Problem(f"{message}; {remedies}{hint}", file=graph.file))


def _estimate_memory(net: Net, limit: int | None, batch: int | None = None) -> int:
    """Estimate the bytes that training takes, with rematerialization to reach a limit, or without it if it is None."""
    graph = net.graph if batch is None else with_batch(net.graph, batch)
    inputs = make_pass_inputs(net, graph)
    memory = choose_remat_groups(net.layer_schedule, inputs, sys.maxsize if limit is None else limit)
    return memory.peak_without_remat if limit is None else memory.peak


def _find_remedies(net: Net, capacity: int, rebuild: Callable[[NetConfig], Net]) -> Iterator[str]:
    """Yield a description of each change that makes training fit, or if none is sufficient, of all of them together."""
    config, single_change_fits = net.config, False
    changes: list[tuple[str, Net, int | None]] = []
    if config.remat == "none":
        changes.append(("--remat=auto", net, capacity))
    if config.precision != "bfloat16":
        limit = capacity if config.remat == "auto" else None
        changes.append(("--precision=bfloat16", rebuild(replace(config, precision="bfloat16")), limit))
    for flag, changed_net, limit in changes:
        if (required_bytes := _estimate_memory(changed_net, limit)) <= capacity:
            single_change_fits = True
            yield f"{flag} would fit ({format_bytes(required_bytes)})"
    if smaller_batch := _find_smaller_batch(net, capacity, capacity if config.remat == "auto" else None):
        single_change_fits = True
        yield f"a batch of {smaller_batch[0]} would fit ({format_bytes(smaller_batch[1])})"
    if changes and not single_change_fits:
        flags, smallest_net = " ".join(flag for flag, _, _ in changes), changes[-1][1]
        if smaller_batch := _find_smaller_batch(smallest_net, capacity, capacity):
            yield f"{flags} with a batch of {smaller_batch[0]} would fit ({format_bytes(smaller_batch[1])})"


def _find_smaller_batch(net: Net, capacity: int, limit: int | None) -> tuple[int, int] | None:
    batch = min((net.graph.blobs[name].shape[0] for name in net.input_names if net.graph.blobs[name].shape), default=0)
    while (batch := batch // 2) > 0:
        try:
            required_bytes = _estimate_memory(net, limit, batch)
        except GraphError:
            return None  # the net's shapes do not allow this batch
        if required_bytes <= capacity:
            return batch, required_bytes
    return None


def make_pass_inputs(net: Net, graph: Graph) -> PassInputs:
    """Return the shapes of the params, state and inputs of a pass of a net, for the input shapes of a graph."""
    params, state = jax.eval_shape(net.init, KEY_SHAPE)
    inputs: Any = {name: graph.blobs[name] for name in net.input_names}
    return PassInputs(params, state, inputs, KEY_SHAPE, {})
