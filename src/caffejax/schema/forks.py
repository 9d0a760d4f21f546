"""Settings that forks added to BVLC's messages: obeyed, ignored with a warning, or refused, but never in silence."""

from __future__ import annotations

import functools
import json
from collections.abc import Container, Iterable, Iterator
from importlib.resources import files

from google.protobuf.message import Message

from ..sizes import counted
from .caffe_pb2 import LayerParameter, NetParameter
from .hints import HINTS

# what all types obey
_OBEYED = {
    "FillerParameter": ("alpha", "width", "height", "channels", "expectation_option", "xy"),
    "LossParameter": ("pre_fixed_normalizer",),
}


@functools.cache
def fork_fields() -> dict[str, dict[str, str]]:
    """Return `{message: {field: the forks that have it}}`."""
    return json.loads(files(__package__).joinpath("forks.json").read_text())


def unknown_settings(message: Message, known: Container[str] = ()) -> Iterator[str]:
    """Yield `field (of fork)` for each fork's field that is set to something, and is neither obeyed nor a hint.

    Looks into nested messages too, such as fillers.

    Args:
        message: the settings.
        known: the fields that are obeyed.
    """
    name = message.DESCRIPTOR.name
    added, passed = fork_fields().get(name, {}), (*HINTS.get(name, {}), *_OBEYED.get(name, ()))
    for field, value in message.ListFields():
        if field.name in added and field.name not in known and value != field.default_value:
            if field.name not in passed:
                yield f"{field.name} (of {added[field.name]})"
        elif isinstance(value, Message):
            yield from (f"{field.name}.{inner}" for inner in unknown_settings(value, known))


def hints_in(message: Message) -> Iterator[tuple[str, str]]:
    """Yield `field (of fork)`, and why it is ignored, for each hint of a fork that a message gives."""
    name = message.DESCRIPTOR.name
    for field, value in message.ListFields():
        reason = HINTS.get(name, {}).get(field.name)
        if reason and field.name in fork_fields().get(name, {}) and value != field.default_value:
            yield f"{field.name} (of {fork_fields()[name][field.name]})", reason


def ignored_settings(net: NetParameter, layers: Iterable[tuple[LayerParameter, str | None]]) -> list[str]:
    """Return a sentence for each hint of a fork in a net and its layers, each with the field of its own parameters."""
    found = {f"{setting} is ignored: {reason}": 0 for setting, reason in hints_in(net)}
    for layer, param in layers:
        inside = hints_in(getattr(layer, param)) if param and layer.HasField(param) else ()
        for setting, reason in (*hints_in(layer), *((f"{param}.{s}", reason) for s, reason in inside)):
            sentence = f"{setting} is ignored: {reason}"
            found[sentence] = found.get(sentence, 0) + 1
    return [f"{sentence} ({counted(n, 'layer')})" if n else sentence for sentence, n in found.items()]
