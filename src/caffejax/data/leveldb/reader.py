"""LevelDB folders: reading records by position."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import DataError, Problem, located
from .entry import Entry
from .files import Files
from .format import damaged, split_key
from .index import Index, build_index
from .manifest import read_version
from .table import read_block, read_entries
from .wal import read_log, read_value

log = logging.getLogger("caffejax.data")

_CACHED_BLOCKS = 16  # by each thread: more than one, because tables that overlap are read in turns

Block = list[tuple[bytes, bytes]]


class LevelDb:
    """The records of a LevelDB folder in the order of their keys: `records[i]` is (key, value).

    Nothing is written or locked, so that any number of readers may share a folder, also one that may not be
    written. The first use reads all keys, and notes where each block of records stands; values are read when
    asked for, a block at a time, and each block is verified. Reading in order decodes every block once, a jump
    costs one block. Several threads may read at once; copies, also in other processes, share the notes.

    Records of a log that a crash has cut off are left out with a warning, as LevelDB does.

    Args:
        path: the folder.
        most: how many records to find; the first use reads no keys after theirs, and finds no damage there.

    Raises:
        DataError: on first use, if the folder is missing, not a LevelDB, empty, or damaged; or later, where a
            value is damaged.
    """

    def __init__(self, path: str | os.PathLike[str], most: int | None = None) -> None:
        self.path = Path(path)
        self._most = most
        self._index: Index | None = None
        self._connect()

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_most": self._most, "_index": self._index}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._connect()

    def __len__(self) -> int:
        return self._get_index().length

    def __getitem__(self, index: int) -> tuple[bytes, bytes]:
        return self.read_range(index, 1)[0]

    def read_range(self, start: int, count: int) -> list[tuple[bytes, bytes]]:
        """Read that many records from number `start` on, not beyond the last."""
        index = self._get_index()
        if not 0 <= start <= start + count <= index.length:
            raise IndexError(f"{start} to {start + count}, of {index.length}")
        read, records = self._block_reader(), []
        for file, offset, size, which in index.locate(start, count):
            block = read(file, offset, size)
            if which.stop > len(block):
                raise damaged("has changed since it was opened", self._files.path(file))
            records += block[which]
        return records

    def head(self, count: int) -> LevelDb:
        """Return a reader of the first `count` records alone."""
        return LevelDb(self.path, count)

    def close(self) -> None:
        """Let go of the files. The next read opens them again."""
        self._index = None
        self._connect()

    def _connect(self) -> None:
        self._files = Files(self.path)
        self._local = threading.local()

    def _get_index(self) -> Index:
        if self._index is None:
            self._index = _open(self._files, self._most)
        return self._index

    def _block_reader(self) -> Callable[[str, int, int], Block]:
        """Return `_read_block` with a cache of this thread's own."""
        local = self._local
        if not hasattr(local, "blocks"):
            local.blocks = functools.lru_cache(_CACHED_BLOCKS)(functools.partial(_read_block, self._files))
        return local.blocks


def _open(files: Files, most: int | None) -> Index:
    tables, names = read_version(files)
    logs: list[list[Entry]] = []
    truncated: tuple[str, int] | None = None
    for name in names:
        with located(file=files.path(name)):
            entries, truncated_at = read_log(files, name)
        if truncated and entries:  # only what was written last can be a crash's
            raise damaged(
                f"ends within the record after byte {truncated[1]}, but a later log follows", files.path(truncated[0])
            )
        if truncated_at is not None:
            truncated = name, truncated_at
            message = "%s: cut off after byte %d, as by a crash; the records written last are not there"
            log.warning(message, files.path(name), truncated_at)
        logs.append(entries)
    index = build_index(files, tables, logs, most)
    if not index.length:
        why = f"; {truncated[0]} is cut off after byte {truncated[1]}: copy or make it anew" if truncated else ""
        raise DataError(Problem(f"the LevelDB has no records{why}", str(files.folder)))
    return index


def _read_block(files: Files, file: str, offset: int, size: int) -> Block:
    with located(file=files.path(file)):
        if file.endswith(".log"):
            return [read_value(files, file, offset, size)]
        return [(split_key(key)[0], value) for key, value in read_entries(read_block(files, file, offset, size))]
