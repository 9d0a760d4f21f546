"""Resolution of a net in a state: apply include rules, choose the variants of types, insert splits, find problems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ...base.errors import GraphError, Problem, did_you_mean, shorten_list
from ...base.human_readable import format_count
from ..layers import LayerContext, Phase, Variants, layer_type, type_of
from ..schema import unknown_settings
from ..schema.caffe_pb2 import LayerParameter, NetParameter, NetState, NetStateRule


def make_net_state(net: NetParameter, phase: Phase, level: int = 0, stages: Sequence[str] = ()) -> NetState:
    """Return the state of a net: `phase`, `level`, and the stages that the net's file sets, followed by `stages`."""
    state = NetState(phase=phase, level=level)
    state.stage.extend([*net.state.stage, *stages])
    return state


def is_included(layer: LayerParameter, state: NetState) -> bool:
    """Return whether a net in `state` has a layer.

    If the layer has include rules, the state must satisfy at least one of them. Otherwise the state must not satisfy
    any of the exclude rules.
    """
    if layer.include:
        return any(satisfies(state, rule) for rule in layer.include)
    return not any(satisfies(state, rule) for rule in layer.exclude)


def satisfies(state: NetState, rule: NetStateRule) -> bool:
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
    """Return a list with one problem if a layer has both include and exclude rules, otherwise an empty list."""
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


def has_loss(net: NetParameter, state: NetState) -> bool:
    """Return whether a net has a top with a loss weight in a state, without building the net."""
    return any(
        any(layer.loss_weight) if layer.loss_weight else not any(type_problems(layer)) and type_of(layer).signature.loss
        for layer in net.layer
        if is_included(layer, state)
    )


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


_Top = tuple[int, int]  # the layer's index, and the top's index in the layer
Sources = dict[tuple[int, int], _Top]  # (layer's index, bottom's index in the layer): the top that it reads
Missing = tuple[int, int, str]  # layer's index, bottom's index in the layer, the blob's name


def insert_splits(layers: Sequence[LayerParameter], sources: Sources) -> list[tuple[LayerParameter, int | None]]:
    """Return copies of the layers, with Split layers inserted after tops that have several readers.

    Each layer is paired with its index in `layers`, or None for a split. If a top has a loss weight, this counts as
    its first reader.

    Args:
        layers: the net's layers, in order.
        sources: the result of `find_sources`. Bottoms without a source are not changed.
    """
    num_readers: dict[_Top, int] = defaultdict(int)
    for source in sources.values():
        num_readers[source] += 1
    loss_weights: dict[_Top, float] = {
        (i, j): weight
        for i, layer in enumerate(layers)
        for j, (weight, _) in enumerate(zip(layer.loss_weight, layer.top, strict=False))
        if weight
    }
    for weighted_top in loss_weights:
        num_readers[weighted_top] += 1

    num_earlier_readers: dict[_Top, int] = defaultdict(int)
    result: list[tuple[LayerParameter, int | None]] = []
    for i, original in enumerate(layers):
        layer = LayerParameter()
        layer.CopyFrom(original)
        for j in range(len(layer.bottom)):
            top = sources.get((i, j))
            if top is not None and num_readers[top] > 1:
                layer.bottom[j] = _split_blob(layers, top, num_earlier_readers[top])
                num_earlier_readers[top] += 1
        result.append((layer, i))
        for j in range(len(layer.top)):
            if num_readers[i, j] > 1:
                result.append((_make_split(layers, (i, j), num_readers[i, j], loss_weights.get((i, j), 0)), None))
                if (i, j) in loss_weights:
                    layer.ClearField("loss_weight")
                    num_earlier_readers[i, j] += 1
    return result


def find_sources(layers: Sequence[LayerParameter]) -> tuple[Sources, list[Missing]]:
    """Find the top that each bottom reads, which is the last earlier top of that name.

    Returns:
        `{(layer, bottom): (layer, top)}`, as indices, and a list of `(layer, bottom, name)` for bottoms without such a
        top. Each name is listed once, for the first bottom that reads it.
    """
    latest_tops: dict[str, _Top | None] = {}
    sources: Sources = {}
    missing: list[Missing] = []
    for i, layer in enumerate(layers):
        for j, name in enumerate(layer.bottom):
            if name not in latest_tops:
                missing.append((i, j, name))
                latest_tops[name] = None
            elif (source := latest_tops[name]) is not None:
                sources[i, j] = source
        for j, name in enumerate(layer.top):
            latest_tops[name] = (i, j)
    return sources, missing


