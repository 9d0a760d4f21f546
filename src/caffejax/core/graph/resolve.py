"""Resolution of a net in a state: apply include rules, choose the variants of types, insert splits, find problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

from ...base.errors import GraphError, Problem, did_you_mean, shorten_list
from ...base.human_readable import format_count
from ..layers import Phase, layer_type, type_of
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


def has_loss(net: NetParameter, state: NetState) -> bool:
    """Return whether a net has a top with a loss weight in a state, without building the net."""
    return any(
        any(layer.loss_weight) if layer.loss_weight else not any(type_problems(layer)) and type_of(layer).signature.loss
        for layer in net.layer
        if is_included(layer, state)
    )


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
    loss_weights: dict[_Top, float] = {
        (i, j): weight
        for i, layer in enumerate(layers)
        for j, (weight, _) in enumerate(zip(layer.loss_weight, layer.top, strict=False))
        if weight
    }
    num_readers = Counter([*sources.values(), *loss_weights])
    num_earlier_readers = Counter[_Top]()
    result: list[tuple[LayerParameter, int | None]] = []
    for i, original in enumerate(layers):
        layer = deepcopy(original)
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
    if (resolve := getattr(implementation, "resolve", None)) is None:
        return layer
    first_bottom = layers[index].bottom[0] if layers[index].bottom else None
    siblings = [neighbour for i, neighbour in enumerate(layers) if i != index and first_bottom in neighbour.bottom]
    shapes = [blobs[name].shape if name in blobs else None for name in layer.bottom]
    resolved_layer: LayerParameter = resolve(layer, shapes, layers, siblings)
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
        new_layer = deepcopy(layer)
        new_layer.top[:] = [new_names.get(top, top) for top in layer.top]
        if is_in_place_reshape(layer):
            new_names[layer.top[0]] = f"{layer.top[0]}_{layer.name}"
        new_layer.bottom[:] = [new_names.get(bottom, bottom) for bottom in layer.bottom]
        result.append(new_layer)
    return result[::-1]


def reread_net(net: NetParameter) -> tuple[NetParameter, list[str]] | None:
    """Return a net whose settings have the other meaning that forks give them, see `Signature.second_reading`.

    The net is rewritten so that its settings mean this as read first; the second result are sentences about what was
    read differently, and why. The result is None if forks agree about the settings.
    """
    new_net = deepcopy(net)
    sentences: dict[str, None] = {}
    for layer in new_net.layer:
        with suppress(GraphError):  # an unknown type
            reading = type_of(layer).signature.second_reading
            if reading is not None and reading.rewrite(layer):
                sentences[reading.description] = None
    return (new_net, list(sentences)) if sentences else None


def net_problems(net: NetParameter, unreadable_layers: Container[str]) -> Iterator[Problem]:
    """Yield a problem for each unsupported setting of the net message, and each layer with both kinds of rules."""
    for setting in unknown_settings(net):
        yield Problem(f"setting {setting} of the net is not supported; BVLC Caffe does not have it either")
    for layer in net.layer:
        if layer.include and layer.exclude and layer.name not in unreadable_layers:
            yield _make_problem(layer, "specify either include rules or exclude rules, not both")


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
        yield _make_problem(layer, message)
    if kind.signature.requires_loss_weight and not layer.loss_weight:
        text = (
            f"with {len(layer.bottom)} bottoms, this is the layer of {kind.docs.origin}, whose default loss weight is "
            "0; set loss_weight"
        )
        yield _make_problem(layer, text)
    for message in (m for m in (kind.signature.param, "loss_param") if m and layer.HasField(m)):
        for setting in unknown_settings(getattr(layer, message), kind.signature.fork_settings):
            text = f"setting {message}.{setting} is not supported; BVLC Caffe does not have it either"
            yield _make_problem(layer, text)
    if layer.propagate_down and len(layer.propagate_down) != len(layer.bottom):
        yield _make_problem(
            layer,
            "propagate_down must be set once per bottom or not at all, but is set "
            f"{format_count(len(layer.propagate_down), 'time')} for {format_count(len(layer.bottom), 'bottom')}",
        )


def _make_problem(layer: LayerParameter, message: str) -> Problem:
    return Problem(message, layer=layer.name, layer_type=layer.type)


EXCLUDED_END = " in this state"  # the end of the message about a bottom whose producer the net's state excludes
_INPUT_REMEDY = (
    'if it is an input of the net, write a layer of type "Input" with a shape that the net supports, such as '
    "input_param { shape { dim: 1 dim: 3 dim: 224 dim: 224 } }; arrays of other sizes may be passed when it runs"
)


def missing_problems(
    layers: Sequence[LayerParameter], excluded: Sequence[LayerParameter], missing: Sequence[Missing]
) -> Iterator[Problem]:
    """Yield a problem for each of the bottoms `missing`, from `find_sources`, of the net's layers.

    If one of the layers `excluded`, which the net has only in other states, would produce several of these bottoms, as
    the data layer of the other phase does, they are reported as one problem.
    """
    reported: set[str] = set()  # names of producers
    for i, j, name in missing:
        reader = layers[i]
        text = f"unknown bottom blob '{name}' (bottom index {j})"
        later_name = next((layer.name for layer in layers[i:] if name in layer.top), None)
        producer_names = [layer.name for layer in excluded if name in layer.top]
        if later_name is not None:
            yield _make_problem(reader, f"{text}; only the later layer '{later_name}' produces it")
        elif not producer_names:
            names_before = [top for layer in layers[:i] for top in layer.top]
            hint = did_you_mean(name, names_before) if names_before else f"; {_INPUT_REMEDY}"
            yield _make_problem(reader, f"{text}{hint}")
        elif (producer_name := producer_names[0]) not in reported:
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
            reported.add(producer_name)
            yield _make_problem(reader, text + EXCLUDED_END)
