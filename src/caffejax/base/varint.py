"""Variable-length integers, as protobuf and LevelDB write them."""

from __future__ import annotations


def encode_varint(value: int) -> bytes:
    """Encode a nonnegative integer as a varint."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])
