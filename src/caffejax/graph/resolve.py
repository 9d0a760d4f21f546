"""Resolve a net for one state: which layers it has, which variant of a type each is, splits, and their mistakes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import GraphError, Problem, did_you_mean
from ..layers import LayerContext, Phase, Variants, layer_type, type_of
from ..schema import unknown_settings
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


_PHASES: tuple[Phase, ...] = ("TRAIN", "TEST")


class State(NamedTuple):
    """A state and what to call it."""

    name: str
    message: NetState


def net_states(net: NetParameter) -> Iterator[State]:
    """Yield both phases, without stages and with each stage that the layers' rules name."""
    rules = [rule for layer in net.layer for rule in (*layer.include, *layer.exclude)]
    stages = sorted({stage for rule in rules for stage in (*rule.stage, *rule.not_stage)} - set(net.state.stage))
    for phase in _PHASES:
        yield State(phase, net_state(net, phase))
        for stage in stages:
            yield State(f"{phase}+{stage}", net_state(net, phase, stages=[stage]))


def has_no_data(net: NetParameter, state: NetState) -> bool:
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


_Top = tuple[int, int]  # index of the layer, index of its top
Sources = dict[tuple[int, int], _Top]  # (index of the layer, index of its bottom): the top that it reads
Missing = tuple[int, int, str]  # index of a layer, index of its bottom, the blob that nothing before it produces


def insert_splits(layers: Sequence[LayerParameter], sources: Sources) -> list[tuple[LayerParameter, int | None]]:
    """Copy the layers with splits between them; each with its index among the layers, None for one inserted.

    A loss weight on a blob that others read counts as one more reader, the first.

    Args:
        layers: the net's layers, in order.
        sources: what `find_sources` gave for them; bottoms without a source stay as they are.
    """
    readers: dict[_Top, int] = defaultdict(int)
    for source in sources.values():
        readers[source] += 1
    weights: dict[_Top, float] = {
        (i, j): weight
        for i, layer in enumerate(layers)
        for j, (weight, _) in enumerate(zip(layer.loss_weight, layer.top, strict=False))
        if weight
    }
    for top in weights:
        readers[top] += 1

    served: dict[_Top, int] = defaultdict(int)
    result: list[tuple[LayerParameter, int | None]] = []
    for i, original in enumerate(layers):
        layer = LayerParameter()
        layer.CopyFrom(original)
        for j in range(len(layer.bottom)):
            read = sources.get((i, j))
            if read is not None and readers[read] > 1:
                layer.bottom[j] = _split_blob(layers, read, served[read])
                served[read] += 1
        result.append((layer, i))
        for j in range(len(layer.top)):
            if readers[i, j] > 1:
                result.append((_split(layers, (i, j), readers[i, j], weights.get((i, j), 0)), None))
                if (i, j) in weights:
                    layer.ClearField("loss_weight")
                    served[i, j] += 1
    return result


def find_sources(layers: Sequence[LayerParameter]) -> tuple[Sources, list[Missing]]:
    """Find the top that each bottom reads (the last of that name before it), and the bottoms that read none.

    Of the latter there is the first for each name; later readers of it have no source either.
    """
    latest: dict[str, _Top | None] = {}
    sources: Sources = {}
    missing: list[Missing] = []
    for i, layer in enumerate(layers):
        for j, name in enumerate(layer.bottom):
            if name not in latest:
                missing.append((i, j, name))
                latest[name] = None
            elif (source := latest[name]) is not None:
                sources[i, j] = source
        for j, name in enumerate(layer.top):
            latest[name] = (i, j)
    return sources, missing


def _split_name(layers: Sequence[LayerParameter], top: _Top) -> str:
    layer = layers[top[0]]
    return f"{layer.top[top[1]]}_{layer.name}_{top[1]}_split"


def _split_blob(layers: Sequence[LayerParameter], top: _Top, k: int) -> str:
    return f"{_split_name(layers, top)}_{k}"


def _split(layers: Sequence[LayerParameter], top: _Top, n: int, loss_weight: float) -> LayerParameter:
    split = LayerParameter(name=_split_name(layers, top), type="Split")
    split.bottom.append(layers[top[0]].top[top[1]])
    split.top.extend(_split_blob(layers, top, k) for k in range(n))
    if loss_weight:
        split.loss_weight.extend([loss_weight] + [0] * (n - 1))
    return split


