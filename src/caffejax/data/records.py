"""Databases of either kind."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from .folder import Put
from .leveldb import LevelDb, leveldb_writer
from .lmdb import Lmdb, lmdb_writer


class Records(Protocol):
    """A database: (key, value) by position, in the order of the keys. Several threads may read at once."""

    path: Path

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> tuple[bytes, bytes]: ...

    def read_range(self, start: int, count: int) -> list[tuple[bytes, bytes]]:
        """Read that many records from number `start` on, not beyond the last."""
        ...

    def head(self, count: int) -> Records:
        """Return a reader of the first `count` records, or of more; it reads no more keys than it needs for these."""
        ...

    def close(self) -> None:
        """Let go of the files."""
        ...


READERS: Mapping[str, Callable[[str | os.PathLike[str]], Records]] = {"lmdb": Lmdb, "leveldb": LevelDb}
WRITERS: Mapping[str, Callable[[str | os.PathLike[str]], AbstractContextManager[Put]]] = {
    "lmdb": lmdb_writer,
    "leveldb": leveldb_writer,
}
