"""Atomic writing of database folders: a folder appears only when it is complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import DataError, Problem

PutFn = Callable[[bytes, bytes], None]
"""A function that takes a key and a value, and writes them as a record."""


@contextmanager
def create_folder(path: Path) -> Iterator[Path]:
    """Yield a new temporary folder, and rename it to `path` when the block ends without an exception.

    Raises:
        DataError: if `path` exists, or the folder cannot be created or renamed.
    """
    if os.path.exists(path):
        raise DataError(Problem("already exists; remove it or choose a different name", file=str(path)))
    partial_path = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with convert_write_errors(path):
        partial_path.mkdir()
    try:
        yield partial_path
        with convert_write_errors(path):
            partial_path.rename(path)
    finally:
        shutil.rmtree(partial_path, ignore_errors=True)


@contextmanager
def convert_write_errors(path: Path, error_type: type[Exception] = OSError) -> Iterator[None]:
    """Convert an `OSError` or an `error_type` in a `with` block to a `DataError` that names the database."""
    try:
        yield
    except (OSError, error_type) as error:
        raise DataError(Problem(f"cannot be written: {error}", file=str(path))) from error
