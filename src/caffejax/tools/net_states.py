"""The states in which a net is built and shown: phases with stages, and whether the net has data in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..base.errors import GraphError
from ..core.graph.resolve import find_sources, is_included, make_net_state
from ..core.layers import Phase, layer_type
from ..core.schema.caffe_pb2 import LayerParameter, NetParameter, NetState

_PHASES: tuple[Phase, ...] = ("TRAIN", "TEST")


class NamedState(NamedTuple):
    """A net state (phase, level and stages), and its name for messages, such as "TRAIN" or "TEST+deploy"."""

    name: str
    message: NetState


def list_net_states(net: NetParameter) -> Iterator[NamedState]:
    """Yield the states of a net: both phases, each without stages and with each stage that the layers' rules name."""
    rules = [rule for layer in net.layer for rule in (*layer.include, *layer.exclude)]
    stages = sorted({stage for rule in rules for stage in (*rule.stage, *rule.not_stage)} - set(net.state.stage))
    for phase in _PHASES:
        yield NamedState(phase, make_net_state(net, phase))
        for stage in stages:
            yield NamedState(f"{phase}+{stage}", make_net_state(net, phase, stages=[stage]))


def has_no_data(net: NetParameter, state: NetState) -> bool:
    """Return whether a net cannot run in a state because its data layers belong to other states.

    This is the case if the net has no layers in the state, or if a layer reads a blob that only an excluded data layer
    would produce.

    The result is also True for a deployed net that still has losses and therefore lacks labels.
    """
    layers = [layer for layer in net.layer if is_included(layer, state)]
    excluded = [layer for layer in net.layer if not is_included(layer, state)]
    _, missing = find_sources(layers)
    if missing and all(_is_label_of_conditional_loss(layers[i], bottom) for i, bottom, _ in missing):
        return True
    producers = [[layer for layer in excluded if name in layer.top] for _, _, name in missing]
    if not all(producers) or not producers:
        return not layers
    return any(not layer.bottom for layers_of_blob in producers for layer in layers_of_blob)


def _is_label_of_conditional_loss(layer: LayerParameter, bottom: int) -> bool:
    """Return whether a bottom belongs to a loss or metric with include or exclude rules, or has labels of such a layer.

    An unknown type counts as a loss: without its data it is not built, and would only be reported for the phase.
    """
    if not (layer.include or layer.exclude):
        return False
    try:
        named_type = layer_type(layer.type)  # of variants, some of which are a loss by default
    except GraphError:
        return True
    is_scored = named_type.is_loss or named_type.is_metric or bool(layer.loss_weight)
    return is_scored or bottom in named_type.gradient.indices.bottoms
