"""Mutations of protobuf messages in text form, field by field, that stay valid in the schema."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_INTEGERS = [
    0,
    1,
    1,
    2,
    2,
    3,
    3,
    4,
    5,
    7,
    8,
    16,
    100,
    1000,
    30000,
    20_000_000,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**64 - 1,
]
_REALS = [0.0, 1.0, 0.5, -1.0, 2.0, 1e-8, 1e8, 1e30, 3.4e38, float("inf"), float("-inf"), float("nan"), -0.5, 0.3, 10.0]
_LIMITS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def change_message(rng: Random, content: bytes, message_class: type[Message], strings: list[str]) -> bytes:
    """Change one to three fields of a text's message or its nested messages; `strings` are meaningful values.

    Raises:
        text_format.ParseError: if the text is not valid.
    """
    message = text_format.Parse(content.decode(), message_class())
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        messages = list(_iterate_messages(message))
        _change_message(rng, rng.choice(messages), [*strings, *_collect_strings(message)])
    return text_format.MessageToString(message, as_utf8=True).encode("utf-8", "surrogateescape")


def _iterate_messages(message: Any) -> Iterator[Any]:
    """Yield a message and all within it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type:
            for inner in value if field.is_repeated else [value]:
                yield from _iterate_messages(inner)


def _collect_strings(message: Any) -> list[str]:
    result = []
    for inner in _iterate_messages(message):
        for field, value in inner.ListFields():
            if field.cpp_type == FieldDescriptor.CPPTYPE_STRING and field.type != FieldDescriptor.TYPE_BYTES:
                result += list(value) if field.is_repeated else [value]
    return result


def _change_message(rng: Random, message: Any, strings: list[str]) -> None:
    fields = message.DESCRIPTOR.fields
    if not fields:
        return
    present_fields = [field for field, _ in message.ListFields()]
    field = rng.choice(present_fields) if present_fields and rng.random() < 0.6 else rng.choice(fields)
    if field in present_fields and rng.random() < 0.15:
        message.ClearField(field.name)
        return
    if field.is_repeated:
        _change_repeated(rng, field, getattr(message, field.name), strings)
    elif field.message_type:
        child = getattr(message, field.name)
        child.SetInParent()
        _change_message(rng, child, strings)
    else:
        setattr(message, field.name, _draw_value(rng, field, strings))


def _change_repeated(rng: Random, field: Any, values: Any, strings: list[str]) -> None:
    choice = rng.random()
    if len(values) and choice < 0.2:
        del values[rng.randrange(len(values))]
    elif len(values) and choice < 0.3:
        values.extend([values[rng.randrange(len(values))]] * rng.choice((1, 1, 1, 40)))
    elif field.message_type:
        _change_message(rng, values.add() if choice < 0.4 or not len(values) else rng.choice(values), strings)
    elif len(values) and choice < 0.8:
        values[rng.randrange(len(values))] = _draw_value(rng, field, strings)
    else:
        values.append(_draw_value(rng, field, strings))


def _draw_value(rng: Random, field: Any, strings: list[str]) -> Any:
    if field.enum_type:
        return rng.choice(field.enum_type.values).number
    if field.cpp_type in _LIMITS:
        low, high = _LIMITS[field.cpp_type]
        number = rng.choice(_INTEGERS) * rng.choice((1, 1, 1, -1))
        return max(low, min(high, number))
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if field.type == FieldDescriptor.TYPE_BYTES:
        return rng.randbytes(rng.choice((0, 1, 30)))
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return rng.choice(["", "x", "/", ".", "a" * 300, "\x1b[31m", "a/b", "\u202e", "{}", *strings])
    return rng.choice(_REALS)
