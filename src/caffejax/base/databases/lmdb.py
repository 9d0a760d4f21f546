"""LMDB folders: read by caffejax itself, written by the reference binding.

caffejax has its own reader because liblmdb trusts the pages that it maps into memory: a damaged page, or a file that
is truncated while it is read, ends the process.
"""

from __future__ import annotations

import os
import struct
import threading
import weakref
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import lmdb

from ..errors import DataError, Problem, locate_errors
from .atomic_folder import PutFn, convert_write_errors, create_folder

# the binding refuses to open a folder twice in a process, but two layers may read the same folder
_environments: weakref.WeakValueDictionary[tuple[int, str], Any] = weakref.WeakValueDictionary()
_open_lock = threading.Lock()
_parent_files: list[Any] = []  # open files of the parent process, which a forked child must not close
_MAX_SNAPSHOT_ATTEMPTS = 5
_FLUSH_SIZE = 1 << 24  # bytes
_RECORD_OVERHEAD = 100  # bytes that a record needs in addition to its value


class Lmdb:
    """The records of an LMDB folder in the order of their keys: `records[i]` is (key, value).

    The folder is opened read-only on first use, and again in a forked or unpickled copy. If it has a lock file, another
    program may write to it at the same time: reads then return the state at the time of opening. No lock file is
    created. Several threads may read at once. Instead of a list of all keys, the reader stores the number and the first
    record of each leaf page that it has passed.

    Raises:
        DataError: on first use, if the folder is missing, not an LMDB, empty or truncated; on any use, if the pages of
            a record are damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._open_file: _OpenFile | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path,)

    def __len__(self) -> int:
        return self._get_open_file().length

    def __getitem__(self, index: int) -> tuple[bytes, bytes]:
        return self.read_range(index, 1)[0]

    def read_range(self, start: int, count: int) -> list[tuple[bytes, bytes]]:
        """Read `count` records, beginning with number `start`. The range must not extend past the last record."""
        open_file = self._get_open_file()
        if not 0 <= start <= start + count <= open_file.length:
            raise IndexError(f"records {start} to {start + count - 1} were requested, but there are {open_file.length}")
        try:
            return open_file.read_range(start, count)
        except (_DamagedError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else f"{error}; the database is damaged"
            raise self._make_error(f"record {start} or a later one cannot be read: {reason}") from None

    def head(self, count: int) -> Lmdb:
        """Return this reader, because an LMDB is opened without reading its keys."""
        return self

    def close(self) -> None:
        """Close the folder after the reads in progress. The next read opens it again."""
        self._open_file = None

    def _get_open_file(self) -> _OpenFile:
        opened_file = self._open_file
        if opened_file is None or opened_file.pid != os.getpid():
            with _open_lock:
                opened_file = self._open_file
                if opened_file is not None and opened_file.pid != os.getpid():
                    _parent_files.append(opened_file)
                    opened_file = None
                if opened_file is None:
                    opened_file = self._open_file = self._open()
        return opened_file

    def _open(self) -> _OpenFile:
        data_path = self.path / "data.mdb"
        if not os.path.isfile(data_path):
            if os.path.isfile(self.path / "CURRENT"):
                problem = "is a LevelDB, not an LMDB; set backend: LEVELDB (with a tool, --backend=leveldb)"
                raise self._make_error(problem)
            problem = "is not an LMDB: it has no data.mdb" if os.path.isdir(self.path) else "no such folder"
            raise self._make_error(f"{problem}; an LMDB is a folder, as written by convert_imageset -backend lmdb")
        try:
            fd = os.open(data_path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise self._make_error(f"data.mdb cannot be opened: {error.strerror}") from error
        try:
            meta, snapshot = self._take_snapshot(fd)
            return _OpenFile(_Pages(fd, meta), snapshot)
        except BaseException as error:
            os.close(fd)
            if isinstance(error, _DamagedError):
                raise self._make_error(str(error)) from None
            raise

    def _take_snapshot(self, fd: int) -> tuple[_Meta, Any]:
        """Return the state to read, and a snapshot, which keeps its pages from being reused, or None without a lock."""
        meta = max(_read_metas(fd), key=lambda meta: meta.transaction)
        _check_meta(meta, os.fstat(fd).st_size)
        if not os.access(self.path / "lock.mdb", os.R_OK | os.W_OK):
            return meta, None
        for _ in range(_MAX_SNAPSHOT_ATTEMPTS):  # two writes may have overwritten the snapshot's state in the meantime
            snapshot = self._begin_snapshot()
            for meta in _read_metas(fd):
                if meta.transaction == snapshot.id():
                    _check_meta(meta, os.fstat(fd).st_size)
                    return meta, snapshot
        raise _DamagedError("another program keeps writing to it; try again")

    def _begin_snapshot(self) -> Any:
        """Register a reader in the lock file. The binding does this without reading pages."""
        environment_key = (os.getpid(), os.path.realpath(self.path))
        environment = _environments.get(environment_key)
        try:
            if environment is None:
                environment = lmdb.open(str(self.path), readonly=True, create=False)
                environment.reader_check()  # removes the entries of killed readers
                _environments[environment_key] = environment
            return environment.begin()
        except lmdb.Error as error:
            raise self._make_error(f"cannot be opened: {error}") from error

    def _make_error(self, message: str) -> DataError:
        return DataError(Problem(message, file=str(self.path)))


class _OpenFile:
    """An open file, and an index of the leaf pages read so far. It is closed when the last reference is gone."""

    def __init__(self, pages: _Pages, snapshot: Any) -> None:
        self.pid, self.length = os.getpid(), pages.meta.entries
        self._pages, self._snapshot = pages, snapshot
        self._lock = threading.Lock()
        self._leaves = array("Q")  # page numbers
        self._leaf_starts = array("Q")  # the number of each page's first record
        self._unread_leaves = pages.iterate_leaves()  # of another object: a reference to this one would keep it open
        self._num_indexed_records = 0  # records in these leaves
        self._cached_leaf: tuple[int, list[_Node]] | None = None
        weakref.finalize(self, os.close, pages.fd).atexit = False

    def read_range(self, start: int, count: int) -> list[tuple[bytes, bytes]]:
        records: list[tuple[bytes, bytes]] = []
        while len(records) < count:
            nodes, first_index = self._read_leaf(start + len(records))
            nodes = nodes[start + len(records) - first_index :][: count - len(records)]
            records += [(key, self._pages.read_value(value)) for key, value in nodes]
        return records

    def _read_leaf(self, index: int) -> tuple[list[_Node], int]:
        """Return the records of the leaf page that contains record `index`, and the number of its first record."""
        with self._lock:
            while self._num_indexed_records <= index:
                self._index_next_leaf()
        i = bisect_right(self._leaf_starts, index) - 1
        leaf, first_index = self._leaves[i], self._leaf_starts[i]
        cached_leaf = self._cached_leaf
        if cached_leaf is None or cached_leaf[0] != leaf:
            self._cached_leaf = cached_leaf = leaf, self._pages.read_nodes(leaf)
        if len(cached_leaf[1]) <= index - first_index:
            raise _DamagedError(
                f"page {leaf} has fewer records than when it was indexed; the file may have been changed during reading"
            )
        return cached_leaf[1], first_index

    def _index_next_leaf(self) -> None:
        leaf = next(self._unread_leaves, None)
        num_records = 0 if leaf is None else len(self._pages.read_page(leaf, _LEAF_PAGE)[1])
        if leaf is None or not num_records or self._num_indexed_records + num_records > self.length:
            raise _DamagedError(f"its pages do not contain the {self.length} records that its header states")
        self._leaves.append(leaf)
        self._leaf_starts.append(self._num_indexed_records)
        self._num_indexed_records += num_records


@contextmanager
def lmdb_writer(path: str | os.PathLike[str]) -> Iterator[PutFn]:
    """Create a new LMDB folder, and yield a function that writes a record (key, value) to it.

    The folder appears when the `with` block ends without an exception. Keys have 1 to 511 bytes, must be distinct, and
    may come in any order.

    Args:
        path: the folder to create; its parent must exist.

    Raises:
        DataError: if the folder exists, a key occurs twice or has a wrong length, or writing fails.
    """
    path = Path(path)
    with create_folder(path) as folder:
        with convert_write_errors(path, lmdb.Error):
            environment = lmdb.open(str(folder), map_size=1 << 26, lock=False)
        with environment:
            chunk: list[tuple[bytes, bytes]] = []
            pending_size = 0

            def flush() -> None:
                nonlocal pending_size
                with convert_write_errors(path, lmdb.Error), locate_errors(file=str(path)):
                    _put_records(environment, chunk)
                chunk.clear()
                pending_size = 0

            def put(key: bytes, value: bytes) -> None:
                nonlocal pending_size
                chunk.append((key, value))
                pending_size += len(value) + _RECORD_OVERHEAD
                if pending_size >= _FLUSH_SIZE:
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


def _put_records(environment: Any, records: list[tuple[bytes, bytes]]) -> None:
    while True:
        try:
            with environment.begin(write=True) as txn:
                cursor = txn.cursor()
                last_key = cursor.key() if cursor.last() else b""
                for key, value in records:
                    if len(key) > (limit := environment.max_key_size()) or not key:
                        text = f"key {key[:40]!r} has {len(key)} bytes, but keys in LMDB have 1 to {limit}"
                        raise DataError(f"{text}; shorten the names, or write a LevelDB")
                    # appending fills the pages; inserting leaves them half empty
                    if not cursor.put(key, value, overwrite=False, append=key > last_key):
                        raise DataError(f"key {key!r} occurs twice")
                    last_key = max(last_key, key)
            return
        except lmdb.MapFullError:
            environment.set_mapsize(2 * environment.info()["map_size"])


_HEADER = struct.Struct("<QHHHH")  # number, unused, flags, end of the table of nodes, begin of the nodes
_OVERFLOW_HEADER = struct.Struct("<QHHI")  # number, unused, flags, pages
_NODE = struct.Struct("<HHHH")  # size or child in two parts, flags or its third part, length of the key
_PAGE_NUMBER = struct.Struct("<Q")
# a meta page: the flags in its header; magic and version; the page size, a field of the database of free pages; the
# other database; last page and transaction
_META = struct.Struct("<10xH4x II16x I44x 6xHQQ8xQQ QQ")

_MAGIC, _VERSION = 0xBEEFC0DE, 1
_BRANCH_PAGE, _LEAF_PAGE, _OVERFLOW_PAGE, _META_PAGE = 1, 2, 4, 8
_BIG_DATA_NODE = 1  # a node whose value is on separate pages
_NO_ROOT = (1 << 64) - 1  # the root of a database without records
_MAX_TREE_DEPTH = 32
_PAGE_SIZES = [1 << n for n in range(8, 17)]


class _DamagedError(Exception):  # becomes a DataError that names the file
    """Raised if the data is not a complete LMDB."""


class _Meta(NamedTuple):
    """The state of the file after a transaction: fields of LMDB's meta page, in its order."""

    page_size: int
    depth: int
    branch_pages: int
    leaf_pages: int
    entries: int
    root: int
    last_page: int
    transaction: int


