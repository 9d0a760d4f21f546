"""What all files of a LevelDB share: numbers, checksums, and keys with a sequence number."""

from __future__ import annotations

import struct

from google_crc32c import value as crc32c

from ...errors import DataError, Problem

DELETION, VALUE = 0, 1  # the low byte of a tag; the seven others are the sequence number

_TAG = struct.Struct("<Q")


def damaged(what: str, file: str | None = None) -> DataError:
    """Return the error for a file that does not hold what it must."""
    remedy = "the LevelDB is damaged: copy or make it anew, or try plyvel.repair_db on a copy"
    return DataError(Problem(f"{what}; {remedy}", file))


def checksum(data: bytes) -> int:
    """Return the CRC-32C as LevelDB stores it: rotated and offset, so that checksums of checksums do no harm."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read the varint at a position; return it and the position after it.

    Raises:
        DataError: if the data ends before, or the number has more than 64 bits.
    """
    number = 0
    for n, byte in enumerate(data[at : at + 10]):
        number |= (byte & 127) << 7 * n
        if byte < 128:
            return number, at + n + 1
    raise damaged("a number has no end")


def encode_varint(number: int) -> bytes:
    """Encode a number as a varint: seven bits each, the low ones first."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_prefixed(data: bytes, at: int) -> tuple[bytes, int]:
    """Read the length-prefixed bytes at a position; return them and the position after them.

    Raises:
        DataError: if the data ends before.
    """
    length, at = read_varint(data, at)
    if at + length > len(data):
        raise damaged(f"{length} bytes are announced where {len(data) - at} follow")
    return data[at : at + length], at + length


def encode_prefixed(data: bytes) -> bytes:
    """Return bytes with their length before them."""
    return encode_varint(len(data)) + data


def split_key(internal: bytes) -> tuple[bytes, int]:
    """Split a table's key into the user's key and the tag.

    Raises:
        DataError: if it is too short for both, or the tag is neither a value's nor a deletion's.
    """
    if len(internal) < 8:
        raise damaged(f"a key has {len(internal)} bytes, too few for its sequence number")
    (tag,) = _TAG.unpack_from(internal, len(internal) - 8)
    if tag & 0xFF not in (DELETION, VALUE):
        raise damaged(f"a key is of the unknown kind {tag & 0xFF}")
    return internal[:-8], tag


def join_key(key: bytes, sequence: int) -> bytes:
    """Return a table's key for a value."""
    return key + _TAG.pack(sequence << 8 | VALUE)
