"""Which array lies where in a graph: params and state by the slots that own them."""

from __future__ import annotations

from ..graph import Graph, Slot

Slots = dict[str, tuple[Slot | None, ...]]


def slot_trees(graph: Graph) -> tuple[Slots, Slots]:
    """Return where params and state are: trees like those of `Net.init`, of slots."""
    params, state = {}, {}
    for layer in graph.layers:
        own = [p.slot if p.owned and p.spec.learnable else None for p in layer.params]
        other = [p.slot if p.owned and not p.spec.learnable else None for p in layer.params]
        other += [p.slot for p in layer.carried]
        if any(own):
            params[layer.key] = tuple(own)
        if any(other):
            state[layer.key] = tuple(other)
    return params, state
