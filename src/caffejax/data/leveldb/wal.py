"""Write-ahead logs: what was put and deleted since tables were last written, in batches."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from .entry import Entry
from .files import Files
from .format import DELETION, VALUE, damaged, read_prefixed
from .log import LogReader, file_position, read_span

_BATCH = struct.Struct("<QI")  # sequence number of the first entry, number of entries


def read_log(files: Files, name: str) -> tuple[list[Entry], int | None]:
    """Return the entries of a log in the order of their keys, and the byte where it is cut off, if it is.

    Raises:
        DataError: if it is damaged in any other way.
    """
    reader = LogReader(files, name)
    entries = [entry for record, start in reader for entry in _entries(record, name, start)]
    return sorted(entries), reader.truncated_at


def read_value(files: Files, name: str, offset: int, size: int) -> tuple[bytes, bytes]:
    """Read the key and the value of an entry of a log.

    Raises:
        DataError: if the file has changed.
    """
    _, key, value, _ = _parse(read_span(files, name, offset, size), 0)
    return key, value


def _entries(batch: bytes, name: str, start: int) -> Iterator[Entry]:
    if len(batch) < _BATCH.size:
        raise damaged(f"the batch at byte {start} has only {len(batch)} bytes")
    sequence, count = _BATCH.unpack_from(batch)
    at = _BATCH.size
    for n in range(count):
        kind, key, _, end = _parse(batch, at)
        yield Entry(key, -(sequence + n << 8 | kind), name, file_position(start, at), end - at, 0)
        at = end
    if at != len(batch):
        raise damaged(f"the batch at byte {start} has more than its {count} entries")


def _parse(batch: bytes, at: int) -> tuple[int, bytes, bytes, int]:
    if at >= len(batch) or batch[at] not in (DELETION, VALUE):
        raise damaged("an entry of a batch is missing or of an unknown kind")
    kind = batch[at]
    key, at = read_prefixed(batch, at + 1)
    value, at = read_prefixed(batch, at) if kind == VALUE else (b"", at)
    return kind, key, value, at
