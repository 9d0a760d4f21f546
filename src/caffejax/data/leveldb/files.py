"""The files of a database folder, of which only some are open at a time."""

from __future__ import annotations

import functools
import os
import weakref
from pathlib import Path

from ...errors import DataError, Problem
from .format import damaged

_MOST_OPEN = 64


class _Descriptor:
    """An open file, closed with its last user."""

    def __init__(self, path: Path) -> None:
        self.number = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self.number).st_size
        weakref.finalize(self, os.close, self.number)


class Files:
    """A reader of a folder's files, by name.

    It holds no position in a file, so threads and forked copies need not know of each other.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptor = functools.lru_cache(_MOST_OPEN)(lambda name: _Descriptor(folder / name))

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Read bytes of a file.

        Raises:
            DataError: if the file cannot be read or has not so many bytes.
        """
        data = b""
        try:
            file = self._descriptor(name)
            if offset + size > file.size:  # before any memory is asked for
                raise damaged(f"has {file.size} bytes, but byte {offset + size} is referred to")
            while len(data) < size and (part := os.pread(file.number, size - len(data), offset + len(data))):
                data = data + part if data else part
        except OSError as error:
            raise DataError(Problem(f"cannot be read: {error.strerror}", str(self.folder / name))) from error
        if len(data) < size:
            raise damaged(f"has become shorter: {offset + len(data)} bytes")
        return data

    def size(self, name: str) -> int:
        """Return how many bytes a file has; -1 if there is no such file."""
        path = self.folder / name
        return path.stat().st_size if os.path.isfile(path) else -1

    def path(self, name: str) -> str:
        """Return the path of a file, for messages."""
        return str(self.folder / name)

    def close(self) -> None:
        """Close all files. Reading opens them again."""
        self._descriptor.cache_clear()
