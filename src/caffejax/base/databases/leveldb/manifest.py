"""The manifest, which lists the files of a LevelDB."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import DataError, Problem, locate_errors, raise_if_any
from ...varint import encode_varint
from .leveldb_format import (
    Files,
    encode_length_prefixed,
    make_damage_error,
    read_length_prefixed,
    read_varint,
    split_key,
)
from .write_ahead_log import LogReader, frame_records

logger = logging.getLogger("caffejax.data")

_COMPARATOR_NAME = b"leveldb.BytewiseComparator"
# the tags of an edit
_COMPARATOR, _LOG_NUMBER, _NEXT_FILE_NUMBER, _LAST_SEQUENCE, _COMPACT_POINTER, _DELETED_FILE, _NEW_FILE = range(1, 8)
_PREVIOUS_LOG_NUMBER = 9
# the values that follow each tag: n is a number, b length-prefixed bytes
_VALUES = {1: "b", 2: "n", 3: "n", 4: "n", 5: "nb", 6: "nn", 7: "nnnbb", 9: "n"}


@dataclass(frozen=True)
class Table:
    """A table file: its number, its size in bytes, and its first and last key, with tags."""

    number: int
    size: int
    smallest: bytes
    largest: bytes


@dataclass
class _Version:
    tables: dict[tuple[int, int], Table] = field(default_factory=dict)  # by (level, number)
    log_number: int | None = None  # the smallest number of the logs whose entries are not in tables yet
    previous_log_number: int = 0  # the number of one more such log, or 0


def read_version(files: Files) -> tuple[dict[str, Table], list[str]]:
    """Return the tables of a database by file name, and the names of its logs, the oldest first.

    Raises:
        DataError: if the folder is not a LevelDB, or files are missing or have a wrong size. The message names each
            such file.
    """
    name = _manifest_name(files)
    version, reader = _Version(), LogReader(files, name)
    with locate_errors(file=files.path(name)):
        for edit, _ in reader:
            _apply_edit(version, edit)
        if reader.truncation_offset is not None:
            raise make_damage_error(f"ends within the record after byte {reader.truncation_offset}")
        if version.log_number is None:
            raise make_damage_error("does not state the number of the log")
    tables = {_table_name(files, table.number): table for table in version.tables.values()}
    problems: list[Problem] = []
    for file, table in sorted(tables.items()):
        size = files.size(file)
        if size != table.size:
            problem = "is missing" if size < 0 else f"has {size} bytes instead of {table.size}"
            problems += make_damage_error(problem, files.path(file)).problems
    raise_if_any(DataError, problems)
    return tables, _log_names(files, version.log_number, version.previous_log_number)


def encode_manifest(tables: Sequence[Table], level: int, num_records: int) -> bytes:
    """Return the content of the manifest of a new database whose tables are all on one level."""
    edit = bytearray()
    edit += bytes([_COMPARATOR]) + encode_length_prefixed(_COMPARATOR_NAME)
    edit += bytes([_LOG_NUMBER]) + encode_varint(0)
    edit += bytes([_NEXT_FILE_NUMBER]) + encode_varint(max((table.number for table in tables), default=1) + 1)
    edit += bytes([_LAST_SEQUENCE]) + encode_varint(num_records)
    for table in tables:
        edit += bytes([_NEW_FILE, level]) + encode_varint(table.number) + encode_varint(table.size)
        edit += encode_length_prefixed(table.smallest) + encode_length_prefixed(table.largest)
    return frame_records([bytes(edit)])


def _manifest_name(files: Files) -> str:
    folder = files.folder
    if os.path.isfile(folder / "data.mdb") and not os.path.exists(folder / "CURRENT"):
        message = "is an LMDB, not a LevelDB, which is the default backend; set backend: LMDB"
        raise DataError(Problem(message, str(folder)))
    if not os.path.isfile(folder / "CURRENT"):
        problem = "is not a LevelDB: it has no file CURRENT" if os.path.isdir(folder) else "no such folder"
        advice = "a LevelDB is a folder, as written by convert_imageset -backend leveldb"
        raise DataError(Problem(f"{problem}; {advice}", str(folder)))
    with locate_errors(file=files.path("CURRENT")):
        content = files.read("CURRENT", 0, min(files.size("CURRENT"), 100))
        match = re.fullmatch(rb"(MANIFEST-\d+)\n", content)
        if not match:
            raise make_damage_error("does not name a manifest")
        name = match[1].decode()
    if files.size(name) < 0:
        raise make_damage_error(f"there is no {name}, which CURRENT names", str(folder))
    return name


def _apply_edit(version: _Version, edit: bytes) -> None:
    position = 0
    while position < len(edit):
        tag, position = read_varint(edit, position)
        if tag not in _VALUES:
            raise make_damage_error(f"has a field {tag}, which LevelDB does not have; it may be a RocksDB")
        values: list[Any] = []
        for kind in _VALUES[tag]:
            read = read_varint if kind == "n" else read_length_prefixed
            value, position = read(edit, position)
            values.append(value)
        if tag == _COMPARATOR and values != [_COMPARATOR_NAME]:
            name = values[0].decode(errors="replace")
            raise DataError(f"the keys are ordered by the unsupported comparator '{name}'")
        if tag == _LOG_NUMBER:
            (version.log_number,) = values
        elif tag == _PREVIOUS_LOG_NUMBER:
            (version.previous_log_number,) = values
        elif tag == _DELETED_FILE:
            version.tables.pop((values[0], values[1]), None)
        elif tag == _NEW_FILE:
            level, table = values[0], Table(*values[1:])
            for key in (table.smallest, table.largest):
                split_key(key)  # raises for an invalid key
            version.tables[level, table.number] = table


def _table_name(files: Files, number: int) -> str:
    ldb_name, sst_name = f"{number:06d}.ldb", f"{number:06d}.sst"
    return sst_name if files.size(sst_name) >= 0 and files.size(ldb_name) < 0 else ldb_name


def _log_names(files: Files, log_number: int, previous_log_number: int) -> list[str]:
    try:
        names = os.listdir(files.folder)
    except OSError as error:
        raise DataError(Problem(f"cannot be read: {error.strerror}", str(files.folder))) from error
    names_by_number = {int(match[1]): name for name in names if (match := re.fullmatch(r"(\d+)\.log", name))}
    if log_number and log_number not in names_by_number:
        message = "%s: %06d.log is missing; if the folder was copied without it, its newest records are missing"
        logger.warning(message, files.folder, log_number)
    return [name for n, name in sorted(names_by_number.items()) if n >= log_number or n == previous_log_number]
