"""Check that training fits into memory, by an estimate that allocates and compiles nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import jax

from ..debugging.memory_report import net_sizes, training_memory
from ..errors import GraphError, Problem, SolverError
from ..host_memory import device_memory, free_memory
from ..human_readable import in_words
from ..net import Net
from ..options import Run
from .reporting import log

# XLA's measured use was 0.7 to 1.1 of the estimate, so a net that is refused really does not fit
_MARGIN = 1.5
_NOTHING = "neither a smaller batch, recomputation nor bfloat16 would make it fit"
_UPPER_BOUND = 8 * 4  # bytes for each element of params and tops: an upper bound of the memory for training


def check_memory(net: Net, device: jax.Device, memory_limit: int | None, rebuild: Callable[[Run], Net]) -> None:
    """Check that training fits into free memory; log a warning if it may not fit.

    Nets with layers on the host and nets without a loss are not checked.

    Args:
        net: the train net.
        device: the device to train on.
        memory_limit: the user's limit in bytes, or None. It replaces the free memory. With rematerialization it is a
            target, and the check uses the larger of the limit and the free memory.
        rebuild: a function that builds the net with other run settings.

    Raises:
        SolverError: if training takes over 1.5 times the free memory. The message names changes that would fit.
    """
    graph, run = net.graph, net.run
    if net.has_host_layers or not any(graph.losses):
        return
    room = device_memory(device) or free_memory()
    if memory_limit is not None:
        room = max(room, memory_limit) if run.remat == "auto" else memory_limit
    if _UPPER_BOUND * sum(net_sizes(graph)) < room:
        return
    limit = run.memory_limit if run.remat == "auto" else None
    takes = _takes(net, limit)
    if takes <= room:
        return
    source = "memory_limit gives" if room == memory_limit else "are free"
    message = (
        f"training takes about {in_words(takes)}, {in_words(takes - room)} more than the {in_words(room)} that {source}"
    )
    if takes <= _MARGIN * room:
        log.warning("%s: it may fail", message)
        return
    remedies = "; ".join(_remedies(net, room, rebuild)) or _NOTHING
    escape = "" if room == memory_limit else "; --memory_limit=SIZE says that there is more"
    raise SolverError(Problem(f"{message}; {remedies}{escape}", file=graph.file))


def _takes(net: Net, limit: int | None, batch: int | None = None) -> int:
    memory = training_memory(net, batch) if limit is None else training_memory(net, batch, limit)
    return memory.peak_without_remat if limit is None else memory.peak


def _remedies(net: Net, room: int, rebuild: Callable[[Run], Net]) -> Iterator[str]:
    """Yield each single change with which training fits, or all changes together if no single change is enough."""
    run, none = net.run, True
    changes: list[tuple[str, Net, int | None]] = []
    if run.remat == "none":
        changes.append(("--remat=auto", net, room))
    if run.precision != "bfloat16":
        limit = room if run.remat == "auto" else None
        changes.append(("--precision=bfloat16", rebuild(replace(run, precision="bfloat16")), limit))
    for flag, changed, limit in changes:
        if (takes := _takes(changed, limit)) <= room:
            none = False
            yield f"{flag} would fit ({in_words(takes)})"
    if smaller := _smaller_batch(net, room, room if run.remat == "auto" else None):
        none = False
        yield f"a batch of {smaller[0]} would fit ({in_words(smaller[1])})"
    if none and changes:
        flags, smallest = " ".join(flag for flag, _, _ in changes), changes[-1][1]
        if smaller := _smaller_batch(smallest, room, room):
            yield f"{flags} with a batch of {smaller[0]} would fit ({in_words(smaller[1])})"


def _smaller_batch(net: Net, room: int, limit: int | None) -> tuple[int, int] | None:
    """Halve the batch size until training fits, and return `(batch size, bytes)`; None if no batch size fits."""
    batch = min((net.graph.blobs[name].shape[0] for name in net.input_names if net.graph.blobs[name].shape), default=0)
    while (batch := batch // 2) > 0:
        try:
            takes = _takes(net, limit, batch)
        except GraphError:
            return None  # the net's shapes do not allow this batch
        if takes <= room:
            return batch, takes
    return None