def _split_name(layers: Sequence[LayerParameter], top: _Top) -> str:
    layer = layers[top[0]]
    return f"{layer.top[top[1]]}_{layer.name}_{top[1]}_split"


def _split_blob(layers: Sequence[LayerParameter], top: _Top, k: int) -> str:
    return f"{_split_name(layers, top)}_{k}"


def _make_split(layers: Sequence[LayerParameter], top: _Top, n: int, loss_weight: float) -> LayerParameter:
    split = LayerParameter(name=_split_name(layers, top), type="Split")
    split.bottom.append(layers[top[0]].top[top[1]])
    split.top.extend(_split_blob(layers, top, k) for k in range(n))
    if loss_weight:
        split.loss_weight.extend([loss_weight] + [0] * (n - 1))
    return split


def resolve_variant(
    layer: LayerParameter, index: int, layers: Sequence[LayerParameter], blobs: Mapping[str, Any]
) -> LayerParameter:
    """Return a copy of the layer whose ambiguous settings are filled in from its neighbours.

    Several forks may use one type name. If a layer's settings do not determine the fork's variant, the layers and
    shapes around it do.

    Args:
        layer: the layer, after splits were inserted.
        index: the layer's index in `layers`.
        layers: the net's layers, without splits.
        blobs: shapes and dtypes of the blobs produced before the layer.

    Raises:
        LayerError: if settings that distinguish the variants are invalid.
    """
    implementation = layer_type(layer.type).implementation
    if not isinstance(implementation, Variants) or implementation.resolve is None:
        return layer
    first_bottom = layers[index].bottom[0] if layers[index].bottom else None
    siblings = tuple(neighbour for i, neighbour in enumerate(layers) if i != index and first_bottom in neighbour.bottom)
    shapes = tuple(blobs[name].shape if name in blobs else None for name in layer.bottom)
    resolved_layer: LayerParameter = implementation.resolve(layer, LayerContext(shapes, tuple(layers), siblings))
    return resolved_layer


def rename_in_place_reshapes(layers: list[LayerParameter]) -> list[LayerParameter]:
    """Return the layers with new names for blobs that layers such as Reshape or Flatten replace in place.

    Forks allow such layers. The value after the layer keeps the blob's name, and the value before it is called
    `blob_layer`. A net is changed only if it has a layer type of a fork. Other nets are rejected later, because BVLC
    Caffe does not allow such layers.
    """

    def is_in_place_reshape(layer: LayerParameter) -> bool:
        if len(layer.top) != 1 or list(layer.top) != list(layer.bottom):
            return False
        with suppress(GraphError):  # an unknown type is a problem of its layer
            kind = type_of(layer)
            return kind.traits.data_movement == "all" and kind.signature.in_place is False
        return False

    def has_fork_type(layer: LayerParameter) -> bool:
        with suppress(GraphError):
            return type_of(layer).docs.origin != "BVLC"
        return False

    if not any(map(is_in_place_reshape, layers)) or not any(map(has_fork_type, layers)):
        return layers
    new_names: dict[str, str] = {}
    result = []
    for layer in reversed(layers):
        copy = LayerParameter()
        copy.CopyFrom(layer)
        copy.top[:] = [new_names.get(top, top) for top in layer.top]
        if is_in_place_reshape(layer):
            new_names[layer.top[0]] = f"{layer.top[0]}_{layer.name}"
        copy.bottom[:] = [new_names.get(bottom, bottom) for bottom in layer.bottom]
        result.append(copy)
    return result[::-1]


class SecondReading(NamedTuple):
    """A net whose settings have the other meaning that forks give them, see `Signature.second_reading`.

    Attributes:
        net: the net, rewritten so that its settings mean the same as read first.
        sentences: what was read differently, and why.
    """

    net: NetParameter
    sentences: tuple[str, ...]


def reread_net(net: NetParameter) -> SecondReading | None:
    """Return the second reading of a net, or None if forks agree about its settings."""
    new_net = NetParameter()
    new_net.CopyFrom(net)
    sentences: dict[str, None] = {}
    for layer in new_net.layer:
        with suppress(GraphError):  # an unknown type
            reading = type_of(layer).signature.second_reading
            if reading is not None and reading.rewrite(layer):
                sentences[reading.description] = None
    return SecondReading(new_net, tuple(sentences)) if sentences else None


