"""The encoding of numbers and keys, checksums, and file access that all files of a LevelDB share."""

from __future__ import annotations

import functools
import os
import struct
import weakref
from pathlib import Path
from typing import NamedTuple

from google_crc32c import value as crc32c

from ...errors import DataError, Problem
from ...varint import encode_varint


class Entry(NamedTuple):
    """An entry of a table or a log. Entries are ordered as in LevelDB: by key, and the newest first.

    Attributes:
        key: the user's key.
        age: the key's tag (see `split_key`), negated, so that it is smaller for later entries.
        file: the name of the file.
        offset: the byte of the file where the entry's block begins. In a log, every entry is a block.
        size: the size of the block in bytes.
        entry_index: the index of the entry in the block.
    """

    key: bytes
    age: int
    file: str
    offset: int
    size: int
    entry_index: int


DELETION, VALUE = 0, 1  # the low byte of a tag; the seven others are the sequence number

_TAG = struct.Struct("<Q")
_MAX_OPEN_FILES = 64


def make_damage_error(problem: str, file: str | None = None) -> DataError:
    """Return the error for a damaged file."""
    advice = "the LevelDB is damaged: recreate it or copy it again, or try plyvel.repair_db on a copy"
    return DataError(Problem(f"{problem}; {advice}", file))


def checksum(data: bytes) -> int:
    """Return the CRC-32C in the form that LevelDB stores: rotated, plus a constant."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Decode the varint at `position`; return the number and the position after it.

    Raises:
        DataError: if the data ends within the number, or the number has more than 64 bits.
    """
    number = 0
    for n, byte in enumerate(data[position : position + 10]):
        number |= (byte & 127) << 7 * n
        if byte < 128:
            return number, position + n + 1
    raise make_damage_error(f"the number at byte {position} is truncated, or has more than 64 bits")


def read_length_prefixed(data: bytes, position: int) -> tuple[bytes, int]:
    """Decode the length-prefixed bytes at `position`; return the bytes and the position after them.

    Raises:
        DataError: if the data ends within them.
    """
    length, position = read_varint(data, position)
    if position + length > len(data):
        raise make_damage_error(f"{length} bytes should follow, not {len(data) - position}")
    return data[position : position + length], position + length


def encode_length_prefixed(data: bytes) -> bytes:
    """Return bytes prefixed with their length as a varint."""
    return encode_varint(len(data)) + data


def split_key(internal_key: bytes) -> tuple[bytes, int]:
    """Split a table's key into the user's key and the tag (sequence number and kind).

    Raises:
        DataError: if the key is shorter than a tag, or the kind in the tag is neither a value nor a deletion.
    """
    if len(internal_key) < 8:
        raise make_damage_error(f"a key has {len(internal_key)} bytes, too few for its sequence number")
    (tag,) = _TAG.unpack_from(internal_key, len(internal_key) - 8)
    if tag & 0xFF not in (DELETION, VALUE):
        raise make_damage_error(f"a key has the unknown kind {tag & 0xFF}")
    return internal_key[:-8], tag


def join_key(key: bytes, sequence: int) -> bytes:
    """Return a table's key for a value: the user's key and a tag with the sequence number."""
    return key + _TAG.pack(sequence << 8 | VALUE)


class _Descriptor:
    """An open file, which is closed when the last reference to this object is gone."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self.fd).st_size
        weakref.finalize(self, os.close, self.fd)


class Files:
    """A reader of the files in a folder, by name. The number of open files is limited.

    Reads use no file positions, so threads and forked processes can share a reader.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptor = functools.lru_cache(_MAX_OPEN_FILES)(lambda name: _Descriptor(folder / name))

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Read `size` bytes of a file from byte `offset` on.

        Raises:
            DataError: if the file cannot be read or is too short.
        """
        data = b""
        try:
            descriptor = self._descriptor(name)
            if offset + size > descriptor.size:  # before memory is allocated
                raise make_damage_error(f"has {descriptor.size} bytes, but refers to byte {offset + size}")
            while len(data) < size and (part := os.pread(descriptor.fd, size - len(data), offset + len(data))):
                data = data + part if data else part
        except OSError as error:
            raise DataError(Problem(f"cannot be read: {error.strerror}", str(self.folder / name))) from error
        if len(data) < size:
            raise make_damage_error(f"was truncated to {offset + len(data)} bytes while it was open")
        return data

    def size(self, name: str) -> int:
        """Return the size of a file in bytes, or -1 if it does not exist."""
        path = self.folder / name
        return path.stat().st_size if os.path.isfile(path) else -1

    def path(self, name: str) -> str:
        """Return the path of a file, for messages."""
        return str(self.folder / name)

    def close(self) -> None:
        """Close all files. The next read opens them again."""
        self._descriptor.cache_clear()
