"""Protobuf messages that record which of their fields are read."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from google.protobuf.message import Message

from caffejax.core.graph import build
from caffejax.core.layers import layer_type, type_of
from caffejax.core.layers.types import LayerType, Variants

FieldReads = set[tuple[str, str]]  # full names of messages, and their fields


class RecordedMessage:
    """A message that adds each of its fields that is read to `reads`, also in the messages inside it."""

    def __init__(self, message: Message, reads: FieldReads) -> None:
        self._message, self._reads = message, reads

    @property
    def __class__(self) -> Any:
        return type(self._message)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._message, name)
        if name in self._message.DESCRIPTOR.fields_by_name:
            self._reads.add((self._message.DESCRIPTOR.full_name, name))
        if isinstance(value, Message):
            return RecordedMessage(value, self._reads)
        if hasattr(value, "add"):  # repeated messages
            return [RecordedMessage(message, self._reads) for message in value]
        return value

    def HasField(self, name: str) -> bool:  # noqa: N802
        self._reads.add((self._message.DESCRIPTOR.full_name, name))
        return self._message.HasField(name)


@contextmanager
def record_reads(recorded_type: LayerType, reads: FieldReads) -> Iterator[None]:
    """Record the fields that layers of a type read, in graphs that are built within the context."""
    original_context, original_definition = build.Context, build.LayerDefinition

    def make_context(layer: Any, type: LayerType, *args: Any, **options: Any) -> Any:
        return original_context(
            RecordedMessage(layer, reads) if type is recorded_type else layer, type, *args, **options
        )

    def make_definition(layer: Any, *args: Any) -> Any:
        variants = layer_type(layer.type).implementation
        if type_of(layer) is recorded_type and isinstance(variants, Variants):
            variants.select(RecordedMessage(layer, reads))
        return original_definition(RecordedMessage(layer, reads) if type_of(layer) is recorded_type else layer, *args)

    with (
        mock.patch.object(build, "Context", make_context),
        mock.patch.object(build, "LayerDefinition", make_definition),
    ):
        yield
