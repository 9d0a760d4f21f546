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

from ...base.errors import DataError, Problem, locate_errors
from .atomic_folder import PutFn, convert_write_errors, create_folder

# the binding refuses to open a folder twice in a process, but two layers may read the same folder
_environments: weakref.WeakValueDictionary[tuple[int, str], Any] = weakref.WeakValueDictionary()
_open_lock = threading.Lock()
_parent_files: list[Any] = []  # open files of the parent process, which a forked child must not close
_MAX_SNAPSHOT_ATTEMPTS = 5


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
        except DamagedError as error:
            raise self._make_error(
                f"record {start} or a later one cannot be read: {error}; the database is damaged"
            ) from None
        except OSError as error:
            raise self._make_error(f"record {start} or a later one cannot be read: {error.strerror}") from error

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
                raise self._make_error(
                    "is a LevelDB, not an LMDB; set backend: LEVELDB (with a tool, --backend=leveldb)"
                )
            problem = "is not an LMDB: it has no data.mdb" if os.path.isdir(self.path) else "no such folder"
            raise self._make_error(f"{problem}; an LMDB is a folder, as written by convert_imageset -backend lmdb")
        try:
            fd = os.open(data_path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise self._make_error(f"data.mdb cannot be opened: {error.strerror}") from error
        try:
            return self._index_pages(fd)
        except BaseException:
            os.close(fd)
            raise

    def _index_pages(self, fd: int) -> _OpenFile:
        if not os.fstat(fd).st_size:
            raise self._make_error("data.mdb is empty; recreate it or copy it again")
        try:
            meta = read_meta(fd)
            self._check_meta(meta, os.fstat(fd).st_size)
            meta, snapshot = self._take_snapshot(fd, meta)
        except DamagedError as error:
            raise self._make_error(str(error)) from None
        return _OpenFile(Pages(fd, meta), snapshot)

    def _check_meta(self, meta: Meta, file_size: int) -> None:
        min_size = (meta.last_page + 1) * meta.page_size
        if file_size < min_size:
            raise DamagedError(f"data.mdb is truncated: {file_size} of {min_size} bytes; recreate it or copy it again")
        if meta.entries > file_size:
            raise DamagedError("data.mdb is damaged; recreate it or copy it again")
        if not meta.entries:
            raise DamagedError("the LMDB has no records")

    def _take_snapshot(self, fd: int, meta: Meta) -> tuple[Meta, Any]:
        """Return the state to read, and a snapshot that prevents writers from reusing its pages.

        Without a lock file the snapshot is None.
        """
        if not os.access(self.path / "lock.mdb", os.R_OK | os.W_OK):
            return meta, None
        for _ in range(_MAX_SNAPSHOT_ATTEMPTS):  # two writes may have overwritten the snapshot's state in the meantime
            snapshot = self._begin_snapshot()
            if (snapshot_meta := find_meta(fd, snapshot.id())) is not None:
                self._check_meta(snapshot_meta, os.fstat(fd).st_size)
                return snapshot_meta, snapshot
        raise DamagedError("another program keeps writing to it; try again")

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
    """An open file, and an index of the leaf pages read so far.

    The file is closed when the last reference to this object is gone.
    """

    def __init__(self, pages: Pages, snapshot: Any) -> None:
        self.pid = os.getpid()
        self._pages, self._snapshot = pages, snapshot
        self._lock = threading.Lock()
        self._leaves = array("Q")  # page numbers
        self._leaf_starts = array("Q")  # the number of each page's first record
        self._unread_leaves = pages.iterate_leaves()
        self._num_indexed_records = 0  # records in these leaves
        self._cached_leaf: tuple[int, list[Node]] | None = None
        weakref.finalize(self, os.close, pages.fd).atexit = False

    @property
    def length(self) -> int:
        """The number of records."""
        return self._pages.meta.entries

    def read_range(self, start: int, count: int) -> list[tuple[bytes, bytes]]:
        """Read `count` records, beginning with number `start`.

        Raises:
            DamagedError: if a page is damaged.
        """
        records: list[tuple[bytes, bytes]] = []
        while len(records) < count:
            nodes, first_index = self._read_leaf(start + len(records))
            nodes = nodes[start + len(records) - first_index :][: count - len(records)]
            records += [(node.key, self._pages.read_value(node)) for node in nodes]
        return records

    def _read_leaf(self, index: int) -> tuple[list[Node], int]:
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
            raise DamagedError(
                f"page {leaf} has fewer records than when it was indexed; the file may have been changed during reading"
            )
        return cached_leaf[1], first_index

    def _index_next_leaf(self) -> None:
        leaf = next(self._unread_leaves, None)
        num_records = 0 if leaf is None else self._pages.count_records(leaf)
        if leaf is None or not num_records or self._num_indexed_records + num_records > self.length:
            raise DamagedError(f"its pages do not contain the {self.length} records that its header states")
        self._leaves.append(leaf)
        self._leaf_starts.append(self._num_indexed_records)
        self._num_indexed_records += num_records


_FLUSH_SIZE = 1 << 24  # bytes
_RECORD_OVERHEAD = 100  # bytes that a record needs in addition to its value


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
                    _put_growing_map(environment, chunk)
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


def _put_growing_map(environment: Any, records: list[tuple[bytes, bytes]]) -> None:
    while True:
        try:
            with environment.begin(write=True) as txn:
                _put_records(txn, records)
            return
        except lmdb.MapFullError:
            environment.set_mapsize(2 * environment.info()["map_size"])


def _put_records(txn: Any, records: list[tuple[bytes, bytes]]) -> None:
    cursor = txn.cursor()
    last_key = cursor.key() if cursor.last() else b""
    for key, value in records:
        # Appending fills the pages; inserting leaves them half empty.
        if not cursor.put(key, value, overwrite=False, append=key > last_key):
            raise DataError(f"key {key!r} occurs twice")
        last_key = max(last_key, key)


HEADER = struct.Struct("<QHHHH")  # number, unused, flags, end of the table of nodes, begin of the nodes
_OVERFLOW_HEADER = struct.Struct("<QHHI")  # number, unused, flags, pages
_NODE = struct.Struct("<HHHH")  # size or child in two parts, flags or its third part, length of the key
_PAGE_NUMBER = struct.Struct("<Q")
_META_HEADER = struct.Struct("<II16x")  # magic, version, address and size of a map
_DATABASE = struct.Struct("<IHHQQQQQ")  # the first field of the free-page database is the page size
_META_TAIL = struct.Struct("<QQ")  # last page, transaction
META_BYTES = HEADER.size + _META_HEADER.size + 2 * _DATABASE.size + _META_TAIL.size

_MAGIC, _VERSION = 0xBEEFC0DE, 1
_BRANCH_PAGE, _LEAF_PAGE, _OVERFLOW_PAGE, _META_PAGE = 1, 2, 4, 8
_BIG_DATA_NODE = 1  # a node whose value is on separate pages
_NO_ROOT = (1 << 64) - 1  # the root of a database without records
_MAX_TREE_DEPTH = 32
_PAGE_SIZES = [1 << n for n in range(8, 17)]


class DamagedError(Exception):  # becomes a DataError that names the file
    """Raised if the data is not a complete LMDB."""


class Meta(NamedTuple):
    """The state of the file after a transaction: fields of LMDB's meta page."""

    page_size: int
    root: int
    depth: int
    branch_pages: int
    leaf_pages: int
    entries: int
    last_page: int
    transaction: int


class Node(NamedTuple):
    """A record in a leaf page: its key and its value. A large value is stored as its first overflow page and size."""

    key: bytes
    value: bytes
    page: int | None
    size: int


def read_meta(fd: int) -> Meta:
    """Read the newest state of a file.

    Raises:
        DamagedError: if it is not an LMDB.
        OSError: if it cannot be read.
    """
    return max(_read_metas(fd), key=lambda meta: meta.transaction)


def find_meta(fd: int, transaction: int) -> Meta | None:
    """Read the state of a file after a transaction, or return None if that state has been overwritten.

    Raises:
        DamagedError: if the file is not an LMDB.
        OSError: if it cannot be read.
    """
    return next((meta for meta in _read_metas(fd) if meta.transaction == transaction), None)


def _read_metas(fd: int) -> list[Meta]:
    first_meta = _parse_meta(os.pread(fd, META_BYTES, 0))
    # the second meta page follows the first, whose size the first one states
    size = first_meta.page_size if first_meta else 4096
    metas = [meta for meta in (first_meta, _parse_meta(os.pread(fd, META_BYTES, size))) if meta is not None]
    if not metas:
        raise DamagedError("data.mdb is not an LMDB, or is damaged; recreate it or copy it again")
    return metas


def _parse_meta(page: bytes) -> Meta | None:
    if len(page) < META_BYTES:
        return None
    flags = HEADER.unpack_from(page)[2]
    magic, version = _META_HEADER.unpack_from(page, HEADER.size)
    offset = HEADER.size + _META_HEADER.size
    page_size = _DATABASE.unpack_from(page, offset)[0]
    _, _, depth, branch_pages, leaf_pages, _, entries, root = _DATABASE.unpack_from(page, offset + _DATABASE.size)
    last_page, transaction = _META_TAIL.unpack_from(page, offset + 2 * _DATABASE.size)
    if not flags & _META_PAGE or (magic, version) != (_MAGIC, _VERSION) or page_size not in _PAGE_SIZES:
        return None
    return Meta(page_size, root, depth, branch_pages, leaf_pages, entries, last_page, transaction)


@dataclass(frozen=True)
class Pages:
    """The pages of a file in the state after a transaction. Several threads may read at once.

    Attributes:
        fd: the file's descriptor. A read past the end of a truncated file raises `DamagedError`.
        meta: the state.
    """

    fd: int
    meta: Meta

    def iterate_leaves(self) -> Iterator[int]:
        """Yield the numbers of the leaf pages, in the order of their keys.

        Raises:
            DamagedError: if the pages do not form a valid tree.
        """
        meta = self.meta
        if meta.root == _NO_ROOT:
            return
        if not 1 <= meta.depth <= _MAX_TREE_DEPTH:
            raise DamagedError(f"its tree has depth {meta.depth}, which is not 1 to {_MAX_TREE_DEPTH}")
        num_branches, num_leaves = 0, 0
        pending_pages = [(meta.root, 1)]
        while pending_pages:
            page_number, depth = pending_pages.pop()
            if depth == meta.depth:
                num_leaves += 1
                if num_leaves > meta.leaf_pages:
                    raise DamagedError(f"it has more leaf pages than the {meta.leaf_pages} that it states")
                yield page_number
                continue
            num_branches += 1
            if num_branches > meta.branch_pages:
                raise DamagedError(f"it has more branch pages than the {meta.branch_pages} that it states")
            page = self._read_page(page_number, _BRANCH_PAGE)
            pending_pages += [
                (child, depth + 1) for child in reversed([_parse_child(page, offset) for offset in _node_offsets(page)])
            ]

    def read_nodes(self, leaf: int) -> list[Node]:
        """Return the records of a leaf page.

        Raises:
            DamagedError: if the page is not a leaf.
        """
        page = self._read_page(leaf, _LEAF_PAGE)
        return [self._parse_node(page, offset) for offset in _node_offsets(page)]

    def count_records(self, leaf: int) -> int:
        """Return the number of records of a leaf page.

        Raises:
            DamagedError: if the page is not a leaf.
        """
        return len(_node_offsets(self._read_page(leaf, _LEAF_PAGE)))

    def read_value(self, node: Node) -> bytes:
        """Return a record's value.

        Raises:
            DamagedError: if the overflow pages are invalid.
        """
        if node.page is None:
            return node.value
        data = self._read_pages(node.page, HEADER.size + node.size)
        page_number, _, flags, num_pages = _OVERFLOW_HEADER.unpack_from(data)
        if page_number != node.page or not flags & _OVERFLOW_PAGE or num_pages * self.meta.page_size < len(data):
            raise DamagedError(f"page {node.page} is not the start of a value of {node.size} bytes")
        return data[HEADER.size :]

    def _parse_node(self, page: bytes, offset: int) -> Node:
        low, high, flags, length = _NODE.unpack_from(page, offset)
        start = offset + _NODE.size
        key, size, start = page[start : start + length], low | high << 16, start + length
        if flags & ~_BIG_DATA_NODE:
            raise DamagedError(
                "contains named databases, or several values for one key; Caffe's databases have neither"
            )
        end = start + (_PAGE_NUMBER.size if flags & _BIG_DATA_NODE else size)
        if len(key) < length or end > len(page):
            raise DamagedError("a record extends beyond the end of its page")
        if flags & _BIG_DATA_NODE:
            return Node(key, b"", _PAGE_NUMBER.unpack_from(page, start)[0], size)
        return Node(key, page[start:end], None, size)

    def _read_page(self, page_number: int, page_type: int) -> bytes:
        page = self._read_pages(page_number, self.meta.page_size)
        stored_number, _, flags, _, _ = HEADER.unpack_from(page)
        if (
            stored_number != page_number
            or flags & (_BRANCH_PAGE | _LEAF_PAGE | _OVERFLOW_PAGE | _META_PAGE) != page_type
        ):
            raise DamagedError(f"page {page_number} is not of the kind expected at its position in the tree")
        return page

    def _read_pages(self, page_number: int, size: int) -> bytes:
        start = page_number * self.meta.page_size
        if not 1 < page_number <= self.meta.last_page or start + size > (self.meta.last_page + 1) * self.meta.page_size:
            raise DamagedError(f"it refers to page {page_number}, but has {self.meta.last_page + 1} pages")
        data = os.pread(self.fd, size, start)
        while len(data) < size:  # one call reads no more than 2 GB
            part = os.pread(self.fd, size - len(data), start + len(data))
            if not part:
                raise DamagedError(f"it was truncated: page {page_number} is missing")
            data += part
        return data


def _node_offsets(page: bytes) -> tuple[int, ...]:
    _, _, _, lower, upper = HEADER.unpack_from(page)
    if not HEADER.size <= lower <= upper <= len(page) or lower % 2:
        raise DamagedError(f"a page has free space with the invalid limits {lower} and {upper}")
    offsets: tuple[int, ...] = struct.unpack_from(f"<{(lower - HEADER.size) // 2}H", page, HEADER.size)
    if any(not upper <= offset <= len(page) - _NODE.size for offset in offsets):
        raise DamagedError("a page lists a node outside of it")
    return offsets


def _parse_child(page: bytes, offset: int) -> int:
    low, middle, high, _ = _NODE.unpack_from(page, offset)
    child: int = low | middle << 16 | high << 32
    return child
