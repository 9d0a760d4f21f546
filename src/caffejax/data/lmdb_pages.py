"""The pages of an LMDB file: every number in them is checked before it is followed."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

HEADER = struct.Struct("<QHHHH")  # number, unused, flags, end of the table of nodes, begin of the nodes
_OVERFLOW_HEADER = struct.Struct("<QHHI")  # number, unused, flags, pages
_NODE = struct.Struct("<HHHH")  # size or child in two parts, flags or its third part, length of the key
_PAGE_NUMBER = struct.Struct("<Q")
_META = struct.Struct("<II16x")  # magic, version, address and size of a map
_DATABASE = struct.Struct("<IHHQQQQQ")  # of the list of free pages its first number is the size of a page
_LAST = struct.Struct("<QQ")  # last page, transaction
META_BYTES = HEADER.size + _META.size + 2 * _DATABASE.size + _LAST.size

_MAGIC, _VERSION = 0xBEEFC0DE, 1
_BRANCH, _LEAF, _OVERFLOW, _META_PAGE = 1, 2, 4, 8
_BIG = 1  # a node whose value is on separate pages
_NONE = (1 << 64) - 1  # the root of a database without records
_DEEPEST = 32
_PAGE_SIZES = [1 << n for n in range(8, 17)]


class Damaged(Exception):  # noqa: N818  becomes a DataError that names the file
    """The data is not a complete LMDB."""


class Meta(NamedTuple):
    """The state of the file after a transaction."""

    page_size: int
    root: int
    depth: int
    branch_pages: int
    leaf_pages: int
    entries: int
    last_page: int
    transaction: int


class Node(NamedTuple):
    """A record in a leaf: its key, and its value, or where that begins and how long it is."""

    key: bytes
    value: bytes
    page: int | None
    size: int


def read_meta(file: int) -> Meta:
    """Read the newest state of a file.

    Raises:
        Damaged: if it is not an LMDB.
        OSError: if it cannot be read.
    """
    return max(_metas(file), key=lambda meta: meta.transaction)


def meta_of(file: int, transaction: int) -> Meta | None:
    """Read the state of a file after a transaction; None if it has been overwritten. Raises as `read_meta`."""
    return next((meta for meta in _metas(file) if meta.transaction == transaction), None)


def _metas(file: int) -> list[Meta]:
    first = _meta(os.pread(file, META_BYTES, 0))
    size = first.page_size if first else 4096  # only the first page's own number says where the second is
    metas = [meta for meta in (first, _meta(os.pread(file, META_BYTES, size))) if meta is not None]
    if not metas:
        raise Damaged("data.mdb is not an LMDB, or is damaged; make or copy it again")
    return metas


def _meta(page: bytes) -> Meta | None:
    if len(page) < META_BYTES:
        return None
    flags = HEADER.unpack_from(page)[2]
    magic, version = _META.unpack_from(page, HEADER.size)
    at = HEADER.size + _META.size
    size = _DATABASE.unpack_from(page, at)[0]
    _, _, depth, branches, leaves, _, entries, root = _DATABASE.unpack_from(page, at + _DATABASE.size)
    last, transaction = _LAST.unpack_from(page, at + 2 * _DATABASE.size)
    if not flags & _META_PAGE or (magic, version) != (_MAGIC, _VERSION) or size not in _PAGE_SIZES:
        return None
    return Meta(size, root, depth, branches, leaves, entries, last, transaction)


@dataclass(frozen=True)
class Pages:
    """The pages of a file in the state after a transaction. Several threads may read at once.

    Attributes:
        file: the file's descriptor. Truncation of the file while it is read is detected.
        meta: the state.
    """

    file: int
    meta: Meta

    def leaves(self) -> Iterator[int]:
        """Yield the numbers of the leaf pages, in the order of their keys.

        Raises:
            Damaged: when a page does not fit the tree.
        """
        meta = self.meta
        if meta.root == _NONE:
            return
        if not 1 <= meta.depth <= _DEEPEST:
            raise Damaged(f"a tree of depth {meta.depth}")
        branches, leaves = 0, 0
        waiting = [(meta.root, 1)]
        while waiting:
            number, depth = waiting.pop()
            if depth == meta.depth:
                leaves += 1
                if leaves > meta.leaf_pages:
                    raise Damaged(f"more than its {meta.leaf_pages} leaf pages")
                yield number
                continue
            branches += 1
            if branches > meta.branch_pages:
                raise Damaged(f"more than its {meta.branch_pages} branch pages")
            page = self._page(number, _BRANCH)
            waiting += [(child, depth + 1) for child in reversed([_child(page, at) for at in _nodes(page)])]

    def records(self, leaf: int) -> list[Node]:
        """Return the records of a leaf page.

        Raises:
            Damaged: if the page is not a leaf.
        """
        page = self._page(leaf, _LEAF)
        return [self._node(page, at) for at in _nodes(page)]

    def count(self, leaf: int) -> int:
        """Return the number of records of a leaf page. Raises as `records`."""
        return len(_nodes(self._page(leaf, _LEAF)))

    def value(self, node: Node) -> bytes:
        """Return a record's value.

        Raises:
            Damaged: if the overflow pages are invalid.
        """
        if node.page is None:
            return node.value
        data = self._read(node.page, HEADER.size + node.size)
        number, _, flags, pages = _OVERFLOW_HEADER.unpack_from(data)
        if number != node.page or not flags & _OVERFLOW or pages * self.meta.page_size < len(data):
            raise Damaged(f"page {node.page} does not begin a value of {node.size} bytes")
        return data[HEADER.size :]

    def _node(self, page: bytes, at: int) -> Node:
        low, high, flags, length = _NODE.unpack_from(page, at)
        begin = at + _NODE.size
        key, size, begin = page[begin : begin + length], low | high << 16, begin + length
        if flags & ~_BIG:
            raise Damaged("has databases within it, or several values of one key; Caffe's have neither")
        end = begin + (_PAGE_NUMBER.size if flags & _BIG else size)
        if len(key) < length or end > len(page):
            raise Damaged("a record that ends beyond its page")
        if flags & _BIG:
            return Node(key, b"", _PAGE_NUMBER.unpack_from(page, begin)[0], size)
        return Node(key, page[begin:end], None, size)

    def _page(self, number: int, kind: int) -> bytes:
        page = self._read(number, self.meta.page_size)
        stored, _, flags, _, _ = HEADER.unpack_from(page)
        if stored != number or flags & (_BRANCH | _LEAF | _OVERFLOW | _META_PAGE) != kind:
            raise Damaged(f"page {number} is not what its place in the tree says")
        return page

    def _read(self, number: int, size: int) -> bytes:
        begin = number * self.meta.page_size
        if not 1 < number <= self.meta.last_page or begin + size > (self.meta.last_page + 1) * self.meta.page_size:
            raise Damaged(f"page {number} of {self.meta.last_page + 1}")
        data = os.pread(self.file, size, begin)
        while len(data) < size:  # one call reads no more than 2 GB
            more = os.pread(self.file, size - len(data), begin + len(data))
            if not more:
                raise Damaged(f"it was truncated: page {number} is not there any more")
            data += more
        return data


def _nodes(page: bytes) -> tuple[int, ...]:
    """Return where the nodes of a page begin."""
    _, _, _, lower, upper = HEADER.unpack_from(page)
    if not HEADER.size <= lower <= upper <= len(page) or lower % 2:
        raise Damaged(f"a page whose free part is said to be {lower} to {upper}")
    places: tuple[int, ...] = struct.unpack_from(f"<{(lower - HEADER.size) // 2}H", page, HEADER.size)
    if any(not upper <= at <= len(page) - _NODE.size for at in places):
        raise Damaged("a node outside of its page")
    return places


def _child(page: bytes, at: int) -> int:
    low, middle, high, _ = _NODE.unpack_from(page, at)
    child: int = low | middle << 16 | high << 32
    return child
