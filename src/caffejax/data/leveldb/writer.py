"""Writing LevelDB folders."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ...errors import DataError, Problem
from ..folder import Put, as_write_errors, create_folder
from .format import join_key
from .manifest import Table, encode_manifest
from .table_writer import TableWriter

_LEVEL = 6  # LevelDB's last: what lies there is never rewritten for its size
_TABLE = 1 << 26  # bytes, after which the next table begins
_MANIFEST = "MANIFEST-000001"


@contextmanager
def leveldb_writer(path: str | os.PathLike[str], compress: bool = True) -> Iterator[Put]:
    """Make a new LevelDB folder, and give a function that writes a record (key, value) to it.

    The folder appears when the block ends without an exception. The records go straight into tables, so their
    keys must ascend, as those that Caffe's tools give do.

    Args:
        path: the folder to make; its parent must exist.
        compress: whether blocks are compressed with snappy, as LevelDB does unless told otherwise.

    Raises:
        DataError: if the folder exists, keys do not ascend, or writing fails.
    """
    path = Path(path)
    with create_folder(path) as folder:
        tables = _Tables(folder, path, compress)
        try:
            yield tables.put
            with as_write_errors(path):
                tables.finish()
        finally:
            tables.close()


def write_leveldb(path: str | os.PathLike[str], records: Iterable[tuple[bytes, bytes]], compress: bool = True) -> None:
    """Write records (key, value), whose keys ascend, as a new LevelDB folder; see `leveldb_writer`.

    Raises:
        DataError: if the folder exists, keys do not ascend, or writing fails.
    """
    with leveldb_writer(path, compress) as put:
        for key, value in records:
            put(key, value)


class _Tables:
    """The tables of a new database, one after the other."""

    def __init__(self, folder: Path, path: Path, compress: bool) -> None:
        self._folder = folder
        self._path = path
        self._compress = compress
        self._done: list[Table] = []
        self._records = 0
        self._last_key: bytes | None = None
        self._file: BinaryIO | None = None
        self._table: TableWriter | None = None
        self._smallest = b""

    def put(self, key: bytes, value: bytes) -> None:
        """Write a record."""
        if self._last_key is not None and key <= self._last_key:
            how = "occurs twice" if key == self._last_key else f"comes after {self._last_key!r}; keys must ascend"
            raise DataError(Problem(f"key {key!r} {how}", str(self._path)))
        self._records += 1
        self._last_key = key
        with as_write_errors(self._path):
            internal = join_key(key, self._records)
            if self._table is None:
                self._table = self._begin(internal)
            self._table.add(internal, value)
            if self._table.size >= _TABLE:
                self._end()

    def finish(self) -> None:
        """Write what remains."""
        self._end()
        (self._folder / _MANIFEST).write_bytes(encode_manifest(self._done, _LEVEL, self._records))
        (self._folder / "CURRENT").write_text(f"{_MANIFEST}\n")

    def close(self) -> None:
        """Let go of the file being written."""
        if self._file is not None:
            self._file.close()

    def _begin(self, smallest: bytes) -> TableWriter:
        self._smallest = smallest
        self._file = open(self._folder / f"{self._number:06d}.ldb", "xb")  # noqa: SIM115  (closed in `_end`)
        return TableWriter(self._file, self._compress)

    def _end(self) -> None:
        if self._table is None or self._file is None or self._last_key is None:
            return
        self._table.finish()
        self._file.close()
        largest = join_key(self._last_key, self._records)
        self._done.append(Table(self._number, self._table.size, self._smallest, largest))
        self._table = None

    @property
    def _number(self) -> int:
        return len(self._done) + 2  # the manifest is 1
