"""Mutations of binary protobuf messages, field by field, with corrected lengths unless a length is mutated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from caffejax.base.varint import encode_varint
from caffejax.core.schema import wire

from .byte_mutations import damage
from .numbers import draw_edge


@dataclass(frozen=True)
class Field:
    """A field: its number, its wire type, and its content; `stated_length` is a length other than the true one."""

    number: int
    wire_type: int
    value: int | bytes | tuple[Field, ...]
    stated_length: int | None = None


def parse_fields(content: bytes) -> tuple[Field, ...]:
    """Parse a message, and its fields as nested messages where they look like messages.

    Raises:
        ValueError: if the data is not a message.
    """
    fields = []
    for number, wire_type, value in wire.read_fields(memoryview(content)):
        if isinstance(value, int):
            fields.append(Field(number, wire_type, value))
            continue
        inner: bytes | tuple[Field, ...] = bytes(value)
        if wire_type == wire.DELIMITED and 1 < len(value) < 100_000:
            try:
                inner = parse_fields(bytes(value))
            except ValueError:
                inner = bytes(value)
        size = 8 if wire_type == wire.FIXED64 else 4
        if wire_type == wire.DELIMITED:
            fields.append(Field(number, wire_type, inner))
        else:
            fields += [Field(number, wire_type, bytes(value[i : i + size])) for i in range(0, len(value), size)]
    return tuple(fields)


def encode_fields(fields: tuple[Field, ...]) -> bytes:
    """Put a message together."""
    out = bytearray()
    for field in fields:
        out += encode_varint(field.number << 3 | field.wire_type)
        if isinstance(field.value, int):
            out += encode_varint(field.value)
            continue
        content = field.value if isinstance(field.value, bytes) else encode_fields(field.value)
        if field.wire_type == wire.DELIMITED:
            out += encode_varint(len(content) if field.stated_length is None else field.stated_length)
        out += content
    return bytes(out)


def change_fields(rng: Random, content: bytes) -> bytes:
    """Change a field of a message or of a nested message; change bytes if the data is not a message."""
    try:
        fields = parse_fields(content)
    except ValueError:
        return damage(rng, content)
    for _ in range(rng.choice((1, 1, 2))):
        fields = _change_fields(rng, fields)
    return encode_fields(fields)


def _change_fields(rng: Random, fields: tuple[Field, ...]) -> tuple[Field, ...]:
    if not fields:
        return (Field(rng.choice((1, 2, 5, 7, 100)), wire.VARINT, draw_edge(rng)),)
    index = rng.randrange(len(fields))
    field = fields[index]
    if isinstance(field.value, tuple) and rng.random() < 0.8:
        return (*fields[:index], replace(field, value=_change_fields(rng, field.value)), *fields[index + 1 :])
    return (*fields[:index], *_draw_replacements(rng, field, fields), *fields[index + 1 :])


def _draw_replacements(rng: Random, field: Field, fields: tuple[Field, ...]) -> tuple[Field, ...]:
    choice = rng.randrange(8)
    if choice == 0:
        return ()
    if choice == 1:
        return (field, rng.choice(fields))
    if choice == 2:
        return (replace(field, number=rng.choice((1, 2, 4, 5, 6, 7, 8, 9, 100, 20000, rng.choice(fields).number))),)
    if choice == 3 and field.wire_type == wire.DELIMITED:
        return (replace(field, stated_length=draw_edge(rng)),)
    if choice == 4:
        return (Field(field.number, wire.VARINT, draw_edge(rng)),)
    if choice == 5:
        return (Field(field.number, wire.DELIMITED, rng.randbytes(rng.choice((0, 1, 3, 4, 8, 40)))),)
    if isinstance(field.value, int):
        return (replace(field, value=draw_edge(rng)),)
    content = field.value if isinstance(field.value, bytes) else encode_fields(field.value)
    if field.wire_type == wire.DELIMITED:
        return (replace(field, value=damage(rng, content)),)
    return (replace(field, value=rng.randbytes(len(content))),)
