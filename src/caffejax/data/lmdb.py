"""LMDB folders: reading records by position, and writing them."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import lmdb

from ..errors import DataError, Problem, located
from .folder import Put, as_write_errors, create_folder

_MARK_EVERY = 64  # a jump walks at most this many records; the marks of a million records take 1 MB
_WRITE_AT_ONCE = 1 << 24  # bytes
_OVERHEAD = 100  # bytes, what a record takes besides its value

# The binding refuses to open a folder twice in a process, but two layers may well read the same one.
_environments: weakref.WeakValueDictionary[tuple[int, str], Any] = weakref.WeakValueDictionary()
_opening = threading.Lock()


class Lmdb:
    """The records of an LMDB folder in the order of their keys: `records[i]` is (key, value).

    Opens the folder when first asked, read-only, and again in a forked or unpickled copy. Where there is a lock file,
    another program may write meanwhile: what is read is what was there at first. None is made. Every thread has its
    own place. Reading on from the last position costs one step; any other position is reached through keys marked on
    the way, so that no list of all keys is kept.

    Not every damage can be caught: liblmdb itself ends the process at some pages overwritten in mid-file.

    Raises:
        DataError: on first use, if the folder is missing, not an LMDB, empty or truncated.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._own = threading.local()
        self._readers: list[_Reader] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path,)

    def __len__(self) -> int:
        return self._reader().length

    def __getitem__(self, index: int) -> tuple[bytes, bytes]:
        return self.read_range(index, 1)[0]

    def read_range(self, start: int, count: int) -> list[tuple[bytes, bytes]]:
        """Read that many records from number `start` on, not beyond the last."""
        reader = self._reader()
        if not 0 <= start <= start + count <= reader.length:
            raise IndexError(f"{start} to {start + count}, of {reader.length}")
        try:
            return reader.read_range(start, count)
        except lmdb.Error as error:
            raise self._error(
                f"record {start} or one after it cannot be read: {error}; the database is damaged"
            ) from error
        except EOFError as error:
            raise self._error(f"{error} of {reader.length} records; the database is damaged") from error

    def head(self, count: int) -> Lmdb:
        """Return a reader of the first records: this one, since an LMDB is opened without reading its keys."""
        return self

    def close(self) -> None:
        """Let go of the folder. The next read opens it again."""
        with _opening:
            readers, self._readers, self._own = self._readers, [], threading.local()
            for reader in readers:
                reader.close()

    def _reader(self) -> _Reader:
        reader: _Reader | None = getattr(self._own, "reader", None)
        if reader is None or reader.pid != os.getpid():
            with _opening:
                reader = self._own.reader = self._open()
                self._readers.append(reader)
        return reader

    def _open(self) -> _Reader:
        environment = self._environment()
        self._check_size(environment)
        try:
            return _Reader(environment)
        except lmdb.NotFoundError as error:
            raise self._error("the LMDB has no records") from error
        except lmdb.Error as error:
            raise self._error(f"cannot be read: {error}") from error

    def _environment(self) -> Any:
        if not (self.path / "data.mdb").is_file():
            if (self.path / "CURRENT").is_file():
                raise self._error("is a LevelDB, not an LMDB; set backend: LEVELDB (with a tool, --backend=leveldb)")
            missing = "is not an LMDB: it has no data.mdb" if self.path.is_dir() else "no such folder"
            raise self._error(f"{missing}; an LMDB is a folder, as convert_imageset -backend lmdb makes it")
        name = (os.getpid(), os.path.realpath(self.path))
        environment = _environments.get(name)
        if environment is None:
            # The writer that made the lock file looks there for pages that are still being read.
            locked = os.access(self.path / "lock.mdb", os.R_OK | os.W_OK)
            if not (self.path / "data.mdb").stat().st_size:
                raise self._error("data.mdb is empty; make or copy it anew")
            try:
                environment = lmdb.open(str(self.path), readonly=True, lock=locked, create=False)
                if locked:
                    environment.reader_check()  # killed readers keep their places else
            except lmdb.InvalidError as error:
                raise self._error("data.mdb is not an LMDB, or is damaged; make or copy it anew") from error
            except lmdb.Error as error:
                raise self._error(f"cannot be opened: {error}") from error
            _environments[name] = environment
        return environment

    def _check_size(self, environment: Any) -> None:
        # Pages are read through a memory map: one beyond the end of the file would kill the process.
        stat, size = environment.stat(), (self.path / "data.mdb").stat().st_size
        needed = (environment.info()["last_pgno"] + 1) * stat["psize"]
        if size < needed:
            raise self._error(f"data.mdb is truncated: {size} of {needed} bytes; make or copy it anew")
        if stat["entries"] > size:
            raise self._error("data.mdb is damaged; make or copy it anew")

    def _error(self, message: str) -> DataError:
        return DataError(Problem(message, file=str(self.path)))