_Node = tuple[bytes, bytes | tuple[int, int]]  # a record: its key and value, or a large value's first page and size


def _read_metas(fd: int) -> list[_Meta]:
    """Read the last two states of a file, as far as they are intact."""
    if not os.fstat(fd).st_size:
        raise _DamagedError("data.mdb is empty; recreate it or copy it again")
    first_meta = _parse_meta(os.pread(fd, _META.size, 0))
    # the second meta page follows the first, whose size the first one states
    size = first_meta.page_size if first_meta else 4096
    metas = [meta for meta in (first_meta, _parse_meta(os.pread(fd, _META.size, size))) if meta is not None]
    if not metas:
        raise _DamagedError("data.mdb is not an LMDB, or is damaged; recreate it or copy it again")
    return metas


def _parse_meta(page: bytes) -> _Meta | None:
    if len(page) < _META.size:
        return None
    flags, magic, version, *state = _META.unpack_from(page)
    meta = _Meta(*state)
    is_valid = flags & _META_PAGE and (magic, version) == (_MAGIC, _VERSION) and meta.page_size in _PAGE_SIZES
    return meta if is_valid else None


def _check_meta(meta: _Meta, file_size: int) -> None:
    min_size = (meta.last_page + 1) * meta.page_size
    if file_size < min_size:
        raise _DamagedError(f"data.mdb is truncated: {file_size} of {min_size} bytes; recreate it or copy it again")
    if meta.entries > file_size:
        raise _DamagedError("data.mdb is damaged; recreate it or copy it again")
    if not meta.entries:
        raise _DamagedError("the LMDB has no records")


