"""Reading of LevelDB folders by record number, with an index of all records."""

from __future__ import annotations

import functools
import heapq
import logging
import os
import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import DataError, Problem, locate_errors
from .leveldb_format import VALUE, Entry, Files, damage_error, split_key
from .log_format import read_log, read_value
from .manifest import Table, read_version
from .sorted_table import LARGE_BLOCK, read_block, read_entries, scan_table


class BlockSlice(NamedTuple):
    """Consecutive records in one block.

    Attributes:
        file: the name of the file.
        offset: the byte where the block begins.
        size: the size of the block in bytes.
        records: the numbers of the records within the block.
    """

    file: str
    offset: int
    size: int
    records: slice


@dataclass
class Index:
    """The location of every record, stored as runs of consecutive records in one block. Most runs are complete blocks.

    Attributes:
        files: names of the files.
        starts: the number of the first record of each run.
        offsets: four numbers for each run: the index of the file, the block's offset and size in bytes, and the number
            of the run's first record in the block.
        length: the number of records.
    """

    files: list[str] = field(default_factory=list)
    starts: array[int] = field(default_factory=lambda: array("q"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    length: int = 0

    def locate(self, start: int, count: int) -> Iterator[BlockSlice]:
        """Yield the block slices that contain records `start` to `start + count - 1`."""
        end = start + count
        run = bisect_right(self.starts, start) - 1
        while start < end:
            file, offset, size, first = self.offsets[4 * run : 4 * run + 4]
            begin = self.starts[run]
            run += 1
            slice_end = min(end, self.starts[run] if run < len(self.starts) else self.length)
            yield BlockSlice(self.files[file], offset, size, slice(first + start - begin, first + slice_end - begin))
            start = slice_end


def build_index(
    files: Files, tables: dict[str, Table], logs: Iterable[list[Entry]], max_records: int | None = None
) -> Index:
    """Read the keys of a database, and index all its records or the first `max_records`.

    Deleted and overwritten records are omitted.

    Raises:
        DataError: if a table is damaged.
    """
    sources = [*(_scan_tables(files, run) for run in _group_disjoint(tables)), *logs]
    index = Index()
    file_numbers: dict[str, int] = {}
    unverified: set[tuple[str, int, int]] = set()
    last_key: bytes | None = None
    next_location: tuple[str, int, int] | None = None
    for key, age, file, offset, size, n in heapq.merge(*sources):
        is_newest = key != last_key
        last_key = key
        if not is_newest or -age & 0xFF != VALUE:
            # this block is not read later, so damage would remain unnoticed: verify it below
            if size >= LARGE_BLOCK and file in tables:
                unverified.add((file, offset, size))
            next_location = None
            continue
        if next_location != (file, offset, n):
            index.starts.append(index.length)
            index.offsets.extend((file_numbers.setdefault(file, len(file_numbers)), offset, size, n))
        next_location = (file, offset, n + 1)
        index.length += 1
        if index.length == max_records:
            break
    for file, offset, size in unverified:
        with locate_errors(file=files.path(file)):
            read_block(files, file, offset, size)
    index.files = list(file_numbers)
    return index


def _group_disjoint(tables: dict[str, Table]) -> list[list[str]]:
    """Group the tables into few sequences. The tables of a sequence are sorted by key and do not overlap."""
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
    previous: tuple[bytes, int] | None = None
    for name in names:
        with locate_errors(file=files.path(name)):
            for entry in scan_table(files, name):
                if previous is not None and (entry.key, entry.age) <= previous:
                    raise damage_error("its keys are not in order")
                previous = entry.key, entry.age
                yield entry


log = logging.getLogger("caffejax.data")

_CACHED_BLOCKS = 16  # per thread; several, because records of overlapping tables alternate

Block = list[tuple[bytes, bytes]]


class LevelDb:
    """The records of a LevelDB folder in the order of their keys: `records[i]` is (key, value).

    The folder is neither written nor locked, so several readers may share it, and it may be read-only. The first use
    reads all keys and stores the location of each block of records. Values are read on request, one block at a time,
    and each block is verified. Sequential reading decodes every block once; each jump decodes one block. Several
    threads may read at once. Copies, also in other processes, share the index.

    If a crash has truncated a log, its last, incomplete records are omitted with a warning, as in LevelDB.

    Args:
        path: the folder.
        max_records: the number of records to index, or None for all. Later keys are not read, so damage in them is not
            found.

    Raises:
        DataError: on first use, if the folder is missing, not a LevelDB, empty, or damaged; on later use, if a value is
            damaged.
    """

    def __init__(self, path: str | os.PathLike[str], max_records: int | None = None) -> None:
        self.path = Path(path)
        self._max_records = max_records
        self._index: Index | None = None
        self._connect()

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_max_records": self._max_records, "_index": self._index}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._connect()

    def __len__(self) -> int:
        return self._get_index().length

    def __getitem__(self, index: int) -> tuple[bytes, bytes]:
        return self.read_range(index, 1)[0]

    def read_range(self, start: int, count: int) -> list[tuple[bytes, bytes]]:
        """Read `count` records, beginning with number `start`. The range must not extend past the last record."""
        index = self._get_index()
        if not 0 <= start <= start + count <= index.length:
            raise IndexError(f"records {start} to {start + count - 1} were requested, but there are {index.length}")
        read, records = self._block_reader(), []
        for file, offset, size, block_slice in index.locate(start, count):
            block = read(file, offset, size)
            if block_slice.stop > len(block):
                raise damage_error("has changed since it was opened", self._files.path(file))
            records += block[block_slice]
        return records

    def head(self, count: int) -> LevelDb:
        """Return a reader of only the first `count` records."""
        return LevelDb(self.path, count)

    def close(self) -> None:
        """Close the files. The next read opens them again."""
        self._index = None
        self._connect()

    def _connect(self) -> None:
        self._files = Files(self.path)
        self._local = threading.local()

    def _get_index(self) -> Index:
        if self._index is None:
            self._index = _open_index(self._files, self._max_records)
        return self._index

    def _block_reader(self) -> Callable[[str, int, int], Block]:
        """Return `_read_records` with a cache that only the current thread uses."""
        local = self._local
        if not hasattr(local, "blocks"):
            local.blocks = functools.lru_cache(_CACHED_BLOCKS)(functools.partial(_read_records, self._files))
        return local.blocks


def _open_index(files: Files, max_records: int | None) -> Index:
    tables, names = read_version(files)
    logs: list[list[Entry]] = []
    truncated: tuple[str, int] | None = None
    for name in names:
        with locate_errors(file=files.path(name)):
            entries, truncated_at = read_log(files, name)
        if truncated and entries:  # a crash can truncate only the last log
            raise damage_error(
                f"ends within the record after byte {truncated[1]}, but a later log follows", files.path(truncated[0])
            )
        if truncated_at is not None:
            truncated = name, truncated_at
            message = "%s: cut off after byte %d, as after a crash; the last records are missing"
            log.warning(message, files.path(name), truncated_at)
        logs.append(entries)
    index = build_index(files, tables, logs, max_records)
    if not index.length:
        reason = (
            f"; {truncated[0]} is cut off after byte {truncated[1]}: recreate it or copy it again" if truncated else ""
        )
        raise DataError(Problem(f"the LevelDB has no records{reason}", str(files.folder)))
    return index


def _read_records(files: Files, file: str, offset: int, size: int) -> Block:
    with locate_errors(file=files.path(file)):
        if file.endswith(".log"):
            return [read_value(files, file, offset, size)]
        return [(split_key(key)[0], value) for key, value in read_entries(read_block(files, file, offset, size))]
