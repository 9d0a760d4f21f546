"""Table files, written."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import BinaryIO

import cramjam

from .format import checksum, encode_varint
from .table import FOOTER, MAGIC, RAW, SNAPPY, TRAILER

_BLOCK = 1 << 16  # Caffe's; LevelDB's own default is 4 KiB
_RESTART_EVERY = 16


class TableWriter:
    """A writer of entries, whose keys must ascend, to a file.

    Args:
        file: the file, empty.
        compress: whether blocks are compressed, where that saves an eighth of them.
    """

    def __init__(self, file: BinaryIO, compress: bool) -> None:
        self.size = 0
        self._file = file
        self._compress = compress
        self._block = _Block(_RESTART_EVERY)
        self._index = _Block(1)  # the last key of each block, and where it is

    def add(self, key: bytes, value: bytes) -> None:
        """Write an entry. The key has its tag."""
        self._block.add(key, value)
        if len(self._block.data) >= _BLOCK:
            self._end_block()

    def finish(self) -> None:
        """Write what remains, and the index."""
        if self._block.data:
            self._end_block()
        filters = self._write(_Block(1))
        blocks = self._write(self._index)
        self._put(FOOTER.pack(filters + blocks, MAGIC))

    def _end_block(self) -> None:
        key = self._block.last_key
        self._index.add(key, self._write(self._block))
        self._block = _Block(_RESTART_EVERY)

    def _write(self, block: _Block) -> bytes:
        """Write a block and return its handle."""
        data, compression = block.content(), RAW
        if self._compress:
            packed = bytes(cramjam.snappy.compress_raw(data))
            if len(packed) < len(data) - len(data) // 8:
                data, compression = packed, SNAPPY
        handle = encode_varint(self.size) + encode_varint(len(data))
        data += bytes([compression])
        self._put(data + TRAILER.pack(compression, checksum(data))[1:])
        return handle

    def _put(self, data: bytes) -> None:
        self._file.write(data)
        self.size += len(data)


class _Block:
    """A block being made. A key is stored without what it shares with the one before, but at restart points."""

    def __init__(self, restart_every: int) -> None:
        self.data = bytearray()
        self.last_key = b""
        self._restart_every = restart_every
        self._restarts = [0]
        self._since = 0

    def add(self, key: bytes, value: bytes) -> None:
        if self._since == self._restart_every:
            self._restarts.append(len(self.data))
            self._since = 0
        shared = _shared_prefix(self.last_key, key) if self._since else 0
        self.data += encode_varint(shared) + encode_varint(len(key) - shared) + encode_varint(len(value))
        self.data += key[shared:] + value
        self.last_key = key
        self._since += 1

    def content(self) -> bytes:
        return bytes(self.data) + _pack_words([*self._restarts, len(self._restarts)])


def _pack_words(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def _shared_prefix(one: bytes, two: bytes) -> int:
    """Return how many bytes both begin with."""
    for n, (a, b) in enumerate(zip(one, two, strict=False)):
        if a != b:
            return n
    return min(len(one), len(two))
