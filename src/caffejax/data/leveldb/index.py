"""The index of a database: where the record at a position stands."""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ...errors import located
from .entry import Entry
from .files import Files
from .format import VALUE, damaged, split_key
from .manifest import Table
from .table import LARGE, read_block, scan_table


class BlockSlice(NamedTuple):
    """Records side by side in a block: the name of the file, the block's offset and size, which of its records."""

    file: str
    offset: int
    size: int
    records: slice


@dataclass
class Index:
    """Where every record stands, as runs of records side by side in one block; mostly a run is a whole block.

    Attributes:
        files: names of the files.
        starts: the number of the first record of each run.
        places: four numbers for each run: the file, offset and size of the block, the first record's number in it.
        length: the number of records.
    """

    files: list[str] = field(default_factory=list)
    starts: array[int] = field(default_factory=lambda: array("q"))
    places: array[int] = field(default_factory=lambda: array("q"))
    length: int = 0

    def locate(self, start: int, count: int) -> Iterator[BlockSlice]:
        """Return where that many records stand, from number `start` on."""
        end = start + count
        run = bisect_right(self.starts, start) - 1
        while start < end:
            file, offset, size, first = self.places[4 * run : 4 * run + 4]
            begin = self.starts[run]
            run += 1
            last = min(end, self.starts[run] if run < len(self.starts) else self.length)
            yield BlockSlice(self.files[file], offset, size, slice(first + start - begin, first + last - begin))
            start = last


def build_index(files: Files, tables: dict[str, Table], logs: Iterable[list[Entry]], most: int | None = None) -> Index:
    """Read the keys of a database and index its records: all, or the first `most`.

    Raises:
        DataError: if a table is damaged.
    """
    sources = [*(_scan_tables(files, run) for run in _group_disjoint(tables)), *logs]
    index = Index()
    numbers: dict[str, int] = {}
    unverified: set[tuple[str, int, int]] = set()
    last_key: bytes | None = None
    before: tuple[str, int, int] | None = None
    for key, age, file, offset, size, n in heapq.merge(*sources):
        newest = key != last_key
        last_key = key
        if not newest or -age & 0xFF != VALUE:
            # What hides here would show its damage only when it was read, which it never is.
            if size >= LARGE and file in tables:
                unverified.add((file, offset, size))
            before = None
            continue
        if before != (file, offset, n):
            index.starts.append(index.length)
            index.places.extend((numbers.setdefault(file, len(numbers)), offset, size, n))
        before = (file, offset, n + 1)
        index.length += 1
        if index.length == most:
            break
    for file, offset, size in unverified:
        with located(file=files.path(file)):
            read_block(files, file, offset, size)
    index.files = list(numbers)
    return index


def _group_disjoint(tables: dict[str, Table]) -> list[list[str]]:
    """Group the tables into as few groups as possible whose tables follow each other without overlap."""
    runs: list[list[str]] = []
    ends: list[bytes] = []
    bounds = {name: (split_key(table.smallest)[0], split_key(table.largest)[0]) for name, table in tables.items()}
    for name, (smallest, largest) in sorted(bounds.items(), key=lambda item: item[1]):
        run = next((n for n, end in enumerate(ends) if end < smallest), len(runs))
        if run == len(runs):
            runs.append([])
            ends.append(b"")
        runs[run].append(name)
        ends[run] = largest
    return runs


def _scan_tables(files: Files, names: list[str]) -> Iterator[Entry]:
    last: tuple[bytes, int] | None = None
    for name in names:
        with located(file=files.path(name)):
            for entry in scan_table(files, name):
                if last is not None and (entry.key, entry.age) <= last:
                    raise damaged("its keys are not in order")
                last = entry.key, entry.age
                yield entry
