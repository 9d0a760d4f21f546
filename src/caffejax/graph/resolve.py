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
    """Return the state of a net: phase and level replace those of the file, stages are added to them."""
    state = NetState(phase=phase, level=level)
    state.stage.extend([*net.state.stage, *stages])
    return state


def included(layer: LayerParameter, state: NetState) -> bool:
    """Return whether a layer belongs to a net in `state`: it matches an include rule, or no exclude rule."""
    if layer.include:
        return any(meets(state, rule) for rule in layer.include)
    return not any(meets(state, rule) for rule in layer.exclude)


def meets(state: NetState, rule: NetStateRule) -> bool:
    """Return whether a state satisfies all conditions of a rule."""
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
    """A state and its name for messages."""

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
    """Return whether a net has no layers in a state, or lacks blobs that data layers of other states produce.

    This includes nets for deployment that still have losses, which lack labels.
    """
    layers = [layer for layer in net.layer if included(layer, state)]
    others = [layer for layer in net.layer if not included(layer, state)]
    _, missing = find_sources(layers)
    if missing and all(_is_conditional_loss(layers[i]) for i, _, _ in missing):
        return True
    makers = [[layer for layer in others if name in layer.top] for _, _, name in missing]
    if not all(makers) or not makers:
        return not layers
    return any(not layer.bottom for producers in makers for layer in producers)


def _is_conditional_loss(layer: LayerParameter) -> bool:
    """Return whether a layer is a loss or metric with include or exclude rules."""
    return bool(layer.include or layer.exclude) and ("Loss" in layer.type or "Accuracy" in layer.type)


_Top = tuple[int, int]  # index of the layer, index of its top
Sources = dict[tuple[int, int], _Top]  # (index of the layer, index of its bottom): the top that it reads
Missing = tuple[int, int, str]  # index of a layer, index of its bottom, the blob that nothing before it produces


def insert_splits(layers: Sequence[LayerParameter], sources: Sources) -> list[tuple[LayerParameter, int | None]]:
    """Return copies of the layers, with splits inserted; each with its index in `layers`, or None for a split.

    A loss weight on a blob that others read counts as one more reader, the first.

    Args:
        layers: the net's layers, in order.
        sources: the result of `find_sources`; bottoms without a source are not changed.
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
    """Return the top that each bottom reads (the last one of its name before it), and the bottoms without a source.

    Only the first bottom of each missing name is listed; later readers have no source either.
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
    """Return a copy of the layer whose ambiguous fields are filled in from neighbouring layers.

    Types that several forks call by one name are told apart this way if the layer's settings do not suffice.

    Args:
        layer: the layer, reading from inserted splits.
        place: its index in `layers`.
        layers: the net's layers, without splits.
        blobs: shapes and dtypes of the blobs before it.

    Raises:
        LayerError: if settings that distinguish the variants are invalid.
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
    """Yield a problem for each unsupported setting of the net itself."""
    for setting in unknown_settings(net):
        yield Problem(f"setting {setting} of the net is not supported; BVLC Caffe does not have it either")


def type_problems(layer: LayerParameter) -> Iterator[Problem]:
    """Yield a problem if a layer names an unknown type."""
    try:
        type_of(layer)
    except GraphError as error:
        if layer.type:
            yield Problem(str(error), layer=layer.name)


def layer_problems(layer: LayerParameter) -> Iterator[Problem]:
    """Yield the problems of a layer by itself: its type, numbers of bottoms and tops, settings."""
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
    """Yield a problem for each bottom that no layer before it produces.

    Bottoms that one excluded layer would produce, such as the data layer of the other phase, are reported as one.

    Args:
        layers: the net's layers in its state.
        left_out: layers that the net has in other states only.
        missing: the bottoms, from `find_sources`.
    """
    names_before: list[str] = []
    n_read = 0
    reported: dict[str, Problem] = {}
    for i, j, name in missing:
        reader = layers[i]
        for layer in layers[n_read:i]:
            names_before += layer.top
        n_read = max(n_read, i)
        text = f"unknown bottom blob '{name}' (bottom index {j})"
        later = next((layer.name for layer in layers[i:] if name in layer.top), None)
        other = next((layer.name for layer in left_out if name in layer.top), None)
        if later is not None:
            yield Problem(f"{text}; layer '{later}' produces it only later", layer=reader.name, layer_type=reader.type)
        elif other is None:
            yield Problem(f"{text}{did_you_mean(name, names_before)}", layer=reader.name, layer_type=reader.type)
        elif other not in reported:
            names = [n for _, _, n in missing if any(n in layer.top for layer in left_out if layer.name == other)]
            more = f" and {len(names) - 1} more blobs" if len(names) > 2 else f" and '{names[1]}'" if names[1:] else ""
            text += f": only layer '{other}' produces it{more}, and its rules leave it out here"
            reported[other] = Problem(text, layer=reader.name, layer_type=reader.type)
            yield reported[other]
