"""Which layers a net has: phase, level and stage rules."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import Problem
from ..layers.context import Phase
from ..schema.caffe_pb2 import LayerParameter, NetParameter, NetState, NetStateRule


def net_state(net: NetParameter, phase: Phase, level: int = 0, stages: Sequence[str] = ()) -> NetState:
    """Return the state to load a net in: phase and level replace the file's, stages add to them."""
    state = NetState(phase=phase, level=level)
    state.stage.extend([*net.state.stage, *stages])
    return state


def included(layer: LayerParameter, state: NetState) -> bool:
    """Return whether a layer belongs to a net in `state`: it meets an include rule, or no exclude rule."""
    if layer.include:
        return any(meets(state, rule) for rule in layer.include)
    return not any(meets(state, rule) for rule in layer.exclude)


def meets(state: NetState, rule: NetStateRule) -> bool:
    """Return whether a state meets all that a rule asks."""
    stages = set(state.stage)
    return (
        (not rule.HasField("phase") or rule.phase == state.phase)
        and (not rule.HasField("min_level") or state.level >= rule.min_level)
        and (not rule.HasField("max_level") or state.level <= rule.max_level)
        and stages.issuperset(rule.stage)
        and stages.isdisjoint(rule.not_stage)
    )


def rule_problems(layer: LayerParameter) -> list[Problem]:
    """Return a problem if a layer has both include and exclude rules."""
    if layer.include and layer.exclude:
        return [
            Problem(
                "specify either include rules or exclude rules, not both",
                layer=layer.name,
                layer_type=layer.type,
            )
        ]
    return []
