"""Whether there is memory to train a net in, by an estimate for which nothing is allocated or compiled."""

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

# what XLA takes was 0.7 to 1.1 of the estimate: what is refused takes more than there is
_MARGIN = 1.5
_NOTHING = "neither a smaller batch, recomputation nor bfloat16 would make it fit"
_SURE = 8 * 4  # bytes for each number in params and tops: more than training ever takes


def check_memory(net: Net, device: jax.Device, given: int | None, rebuilt: Callable[[Run], Net]) -> None:
    """Check that training fits into the memory that is free, before any is taken.

    Args:
        net: the train net; those with layers on the host are not looked at.
        device: where it will run.
        given: the `memory_limit` that the user gave, which counts in place of what is free. With remat it is what to
            aim at, and need not be reached.
        rebuilt: makes the net anew, to compute in another way.

    Raises:
        SolverError: if it takes more than one and a half times as much, with what would fit.
    """
    graph, run = net.graph, net.run
    if net.has_host_layers or not any(graph.losses):
        return
    room = device_memory(device) or free_memory()
    if given is not None:
        room = max(room, given) if run.remat == "auto" else given
    if _SURE * sum(net_sizes(graph)) < room:
        return
    limit = run.memory_limit if run.remat == "auto" else None
    takes = _takes(net, limit)
    if takes <= room:
        return
    source = "memory_limit gives" if room == given else "are free"
    found = (
        f"training takes about {in_words(takes)}, {in_words(takes - room)} more than the {in_words(room)} that {source}"
    )
    if takes <= _MARGIN * room:
        log.warning("%s: it may fail", found)
        return
    remedies = "; ".join(_remedies(net, room, rebuilt)) or _NOTHING
    escape = "" if room == given else "; --memory_limit=SIZE says that there is more"
    raise SolverError(Problem(f"{found}; {remedies}{escape}", file=graph.file))


def _takes(net: Net, limit: int | None, batch: int | None = None) -> int:
    found = training_memory(net, batch) if limit is None else training_memory(net, batch, limit)
    return found.peak_without_remat if limit is None else found.peak


def _remedies(net: Net, room: int, rebuilt: Callable[[Run], Net]) -> Iterator[str]:
    """Yield what would fit: each change by itself; all together if none does."""
    run, none = net.run, True
    tried: list[tuple[str, Net, int | None]] = []
    if run.remat == "none":
        tried.append(("--remat=auto", net, room))
    if run.precision != "bfloat16":
        limit = room if run.remat == "auto" else None
        tried.append(("--precision=bfloat16", rebuilt(replace(run, precision="bfloat16")), limit))
    for flag, changed, limit in tried:
        if (takes := _takes(changed, limit)) <= room:
            none = False
            yield f"{flag} would fit ({in_words(takes)})"
    if found := _smaller_batch(net, room, room if run.remat == "auto" else None):
        none = False
        yield f"a batch of {found[0]} would fit ({in_words(found[1])})"
    if none and tried:
        flags, smallest = " ".join(flag for flag, _, _ in tried), tried[-1][1]
        if found := _smaller_batch(smallest, room, room):
            yield f"{flags} with a batch of {found[0]} would fit ({in_words(found[1])})"


def _smaller_batch(net: Net, room: int, limit: int | None) -> tuple[int, int] | None:
    """Return the largest half, quarter and so on of the batch that fits, and what that takes."""
    batch = min((net.graph.blobs[name].shape[0] for name in net.input_names if net.graph.blobs[name].shape), default=0)
    while (batch := batch // 2) > 0:
        try:
            takes = _takes(net, limit, batch)
        except GraphError:
            return None  # a batch that does not go with the net's shapes
        if takes <= room:
            return batch, takes
    return None
