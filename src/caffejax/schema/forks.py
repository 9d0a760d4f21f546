"""Settings that forks added to BVLC's messages: read without complaint, but not to be ignored in silence."""

from __future__ import annotations

import functools
import json
from collections.abc import Container, Iterator
from importlib.resources import files

from google.protobuf.message import Message


@functools.cache
def fork_fields() -> dict[str, dict[str, str]]:
    """Return `{message: {field: the forks that have it}}`."""
    return json.loads(files(__package__).joinpath("forks.json").read_text())


def unknown_settings(message: Message, known: Container[str] = ()) -> Iterator[str]:
    """Yield `field (of fork)` for each fork's field that is set to something, and is not among the known ones.

    Looks into nested messages too, such as fillers.
    """
    added = fork_fields().get(message.DESCRIPTOR.name, {})
    for field, value in message.ListFields():
        if field.name in added and field.name not in known and value != field.default_value:
            yield f"{field.name} (of {added[field.name]})"
        elif isinstance(value, Message):
            yield from (f"{field.name}.{inner}" for inner in unknown_settings(value, known))
