"""Writing of LevelDB folders."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import cramjam

from ...errors import DataError, Problem
from ...varint import encode_varint
from ..atomic_folder import PutFn, convert_write_errors, create_folder
from .leveldb_format import checksum, join_key
from .manifest import Table, encode_manifest
from .sorted_table import FOOTER, MAGIC, RAW, SNAPPY, TRAILER

_BLOCK_SIZE = 1 << 16  # as in Caffe; LevelDB's default is 4 KiB
_RESTART_INTERVAL = 16
_TABLE_LEVEL = 6  # LevelDB's last level, whose tables are not compacted
_MAX_TABLE_SIZE = 1 << 26  # bytes after which the next table begins
_MANIFEST = "MANIFEST-000001"


class _TableWriter:
    """A writer of entries with ascending keys to a new table file."""

    def __init__(self, path: Path, compress: bool) -> None:
        self.size = 0
        self.smallest = b""
        self.file = open(path, "xb")  # noqa: SIM115  (closed by the caller)
        self._compress = compress
        self._block = _BlockBuilder(_RESTART_INTERVAL)
        self._index = _BlockBuilder(1)  # the last key and the handle of each block

    def add(self, key: bytes, value: bytes) -> None:
        """Write an entry. The key includes its tag."""
        self.smallest = self.smallest or key
        self._block.add(key, value)
        if len(self._block.data) >= _BLOCK_SIZE:
            self._end_block()

    def finish(self, number: int) -> Table:
        """Write the remaining entries, the index and the footer; return the table with its number."""
        if self._block.data:
            self._end_block()
        filter_handle = self._write(_BlockBuilder(1))
        index_handle = self._write(self._index)
        self._put(FOOTER.pack(filter_handle + index_handle, MAGIC))
        return Table(number, self.size, self.smallest, self._index.last_key)

    def _end_block(self) -> None:
        self._index.add(self._block.last_key, self._write(self._block))
        self._block = _BlockBuilder(_RESTART_INTERVAL)

    def _write(self, block: _BlockBuilder) -> bytes:
        data, compression = block.serialize(), RAW
        if self._compress:
            compressed_data = bytes(cramjam.snappy.compress_raw(data))
            if len(compressed_data) < len(data) - len(data) // 8:  # as in LevelDB
                data, compression = compressed_data, SNAPPY
        handle = encode_varint(self.size) + encode_varint(len(data))
        data += bytes([compression])
        self._put(data + TRAILER.pack(compression, checksum(data))[1:])
        return handle

    def _put(self, data: bytes) -> None:
        self.file.write(data)
        self.size += len(data)


class _BlockBuilder:
    """A block, in which keys lack the prefix that they share with the previous key, except at restart points."""

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
        shared = 0
        if self._num_entries_since_restart:
            for a, b in zip(self.last_key, key, strict=False):  # faster than os.path.commonprefix
                if a != b:
                    break
                shared += 1
        self.data += encode_varint(shared) + encode_varint(len(key) - shared) + encode_varint(len(value))
        self.data += key[shared:] + value
        self.last_key = key
        self._num_entries_since_restart += 1

    def serialize(self) -> bytes:
        offsets = self._restart_offsets
        return bytes(self.data) + struct.pack(f"<{len(offsets) + 1}I", *offsets, len(offsets))


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
        self._folder, self._path, self._compress = folder, path, compress
        self._finished_tables: list[Table] = []
        self._num_records = 0
        self._last_key: bytes | None = None
        self._table: _TableWriter | None = None

    def put(self, key: bytes, value: bytes) -> None:
        if self._last_key is not None and key <= self._last_key:
            problem = "occurs twice" if key == self._last_key else f"comes after {self._last_key!r}; keys must ascend"
            raise DataError(Problem(f"key {key!r} {problem}", str(self._path)))
        self._num_records += 1
        self._last_key = key
        with convert_write_errors(self._path):
            if self._table is None:
                self._table = _TableWriter(self._folder / f"{self._table_number:06d}.ldb", self._compress)
            self._table.add(join_key(key, self._num_records), value)
            if self._table.size >= _MAX_TABLE_SIZE:
                self._end_table()

    def finish(self) -> None:
        self._end_table()
        (self._folder / _MANIFEST).write_bytes(encode_manifest(self._finished_tables, _TABLE_LEVEL, self._num_records))
        (self._folder / "CURRENT").write_text(f"{_MANIFEST}\n")

    def close(self) -> None:
        if self._table is not None:
            self._table.file.close()

    def _end_table(self) -> None:
        if self._table is not None:
            self._finished_tables.append(self._table.finish(self._table_number))
            self.close()
            self._table = None

    @property
    def _table_number(self) -> int:
        return len(self._finished_tables) + 2  # the manifest has number 1
