"""Writing LMDB folders, by the reference binding."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb

from ...errors import DataError, located
from ..folder import Put, as_write_errors, create_folder

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