class _Reader:
    """One thread's place in an LMDB."""

    def __init__(self, environment: Any) -> None:
        self.pid = os.getpid()
        self._environment = environment
        self._txn = environment.begin()
        self.length: int = self._txn.stat()["entries"]
        self._cursor = self._txn.cursor()
        if not self._cursor.first():
            raise lmdb.NotFoundError("no records")
        self._at = 0
        self._marks: list[bytes] = [self._cursor.key()]
        self._in_use = threading.Lock()

    def close(self) -> None:
        """Wait for a read under way, and let go of the files. Another process's are not ours to close."""
        with self._in_use:
            if self.pid == os.getpid():
                self._cursor.close()
                self._txn.abort()
            self._cursor = self._txn = self._environment = None

    def read_range(self, start: int, count: int) -> list[tuple[bytes, bytes]]:
        """Read records from number `start` on.

        Raises:
            EOFError: if there are fewer than the LMDB says.
            DataError: if the reader has been closed.
        """
        with self._in_use:
            if self._cursor is None:
                raise DataError("the database was closed while it was read")
            self._jump(start)
            self._walk(start)
            records = list(islice(self._cursor.iternext(), count))
            self._at = start + len(records) - 1
            for index in range(len(self._marks) * _MARK_EVERY, self._at + 1, _MARK_EVERY):
                self._marks.append(records[index - start][0])
            if len(records) < count:
                raise EOFError(f"ends after {self._at + 1}")
            return records

    def _jump(self, index: int) -> None:
        """Go to that record, or to a mark not far before it."""
        mark = min(index // _MARK_EVERY, len(self._marks) - 1)
        if not mark * _MARK_EVERY <= self._at <= index:
            self._cursor.set_key(self._marks[mark])
            self._at = mark * _MARK_EVERY

    def _walk(self, index: int) -> None:
        """Go on to that record, step by step."""
        while self._at < index:
            if not self._cursor.next():
                raise EOFError(f"ends after {self._at + 1}")
            self._at += 1
            if self._at == len(self._marks) * _MARK_EVERY:
                self._marks.append(self._cursor.key())


@contextmanager
def lmdb_writer(path: str | os.PathLike[str]) -> Iterator[Put]:
    """Make a new LMDB folder, and give a function that writes a record (key, value) to it.

    The folder appears when the block ends without an exception. Keys have 1 to 511 bytes, each occurs once,
    and they may come in any order.

    Args:
        path: the folder to make; its parent must exist.

    Raises:
        DataError: if the folder exists, a key occurs twice or has a wrong length, or writing fails.
    """
    path = Path(path)
    with create_folder(path) as folder:
        with as_write_errors(path, lmdb.Error):
            environment = lmdb.open(str(folder), map_size=1 << 26, lock=False)
        with environment:
            chunk: list[tuple[bytes, bytes]] = []
            held = 0

            def flush() -> None:
                nonlocal held
                with as_write_errors(path, lmdb.Error), located(file=str(path)):
                    _put_all(environment, chunk)
                chunk.clear()
                held = 0

            def put(key: bytes, value: bytes) -> None:
                nonlocal held
                chunk.append((key, value))
                held += len(value) + _OVERHEAD
                if held >= _WRITE_AT_ONCE:
                    flush()

            yield put
            flush()


def write_lmdb(path: str | os.PathLike[str], records: Iterable[tuple[bytes, bytes]]) -> None:
    """Write records (key, value) as a new LMDB folder; see `lmdb_writer`.

    Raises:
        DataError: if the folder exists, a key occurs twice or has a wrong length, or writing fails.
    """
    with lmdb_writer(path) as put:
        for key, value in records:
            put(key, value)


def _put_all(environment: Any, records: list[tuple[bytes, bytes]]) -> None:
    while True:
        try:
            with environment.begin(write=True) as txn:
                _put_each(txn, records)
            return
        except lmdb.MapFullError:
            environment.set_mapsize(2 * environment.info()["map_size"])


def _put_each(txn: Any, records: list[tuple[bytes, bytes]]) -> None:
    cursor = txn.cursor()
    last = cursor.key() if cursor.last() else b""
    for key, value in records:
        # Appending fills the pages; putting leaves them half empty.
        if not cursor.put(key, value, overwrite=False, append=key > last):
            raise DataError(f"key {key!r} occurs twice")
        last = max(last, key)
