"""The states that a net may be loaded in, and whether it has its data in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..layers import Phase
from ..schema.caffe_pb2 import LayerParameter, NetParameter, NetState
from .rules import included, net_state
from .splits import find_sources

_PHASES: tuple[Phase, ...] = ("TRAIN", "TEST")


class State(NamedTuple):
    """A state and what to call it."""

    name: str
    message: NetState


def states_of(net: NetParameter) -> Iterator[State]:
    """Yield both phases, without stages and with each stage that the layers' rules name."""
    rules = [rule for layer in net.layer for rule in (*layer.include, *layer.exclude)]
    stages = sorted({stage for rule in rules for stage in (*rule.stage, *rule.not_stage)} - set(net.state.stage))
    for phase in _PHASES:
        yield State(phase, net_state(net, phase))
        for stage in stages:
            yield State(f"{phase}+{stage}", net_state(net, phase, stages=[stage]))


def lacks_data(net: NetParameter, state: NetState) -> bool:
    """Return whether there is nothing to run in a state, or what is missing comes from data layers of other states.

    A net for deployment may have its losses still; what these lack are labels.
    """
    layers = [layer for layer in net.layer if included(layer, state)]
    others = [layer for layer in net.layer if not included(layer, state)]
    _, missing = find_sources(layers)
    if missing and all(_judges(layers[i]) for i, _, _ in missing):
        return True
    makers = [[layer for layer in others if name in layer.top] for _, _, name in missing]
    if not all(makers) or not makers:
        return not layers
    return any(not layer.bottom for found in makers for layer in found)


def _judges(layer: LayerParameter) -> bool:
    """Return whether a layer compares with labels, and has rules that say when."""
    return bool(layer.include or layer.exclude) and ("Loss" in layer.type or "Accuracy" in layer.type)