@dataclass(frozen=True)
class _Pages:
    """The pages of a file in the state after a transaction. Several threads may read at once."""

    fd: int
    meta: _Meta

    def iterate_leaves(self) -> Iterator[int]:
        """Yield the numbers of the leaf pages, in the order of their keys."""
        meta = self.meta
        if meta.root == _NO_ROOT:
            return
        if not 1 <= meta.depth <= _MAX_TREE_DEPTH:
            raise _DamagedError(f"its tree has depth {meta.depth}, which is not 1 to {_MAX_TREE_DEPTH}")
        num_branches, num_leaves = 0, 0
        pending_pages = [(meta.root, 1)]
        while pending_pages:
            page_number, depth = pending_pages.pop()
            if depth == meta.depth:
                num_leaves += 1
                if num_leaves > meta.leaf_pages:
                    raise _DamagedError(f"it has more leaf pages than the {meta.leaf_pages} that it states")
                yield page_number
                continue
            num_branches += 1
            if num_branches > meta.branch_pages:
                raise _DamagedError(f"it has more branch pages than the {meta.branch_pages} that it states")
            page, offsets = self.read_page(page_number, _BRANCH_PAGE)
            children = [_NODE.unpack_from(page, offset) for offset in reversed(offsets)]
            pending_pages += [(low | middle << 16 | high << 32, depth + 1) for low, middle, high, _ in children]

    def read_nodes(self, leaf: int) -> list[_Node]:
        page, offsets = self.read_page(leaf, _LEAF_PAGE)
        return [self._parse_node(page, offset) for offset in offsets]

    def read_value(self, value: bytes | tuple[int, int]) -> bytes:
        if isinstance(value, bytes):
            return value
        page, size = value
        data = self._read_pages(page, _HEADER.size + size)
        page_number, _, flags, num_pages = _OVERFLOW_HEADER.unpack_from(data)
        if page_number != page or not flags & _OVERFLOW_PAGE or num_pages * self.meta.page_size < len(data):
            raise _DamagedError(f"page {page} is not the start of a value of {size} bytes")
        return data[_HEADER.size :]

    def _parse_node(self, page: bytes, offset: int) -> _Node:
        low, high, flags, length = _NODE.unpack_from(page, offset)
        start = offset + _NODE.size
        key, size, start = page[start : start + length], low | high << 16, start + length
        if flags & ~_BIG_DATA_NODE:
            problem = "contains named databases, or several values for one key"
            raise _DamagedError(f"{problem}; Caffe's databases have neither")
        end = start + (_PAGE_NUMBER.size if flags & _BIG_DATA_NODE else size)
        if len(key) < length or end > len(page):
            raise _DamagedError("a record extends beyond the end of its page")
        if flags & _BIG_DATA_NODE:
            return key, (_PAGE_NUMBER.unpack_from(page, start)[0], size)
        return key, page[start:end]

    def read_page(self, page_number: int, page_type: int) -> tuple[bytes, tuple[int, ...]]:
        page = self._read_pages(page_number, self.meta.page_size)
        stored_number, _, flags, lower, upper = _HEADER.unpack_from(page)
        kind = flags & (_BRANCH_PAGE | _LEAF_PAGE | _OVERFLOW_PAGE | _META_PAGE)
        if stored_number != page_number or kind != page_type:
            raise _DamagedError(f"page {page_number} is not of the kind expected at its position in the tree")
        if not _HEADER.size <= lower <= upper <= len(page) or lower % 2:
            raise _DamagedError(f"a page has free space with the invalid limits {lower} and {upper}")
        offsets = struct.unpack_from(f"<{(lower - _HEADER.size) // 2}H", page, _HEADER.size)
        if any(not upper <= offset <= len(page) - _NODE.size for offset in offsets):
            raise _DamagedError("a page lists a node outside of it")
        return page, offsets

    def _read_pages(self, page_number: int, size: int) -> bytes:
        start = page_number * self.meta.page_size
        if not 1 < page_number <= self.meta.last_page or start + size > (self.meta.last_page + 1) * self.meta.page_size:
            raise _DamagedError(f"it refers to page {page_number}, but has {self.meta.last_page + 1} pages")
        data = os.pread(self.fd, size, start)
        while len(data) < size:  # one call reads no more than 2 GB
            part = os.pread(self.fd, size - len(data), start + len(data))
            if not part:
                raise _DamagedError(f"it was truncated: page {page_number} is missing")
            data += part
        return data