def net_problems(net: NetParameter) -> Iterator[Problem]:
    """Yield a problem for each unsupported setting of the net message."""
    for setting in unknown_settings(net):
        yield Problem(f"setting {setting} of the net is not supported; BVLC Caffe does not have it either")


def type_problems(layer: LayerParameter) -> Iterator[Problem]:
    """Yield a problem if a layer's type is unknown."""
    try:
        type_of(layer)
    except GraphError as error:
        if layer.type:
            yield Problem(str(error), layer=layer.name)


def layer_problems(layer: LayerParameter) -> Iterator[Problem]:
    """Yield the problems of a single layer: unknown type, invalid numbers of bottoms or tops, unsupported settings."""
    try:
        kind = type_of(layer)
    except GraphError as error:
        yield Problem(str(error), layer=layer.name)
        return
    for message in kind.signature.iterate_count_problems(len(layer.bottom), len(layer.top)):
        yield Problem(message, layer=layer.name, layer_type=layer.type)
    if kind.signature.requires_loss_weight and not layer.loss_weight:
        text = (
            f"with {len(layer.bottom)} bottoms, this is the layer of {kind.docs.origin}, whose default loss weight is "
            "0; set loss_weight"
        )
        yield Problem(text, layer=layer.name, layer_type=layer.type)
    for message in (m for m in (kind.signature.param, "loss_param") if m and layer.HasField(m)):
        for setting in unknown_settings(getattr(layer, message), kind.signature.fork_settings):
            text = f"setting {message}.{setting} is not supported; BVLC Caffe does not have it either"
            yield Problem(text, layer=layer.name, layer_type=layer.type)
    if layer.propagate_down and len(layer.propagate_down) != len(layer.bottom):
        yield Problem(
            "propagate_down must be set once per bottom or not at all, but is set "
            f"{format_count(len(layer.propagate_down), 'time')} for {format_count(len(layer.bottom), 'bottom')}",
            layer=layer.name,
            layer_type=layer.type,
        )


EXCLUDED_END = " in this state"  # the end of the message about a bottom whose producer the net's state excludes
_INPUT_REMEDY = (
    'if it is an input of the net, write a layer of type "Input" with a shape that the net supports, such as '
    "input_param { shape { dim: 1 dim: 3 dim: 224 dim: 224 } }; arrays of other sizes may be passed when it runs"
)


def missing_problems(
    layers: Sequence[LayerParameter], excluded: Sequence[LayerParameter], missing: Sequence[Missing]
) -> Iterator[Problem]:
    """Yield a problem for each bottom that no earlier layer produces.

    If one excluded layer would produce several of these bottoms, such as the data layer of the other phase, they are
    reported as one problem.

    Args:
        layers: the net's layers in its state.
        excluded: the layers that the net has only in other states.
        missing: the bottoms, from `find_sources`.
    """
    names_before: list[str] = []
    num_layers_seen = 0
    reported_problems: dict[str, Problem] = {}
    for i, j, name in missing:
        reader = layers[i]
        for layer in layers[num_layers_seen:i]:
            names_before += layer.top
        num_layers_seen = max(num_layers_seen, i)
        text = f"unknown bottom blob '{name}' (bottom index {j})"
        later_name = next((layer.name for layer in layers[i:] if name in layer.top), None)
        producer_names = [layer.name for layer in excluded if name in layer.top]
        if later_name is not None:
            yield Problem(
                f"{text}; only the later layer '{later_name}' produces it", layer=reader.name, layer_type=reader.type
            )
        elif not producer_names:
            hint = did_you_mean(name, names_before) if names_before else f"; {_INPUT_REMEDY}"
            yield Problem(f"{text}{hint}", layer=reader.name, layer_type=reader.type)
        elif (producer_name := producer_names[0]) not in reported_problems:
            names = [
                n for _, _, n in missing if any(n in layer.top for layer in excluded if layer.name == producer_name)
            ]
            further_names = (
                f" and {len(names) - 1} more blobs" if len(names) > 2 else f" and '{names[1]}'" if names[1:] else ""
            )
            if len(producer_names) > 1:
                quoted_names = ", ".join(f"'{n}'" for n in shorten_list(producer_names))
                text += f": only the layers {quoted_names} produce it{further_names}, and their rules exclude them"
            else:
                text += f": only layer '{producer_name}' produces it{further_names}, and its rules exclude it"
            text += EXCLUDED_END
            reported_problems[producer_name] = Problem(text, layer=reader.name, layer_type=reader.type)
            yield reported_problems[producer_name]
