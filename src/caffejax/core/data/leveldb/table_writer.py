"""Writing of LevelDB folders."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import cramjam

from ....base.errors import DataError, Problem
from ..atomic_folder import PutFn, convert_write_errors, create_folder
from .leveldb_format import checksum, encode_varint, join_key
from .manifest import Table, encode_manifest
from .sorted_table import FOOTER, MAGIC, RAW, SNAPPY, TRAILER

_BLOCK_SIZE = 1 << 16  # as in Caffe; LevelDB's default is 4 KiB
_RESTART_INTERVAL = 16


class TableWriter:
    """A writer of entries with ascending keys to a table file.

    Args:
        file: the empty file.
        compress: whether to compress the blocks that become at least an eighth smaller.
    """

    def __init__(self, file: BinaryIO, compress: bool) -> None:
        self.size = 0
        self._file = file
        self._compress = compress
        self._block = _BlockBuilder(_RESTART_INTERVAL)
        self._index = _BlockBuilder(1)  # the last key and the handle of each block

    def add(self, key: bytes, value: bytes) -> None:
        """Write an entry. The key includes its tag."""
        self._block.add(key, value)
        if len(self._block.data) >= _BLOCK_SIZE:
            self._end_block()

    def finish(self) -> None:
        """Write the remaining entries, the index and the footer."""
        if self._block.data:
            self._end_block()
        filter_handle = self._write(_BlockBuilder(1))
        index_handle = self._write(self._index)
        self._put(FOOTER.pack(filter_handle + index_handle, MAGIC))

    def _end_block(self) -> None:
        key = self._block.last_key
        self._index.add(key, self._write(self._block))
        self._block = _BlockBuilder(_RESTART_INTERVAL)

    def _write(self, block: _BlockBuilder) -> bytes:
        data, compression = block.serialize(), RAW
        if self._compress:
            compressed_data = bytes(cramjam.snappy.compress_raw(data))
            if len(compressed_data) < len(data) - len(data) // 8:
                data, compression = compressed_data, SNAPPY
        handle = encode_varint(self.size) + encode_varint(len(data))
        data += bytes([compression])
        self._put(data + TRAILER.pack(compression, checksum(data))[1:])
        return handle

    def _put(self, data: bytes) -> None:
        self._file.write(data)
        self.size += len(data)


class _BlockBuilder:
    """A block under construction.

    Except at restart points, a key is stored without the prefix that it shares with the previous key.
    """

    def __init__(self, restart_interval: int) -> None:
        self.data = bytearray()
        self.last_key = b""
        self._restart_interval = restart_interval
        self._restart_offsets = [0]
        self._num_entries_since_restart = 0

    def add(self, key: bytes, value: bytes) -> None:
        if self._num_entries_since_restart == self._restart_interval:
            self._restart_offsets.append(len(self.data))
            self._num_entries_since_restart = 0
        shared = _shared_prefix_length(self.last_key, key) if self._num_entries_since_restart else 0
        self.data += encode_varint(shared) + encode_varint(len(key) - shared) + encode_varint(len(value))
        self.data += key[shared:] + value
        self.last_key = key
        self._num_entries_since_restart += 1

    def serialize(self) -> bytes:
        return bytes(self.data) + _pack_words([*self._restart_offsets, len(self._restart_offsets)])


def _pack_words(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def _shared_prefix_length(a: bytes, b: bytes) -> int:
    for n, (byte_a, byte_b) in enumerate(zip(a, b, strict=False)):
        if byte_a != byte_b:
            return n
    return min(len(a), len(b))


_TABLE_LEVEL = 6  # LevelDB's last level, whose tables are not compacted
_MAX_TABLE_SIZE = 1 << 26  # bytes after which the next table begins
_MANIFEST = "MANIFEST-000001"


@contextmanager
def leveldb_writer(path: str | os.PathLike[str], compress: bool = True) -> Iterator[PutFn]:
    """Create a new LevelDB folder, and yield a function that writes a record (key, value) to it.

    The folder appears when the `with` block ends without an exception. Records are written directly to tables, so their
    keys must ascend, as the keys of Caffe's tools do.

    Args:
        path: the folder to create; its parent must exist.
        compress: whether blocks are compressed with snappy, as LevelDB does by default.

    Raises:
        DataError: if the folder exists, keys do not ascend, or writing fails.
    """
    path = Path(path)
    with create_folder(path) as folder:
        writer = _TablesWriter(folder, path, compress)
        try:
            yield writer.put
            with convert_write_errors(path):
                writer.finish()
        finally:
            writer.close()


def write_leveldb(path: str | os.PathLike[str], records: Iterable[tuple[bytes, bytes]], compress: bool = True) -> None:
    """Write records (key, value), whose keys ascend, as a new LevelDB folder; see `leveldb_writer`.

    Raises:
        DataError: if the folder exists, keys do not ascend, or writing fails.
    """
    with leveldb_writer(path, compress) as put:
        for key, value in records:
            put(key, value)


class _TablesWriter:
    """The table files of a new database, written one after the other."""

    def __init__(self, folder: Path, path: Path, compress: bool) -> None:
        self._folder = folder
        self._path = path
        self._compress = compress
        self._finished_tables: list[Table] = []
        self._num_records = 0
        self._last_key: bytes | None = None
        self._file: BinaryIO | None = None
        self._table: TableWriter | None = None
        self._smallest_key = b""

    def put(self, key: bytes, value: bytes) -> None:
        """Write a record."""
        if self._last_key is not None and key <= self._last_key:
            problem = "occurs twice" if key == self._last_key else f"comes after {self._last_key!r}; keys must ascend"
            raise DataError(Problem(f"key {key!r} {problem}", str(self._path)))
        self._num_records += 1
        self._last_key = key
        with convert_write_errors(self._path):
            internal_key = join_key(key, self._num_records)
            if self._table is None:
                self._table = self._begin_table(internal_key)
            self._table.add(internal_key, value)
            if self._table.size >= _MAX_TABLE_SIZE:
                self._end_table()

    def finish(self) -> None:
        """Write the remaining entries, and finish the last table."""
        self._end_table()
        (self._folder / _MANIFEST).write_bytes(encode_manifest(self._finished_tables, _TABLE_LEVEL, self._num_records))
        (self._folder / "CURRENT").write_text(f"{_MANIFEST}\n")

    def close(self) -> None:
        """Close the file that is being written."""
        if self._file is not None:
            self._file.close()

    def _begin_table(self, smallest: bytes) -> TableWriter:
        self._smallest_key = smallest
        self._file = open(self._folder / f"{self._table_number:06d}.ldb", "xb")  # noqa: SIM115  (closed in `_end_table`)
        return TableWriter(self._file, self._compress)

    def _end_table(self) -> None:
        if self._table is None or self._file is None or self._last_key is None:
            return
        self._table.finish()
        self._file.close()
        largest = join_key(self._last_key, self._num_records)
        self._finished_tables.append(Table(self._table_number, self._table.size, self._smallest_key, largest))
        self._table = None

    @property
    def _table_number(self) -> int:
        return len(self._finished_tables) + 2  # the manifest has number 1
