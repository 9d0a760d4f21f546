"""Reading of LevelDB folders by record number, with an index of all records."""

from __future__ import annotations

import functools
import heapq
import logging
import os
import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import DataError, Problem, locate_errors
from .leveldb_format import VALUE, Entry, Files, make_damage_error, split_key
from .manifest import Table, read_version
from .sorted_table import LARGE_BLOCK, read_block, read_entries, scan_table
from .write_ahead_log import read_log, read_value

logger = logging.getLogger("caffejax.data")

_NUM_CACHED_BLOCKS = 16  # per thread; several, because records of overlapping tables alternate

Block = list[tuple[bytes, bytes]]


@dataclass
class _Index:
    """The location of every record, stored as runs of consecutive records in one block. Most runs are complete blocks.

    `locations` has four numbers for each run: the index of the file, the block's offset and size in bytes, and the
    number of the run's first record in the block.
    """

    files: list[str] = field(default_factory=list)
    starts: array[int] = field(default_factory=lambda: array("q"))  # the number of the first record of each run
    locations: array[int] = field(default_factory=lambda: array("q"))
    length: int = 0  # the number of records

    def locate(self, start: int, count: int) -> Iterator[tuple[str, int, int, slice]]:
        """Yield the blocks with records `start` to `start + count - 1`: file, offset, size, and a slice of entries."""
        end = start + count
        run_index = bisect_right(self.starts, start) - 1
        while start < end:
            file_index, offset, size, first_entry = self.locations[4 * run_index : 4 * run_index + 4]
            run_start = self.starts[run_index]
            run_index += 1
            slice_end = min(end, self.starts[run_index] if run_index < len(self.starts) else self.length)
            entry_slice = slice(first_entry + start - run_start, first_entry + slice_end - run_start)
            yield self.files[file_index], offset, size, entry_slice
            start = slice_end


def _build_index(files: Files, tables: dict[str, Table], logs: list[list[Entry]], max_records: int | None) -> _Index:
    """Read the keys of a database, and index all its records that are not deleted, or the first `max_records`."""
    entry_iterators = [*(_scan_tables(files, names) for names in _group_disjoint_tables(tables)), *logs]
    index = _Index()
    file_indices: dict[str, int] = {}
    unverified_blocks: set[tuple[str, int, int]] = set()
    last_key: bytes | None = None
    next_location: tuple[str, int, int] | None = None
    for key, age, file, offset, size, entry_index in heapq.merge(*entry_iterators):
        is_newest = key != last_key
        last_key = key
        if not is_newest or -age & 0xFF != VALUE:
            # this block is not read later, so damage would remain unnoticed: verify it below
            if size >= LARGE_BLOCK and file in tables:
                unverified_blocks.add((file, offset, size))
            next_location = None
            continue
        if next_location != (file, offset, entry_index):
            index.starts.append(index.length)
            index.locations.extend((file_indices.setdefault(file, len(file_indices)), offset, size, entry_index))
        next_location = (file, offset, entry_index + 1)
        index.length += 1
        if index.length == max_records:
            break
    for file, offset, size in unverified_blocks:
        with locate_errors(file=files.path(file)):
            read_block(files, file, offset, size)
    index.files = list(file_indices)
    return index


def _group_disjoint_tables(tables: dict[str, Table]) -> list[list[str]]:
    """Group the tables into few sequences. The tables of a sequence are sorted by key and do not overlap."""
    sequences: list[list[str]] = []
    bounds = {name: (split_key(table.smallest)[0], split_key(table.largest)[0]) for name, table in tables.items()}
    for name in sorted(bounds, key=bounds.__getitem__):
        preceding = next((s for s in sequences if bounds[s[-1]][1] < bounds[name][0]), None)
        if preceding is None:
            sequences.append([name])
        else:
            preceding.append(name)
    return sequences


def _scan_tables(files: Files, names: list[str]) -> Iterator[Entry]:
    previous_key: tuple[bytes, int] | None = None
    for name in names:
        with locate_errors(file=files.path(name)):
            for entry in scan_table(files, name):
                if previous_key is not None and (entry.key, entry.age) <= previous_key:
                    raise make_damage_error("its keys are not in order")
                previous_key = entry.key, entry.age
                yield entry


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
        self._index: _Index | None = None
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
        read_records, records = self._get_block_reader(), []
        for file, offset, size, entry_slice in index.locate(start, count):
            block = read_records(file, offset, size)
            if entry_slice.stop > len(block):
                raise make_damage_error("has changed since it was opened", self._files.path(file))
            records += block[entry_slice]
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

    def _get_index(self) -> _Index:
        if self._index is None:
            self._index = _read_index(self._files, self._max_records)
        return self._index

    def _get_block_reader(self) -> Callable[[str, int, int], Block]:
        """Return `_read_records` with a cache that only the current thread uses."""
        local = self._local
        if not hasattr(local, "read_records"):
            local.read_records = functools.lru_cache(_NUM_CACHED_BLOCKS)(functools.partial(_read_records, self._files))
        return local.read_records


def _read_index(files: Files, max_records: int | None) -> _Index:
    tables, log_names = read_version(files)
    logs: list[list[Entry]] = []
    truncated_log: tuple[str, int] | None = None
    for name in log_names:
        with locate_errors(file=files.path(name)):
            entries, truncation_offset = read_log(files, name)
        if truncated_log and entries:  # a crash can truncate only the last log
            message = f"ends within the record after byte {truncated_log[1]}, but a later log follows"
            raise make_damage_error(message, files.path(truncated_log[0]))
        if truncation_offset is not None:
            truncated_log = name, truncation_offset
            message = "%s: cut off after byte %d, as after a crash; the last records are missing"
            logger.warning(message, files.path(name), truncation_offset)
        logs.append(entries)
    index = _build_index(files, tables, logs, max_records)
    if not index.length:
        message = "the LevelDB has no records"
        if truncated_log:
            name, offset = truncated_log
            message += f"; {name} is cut off after byte {offset}: recreate it or copy it again"
        raise DataError(Problem(message, str(files.folder)))
    return index


def _read_records(files: Files, file: str, offset: int, size: int) -> Block:
    with locate_errors(file=files.path(file)):
        if file.endswith(".log"):
            return [read_value(files, file, offset, size)]
        return [(split_key(key)[0], value) for key, value in read_entries(read_block(files, file, offset, size))]
