"""The vocabulary of the schema for mutations of texts, and Google's parser as the oracle."""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import text_format

from caffejax.core.layers import layer_types
from caffejax.core.schema import caffe_pb2


@functools.cache
def list_schema_words() -> list[str]:
    """The names of fields and of enums' values."""
    result: set[str] = set()
    for message in caffe_pb2.DESCRIPTOR.message_types_by_name.values():
        result |= {field.name for field in message.fields}
        result |= {value.name for enum in message.enum_types for value in enum.values}
    return sorted(result)


@functools.cache
def list_quoted_layer_types() -> list[str]:
    """The names of layer types, in quotes."""
    return [f'"{name}"' for name in sorted(layer_types())]


def differs_from_google(text: bytes, message: Any) -> bool:
    """Return whether Google's parser reads another message; a text that it refuses does not count."""
    try:
        google_message = text_format.Parse(text.decode("utf-8"), type(message)())
    except (text_format.ParseError, ValueError, RecursionError):
        return False
    return bool(google_message.SerializeToString(deterministic=True) != message.SerializeToString(deterministic=True))
