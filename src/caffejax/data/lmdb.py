"""LMDB folders: read by caffejax itself, written by the reference binding.

caffejax has its own reader because liblmdb trusts the pages that it maps into memory: a damaged page, or a file that
is truncated while it is read, ends the process.
"""

from __future__ import annotations

import os
import threading
import weakref
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb

from ..errors import DataError, Problem, located
from .folder import Put, as_write_errors, create_folder
from .lmdb_pages import Damaged, Meta, Node, Pages, meta_of, read_meta

# The binding refuses to open a folder twice in a process, but two layers may well read the same one.
_environments: weakref.WeakValueDictionary[tuple[int, str], Any] = weakref.WeakValueDictionary()
_opening = threading.Lock()
_inherited: list[Any] = []  # readers of the parent process, which a forked child must not close
_TRIES = 5


class Lmdb:
    """The records of an LMDB folder in the order of their keys: `records[i]` is (key, value).

    The folder is opened read-only on first use, and again in a forked or unpickled copy. If there is a lock file,
    another program may write at the same time, and reads return the state at opening; no lock file is created. Several
    threads may read at once. The places of leaf pages are stored as they are passed, eight bytes for each page, instead
    of a list of all keys.

    Raises:
        DataError: on first use, if the folder is missing, not an LMDB, empty or truncated; on any use, where it is
            damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._opened: _Opened | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path,)

    def __len__(self) -> int:
        return self._reader().length

    def __getitem__(self, index: int) -> tuple[bytes, bytes]:
        return self.read_range(index, 1)[0]

    def read_range(self, start: int, count: int) -> list[tuple[bytes, bytes]]:
        """Read `count` records from number `start` on. The range must not exceed the last record."""
        reader = self._reader()
        if not 0 <= start <= start + count <= reader.length:
            raise IndexError(f"{start} to {start + count}, of {reader.length}")
        try:
            return reader.read_range(start, count)
        except Damaged as error:
            raise self._error(
                f"record {start} or one after it cannot be read: {error}; the database is damaged"
            ) from None
        except OSError as error:
            raise self._error(f"record {start} or one after it cannot be read: {error.strerror}") from error

    def head(self, count: int) -> Lmdb:
        """Return a reader of the first records: this one, since an LMDB is opened without reading its keys."""
        return self

    def close(self) -> None:
        """Close the folder when running reads have ended. The next read opens it again."""
        self._opened = None

    def _reader(self) -> _Opened:
        opened = self._opened
        if opened is None or opened.pid != os.getpid():
            with _opening:
                opened = self._opened
                if opened is not None and opened.pid != os.getpid():
                    _inherited.append(opened)
                    opened = None
                if opened is None:
                    opened = self._opened = self._open()
        return opened

    def _open(self) -> _Opened:
        data = self.path / "data.mdb"
        if not os.path.isfile(data):
            if os.path.isfile(self.path / "CURRENT"):
                raise self._error("is a LevelDB, not an LMDB; set backend: LEVELDB (with a tool, --backend=leveldb)")
            missing = "is not an LMDB: it has no data.mdb" if os.path.isdir(self.path) else "no such folder"
            raise self._error(f"{missing}; an LMDB is a folder, as convert_imageset -backend lmdb makes it")
        try:
            file = os.open(data, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise self._error(f"data.mdb cannot be opened: {error.strerror}") from error
        try:
            return self._read_state(file)
        except BaseException:
            os.close(file)
            raise

    def _read_state(self, file: int) -> _Opened:
        if not os.fstat(file).st_size:
            raise self._error("data.mdb is empty; make or copy it again")
        try:
            meta = read_meta(file)
            self._check(meta, os.fstat(file).st_size)
            meta, snapshot = self._held(file, meta)
        except Damaged as error:
            raise self._error(str(error)) from None
        return _Opened(Pages(file, meta), snapshot)

    def _check(self, meta: Meta, size: int) -> None:
        needed = (meta.last_page + 1) * meta.page_size
        if size < needed:
            raise Damaged(f"data.mdb is truncated: {size} of {needed} bytes; make or copy it again")
        if meta.entries > size:
            raise Damaged("data.mdb is damaged; make or copy it again")
        if not meta.entries:
            raise Damaged("the LMDB has no records")

    def _held(self, file: int, meta: Meta) -> tuple[Meta, Any]:
        """Return the state to read, and a snapshot that keeps writers from reusing its pages."""
        if not os.access(self.path / "lock.mdb", os.R_OK | os.W_OK):
            return meta, None
        for _ in range(_TRIES):  # two writes since may have overwritten the state that the snapshot is of
            snapshot = self._snapshot()
            if (held := meta_of(file, snapshot.id())) is not None:
                self._check(held, os.fstat(file).st_size)
                return held, snapshot
        raise Damaged("another program writes to it all the time; try again")

    def _snapshot(self) -> Any:
        """Register a reader in the lock file by the binding, which reads no pages itself."""
        name = (os.getpid(), os.path.realpath(self.path))
        environment = _environments.get(name)
        try:
            if environment is None:
                environment = lmdb.open(str(self.path), readonly=True, create=False)
                environment.reader_check()  # removes the entries of killed readers
                _environments[name] = environment
            return environment.begin()
        except lmdb.Error as error:
            raise self._error(f"cannot be opened: {error}") from error

    def _error(self, message: str) -> DataError:
        return DataError(Problem(message, file=str(self.path)))


class _Opened:
    """An open file with the places of the leaf pages passed so far. It is closed with its last reference."""

    def __init__(self, pages: Pages, snapshot: Any) -> None:
        self.pid = os.getpid()
        self._pages, self._snapshot = pages, snapshot
        self._passing = threading.Lock()
        self._leaves, self._starts = array("Q"), array("Q")  # and the number of each one's first record
        self._next = pages.leaves()
        self._passed = 0  # records in these leaves
        self._last: tuple[int, list[Node]] | None = None
        weakref.finalize(self, os.close, pages.file).atexit = False

    @property
    def length(self) -> int:
        """How many records there are."""
        return self._pages.meta.entries

    def read_range(self, start: int, count: int) -> list[tuple[bytes, bytes]]:
        """Read records from number `start` on; raises `Damaged`."""
        records: list[tuple[bytes, bytes]] = []
        while len(records) < count:
            nodes, first = self._leaf_of(start + len(records))
            nodes = nodes[start + len(records) - first :][: count - len(records)]
            records += [(node.key, self._pages.value(node)) for node in nodes]
        return records

    def _leaf_of(self, index: int) -> tuple[list[Node], int]:
        """Return the records of the leaf that has the record of this number, and the number of their first."""
        with self._passing:
            while self._passed <= index:
                self._pass_one()
        i = bisect_right(self._starts, index) - 1
        leaf, first = self._leaves[i], self._starts[i]
        last = self._last
        if last is None or last[0] != leaf:
            self._last = last = leaf, self._pages.records(leaf)
        if len(last[1]) <= index - first:
            raise Damaged(f"page {leaf} has fewer records than it had")
        return last[1], first

    def _pass_one(self) -> None:
        leaf = next(self._next, None)
        count = 0 if leaf is None else self._pages.count(leaf)
        if leaf is None or not count or self._passed + count > self.length:
            raise Damaged(f"its pages do not hold the {self.length} records that it says it has")
        self._leaves.append(leaf)
        self._starts.append(self._passed)
        self._passed += count


_WRITE_AT_ONCE = 1 << 24  # bytes
_OVERHEAD = 100  # bytes, what a record takes besides its value


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
