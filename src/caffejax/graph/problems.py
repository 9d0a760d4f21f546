"""What is wrong with a net before any shape is known: types, counts, settings, blobs that nothing produces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errors import GraphError, Problem, did_you_mean
from ..layers import type_of
from ..schema import unknown_settings
from ..schema.caffe_pb2 import LayerParameter, NetParameter
from .splits import Missing


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
    if kind.signature.weighted and not layer.loss_weight:
        text = (
            f"with {len(layer.bottom)} bottoms it is {kind.facts.origin}'s, which weighs nothing; give it a loss_weight"
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