def resolve_variant(
    layer: LayerParameter, place: int, layers: Sequence[LayerParameter], blobs: Mapping[str, Any]
) -> LayerParameter:
    """Return a layer with what its company says of it written into its own fields.

    Args:
        layer: the layer, with splits before it.
        place: its number among the layers.
        layers: the net's layers, without splits.
        blobs: shapes and dtypes of the blobs known so far.

    Raises:
        LayerError: for settings that make no sense, by which a layer would be told apart.
    """
    runs = layer_type(layer.type).implementation
    if not isinstance(runs, Variants) or runs.resolve is None:
        return layer
    read = layers[place].bottom[0] if layers[place].bottom else None
    beside = tuple(other for i, other in enumerate(layers) if i != place and read in other.bottom)
    shapes = tuple(blobs[name].shape if name in blobs else None for name in layer.bottom)
    settled: LayerParameter = runs.resolve(layer, LayerContext(shapes, tuple(layers), beside))
    return settled


def net_problems(net: NetParameter) -> Iterator[Problem]:
    """Yield the settings of the whole net that are not followed."""
    for setting in unknown_settings(net):
        yield Problem(f"setting {setting} of the net is not supported; BVLC Caffe does not have it either")


def type_problems(layer: LayerParameter) -> Iterator[Problem]:
    """Yield that a layer's type is not known, if it names one."""
    try:
        type_of(layer)
    except GraphError as error:
        if layer.type:
            yield Problem(str(error), layer=layer.name)


def layer_problems(layer: LayerParameter) -> Iterator[Problem]:
    """Yield what is wrong with a layer by itself: its type, its counts, its settings."""
    try:
        kind = type_of(layer)
    except GraphError as error:
        yield Problem(str(error), layer=layer.name)
        return
    for message in kind.signature.count_problems(len(layer.bottom), len(layer.top)):
        yield Problem(message, layer=layer.name, layer_type=layer.type)
    if kind.signature.requires_loss_weight and not layer.loss_weight:
        text = (
            f"with {len(layer.bottom)} bottoms it is {kind.docs.origin}'s, which weighs nothing; give it a loss_weight"
        )
        yield Problem(text, layer=layer.name, layer_type=layer.type)
    if layer.softmaxloss_param.ListFields():
        settings = ", ".join(field.name for field, _ in layer.softmaxloss_param.ListFields())
        text = f"setting softmaxloss_param.{settings} (of deeplab) is not supported but for one ignore_label"
        yield Problem(text, layer=layer.name, layer_type=layer.type)
    for message in (m for m in (kind.signature.param, "loss_param") if m and layer.HasField(m)):
        for setting in unknown_settings(getattr(layer, message), kind.signature.fork_settings):
            text = f"setting {message}.{setting} is not supported; BVLC Caffe does not have it either"
            yield Problem(text, layer=layer.name, layer_type=layer.type)
    if layer.propagate_down and len(layer.propagate_down) != len(layer.bottom):
        yield Problem(
            f"propagate_down must be given once per bottom or not at all: {len(layer.propagate_down)} "
            f"for {len(layer.bottom)} bottoms",
            layer=layer.name,
            layer_type=layer.type,
        )


def missing_problems(
    layers: Sequence[LayerParameter], left_out: Sequence[LayerParameter], missing: Sequence[Missing]
) -> Iterator[Problem]:
    """Yield what is wrong with the bottoms that nothing before them produces.

    Those that a layer would produce which is left out, such as the data layer of the other phase, are one problem.

    Args:
        layers: the net's layers in its state.
        left_out: those that it has in other states only.
        missing: the bottoms.
    """
    known: list[str] = []
    seen = 0
    told: dict[str, Problem] = {}
    for i, j, name in missing:
        reader = layers[i]
        for layer in layers[seen:i]:
            known += layer.top
        seen = max(seen, i)
        text = f"unknown bottom blob '{name}' (bottom index {j})"
        later = next((layer.name for layer in layers[i:] if name in layer.top), None)
        other = next((layer.name for layer in left_out if name in layer.top), None)
        if later is not None:
            yield Problem(f"{text}; layer '{later}' produces it only later", layer=reader.name, layer_type=reader.type)
        elif other is None:
            yield Problem(f"{text}{did_you_mean(name, known)}", layer=reader.name, layer_type=reader.type)
        elif other not in told:
            names = [n for _, _, n in missing if any(n in layer.top for layer in left_out if layer.name == other)]
            more = f" and {len(names) - 1} more blobs" if len(names) > 2 else f" and '{names[1]}'" if names[1:] else ""
            text += f": only layer '{other}' produces it{more}, and its rules leave it out here"
            told[other] = Problem(text, layer=reader.name, layer_type=reader.type)
            yield told[other]
