"""A decoder and encoder of protobuf's wire format, for files that consist mostly of numbers.

Protobuf's classes create a Python object for every number, and refuse files larger than 2 GiB. Here, adjacent floats
are returned as one slice of the file, from which NumPy makes an array.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...base.varint import encode_varint

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
_SIZES = {FIXED64: 8, FIXED32: 4}


def read_fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Yield `(number, wire type, value)` for each field of a message. The value is an integer or bytes.

    Adjacent values of one fixed-size field are yielded as one slice, like a packed field.

    Raises:
        ValueError: if the bytes are not a message.
    """
    position = 0
    while position < len(data):
        start = position
        key, position = _read_varint(data, position)
        number, wire_type = key >> 3, key & 7
        if number == 0:
            raise ValueError(f"there is no valid field at byte {start}")
        if wire_type == VARINT:
            value, position = _read_varint(data, position)
            yield number, wire_type, value
        elif wire_type == DELIMITED:
            size, position = _read_varint(data, position)
            yield number, wire_type, _read_bytes(data, position, size)
            position += size
        elif wire_type in _SIZES:
            values, position = _read_repeated(data, start, position - start, _SIZES[wire_type])
            yield number, wire_type, values
        else:
            raise ValueError(f"there is no valid field at byte {start}")


def encode_delimited(number: int, *contents: bytes | memoryview) -> list[bytes | memoryview]:
    """Encode a length-delimited field whose content is the concatenation of `contents`; return its pieces in order."""
    return [encode_varint(number << 3 | DELIMITED), encode_varint(sum(len(content) for content in contents)), *contents]


def measure_delimited(number: int, size: int) -> int:
    """Return the bytes of a length-delimited field with `size` bytes of content."""
    return len(encode_varint(number << 3 | DELIMITED)) + len(encode_varint(size)) + size


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise ValueError("the data ends too early")
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (2**64 - 1), position
    raise ValueError(f"there is no valid integer at byte {position - 10}")


def _read_bytes(data: memoryview, position: int, size: int) -> memoryview:
    if position + size > len(data):
        raise ValueError(f"the data ends too early: at least {position + size - len(data)} bytes are missing")
    return data[position : position + size]


def _read_repeated(data: memoryview, position: int, key: int, size: int) -> tuple[memoryview, int]:
    """Read consecutive values of `size` bytes, each preceded by the same `key` bytes, which are left out."""
    _read_bytes(data, position, key + size)
    count = (len(data) - position) // (key + size)
    table = np.frombuffer(data, np.uint8, count * (key + size), position).reshape(count, key + size)
    is_different = (table[:, :key] != table[0, :key]).any(axis=1)
    if is_different.any():
        count = int(is_different.argmax())
    return memoryview(table[:count, key:].tobytes()), position + count * (key + size)
