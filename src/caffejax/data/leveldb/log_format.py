"""Write-ahead logs: blocks of 32 KiB with fragments of records, which contain batches of writes.

Manifests have the same block format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from .leveldb_format import DELETION, VALUE, Entry, Files, checksum, damage_error, read_prefixed

BLOCK = 32768
_HEADER = struct.Struct("<IHB")  # checksum, length, kind
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


class LogReader:
    """An iterable of a log file's records, each with the file position of its first byte.

    A crash can truncate the last record. That record is omitted, as in LevelDB, and `truncated_at` is then the byte at
    which the last complete record ends.

    Raises:
        DataError: if the log is damaged in any other way. The error is raised during iteration.
    """

    def __init__(self, files: Files, name: str) -> None:
        self.truncated_at: int | None = None
        self._files = files
        self._name = name
        self._size = files.size(name)

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        parts: list[bytes] = []
        start = complete_end = 0
        is_inside = False
        for kind, data, position in self._fragments():
            is_start = kind in (_FULL, _FIRST)
            if is_start == is_inside and (is_inside is False or any(parts)):  # an empty first fragment may occur twice
                raise damage_error(f"the fragments at byte {position} do not fit together")
            if is_start:
                parts = []
            if not any(parts):
                start = position
            parts.append(data)
            is_inside = kind in (_FIRST, _MIDDLE)
            if not is_inside:
                yield b"".join(parts), start
                complete_end = position + len(data)
        if is_inside or self.truncated_at is not None:
            self.truncated_at = complete_end

    def _fragments(self) -> Iterator[tuple[int, bytes, int]]:
        for offset in range(0, self._size, BLOCK):
            block = self._files.read(self._name, offset, min(BLOCK, self._size - offset))
            position = 0
            while position + _HEADER.size <= len(block):
                crc, length, kind = _HEADER.unpack_from(block, position)
                data = block[position + _HEADER.size : position + _HEADER.size + length]
                if not (crc or length or kind) and self._is_zero_from(offset + position):
                    self.truncated_at = offset + position
                    return
                if len(data) < length <= BLOCK - _HEADER.size - position:
                    self.truncated_at = offset + position
                    return
                if len(data) < length or crc != checksum(bytes([kind]) + data):
                    raise damage_error(f"the record at byte {offset + position} has a wrong checksum")
                if kind not in (_FULL, _FIRST, _MIDDLE, _LAST):
                    raise damage_error(f"the record at byte {offset + position} has the unknown kind {kind}")
                position += _HEADER.size
                if kind in (_FIRST, _MIDDLE) and position + length != BLOCK:
                    raise damage_error(f"the fragment at byte {offset + position} is too short")
                yield kind, data, offset + position
                position += length
            if position < len(block) < BLOCK:
                self.truncated_at = offset + position

    def _is_zero_from(self, offset: int) -> bool:
        """Return whether the file has only zeros from byte `offset` on, as in preallocated space."""
        later_blocks = range(offset, self._size, BLOCK)
        return not any(any(self._files.read(self._name, at, min(BLOCK, self._size - at))) for at in later_blocks)


def file_position(start: int, n: int) -> int:
    """Return the file position of byte `n` of a record whose first byte is at `start`."""
    capacity = BLOCK - start % BLOCK
    if n < capacity:
        return start + n
    blocks, remainder = divmod(n - capacity, BLOCK - _HEADER.size)
    return (start // BLOCK + 1 + blocks) * BLOCK + _HEADER.size + remainder


def read_span(files: Files, name: str, start: int, size: int) -> bytes:
    """Read `size` bytes of one record from file position `start` on, without the headers of its fragments.

    Raises:
        DataError: if the file has become shorter.
    """
    raw = files.read(name, start, file_position(start, size - 1) + 1 - start)
    capacity = BLOCK - start % BLOCK
    if size <= capacity:
        return raw
    pieces = [raw[:capacity]]
    pieces += [raw[at + _HEADER.size : at + BLOCK] for at in range(capacity, len(raw), BLOCK)]
    return b"".join(pieces)


def frame_records(records: Iterable[bytes]) -> bytes:
    """Return the content of a log file that contains the records."""
    content = bytearray()
    for record in records:
        first = True
        while first or record:
            capacity = BLOCK - len(content) % BLOCK - _HEADER.size
            if capacity < 0:
                content += bytes(capacity + _HEADER.size)
                continue
            data, record = record[:capacity], record[capacity:]
            kind = (_FIRST if record else _FULL) if first else (_MIDDLE if record else _LAST)
            content += _HEADER.pack(checksum(bytes([kind]) + data), len(data), kind) + data
            first = False
    return bytes(content)


_BATCH = struct.Struct("<QI")  # sequence number of the first entry, number of entries


def read_log(files: Files, name: str) -> tuple[list[Entry], int | None]:
    """Return the entries of a log in the order of their keys, and the byte where a crash has truncated it, or None.

    Raises:
        DataError: if the log is damaged in any other way.
    """
    reader = LogReader(files, name)
    entries = [entry for record, start in reader for entry in _entries(record, name, start)]
    return sorted(entries), reader.truncated_at


def read_value(files: Files, name: str, offset: int, size: int) -> tuple[bytes, bytes]:
    """Read the key and the value of a log entry.

    Raises:
        DataError: if the file has changed.
    """
    _, key, value, _ = _parse(read_span(files, name, offset, size), 0)
    return key, value


def _entries(batch: bytes, name: str, start: int) -> Iterator[Entry]:
    if len(batch) < _BATCH.size:
        raise damage_error(f"the batch at byte {start} has only {len(batch)} bytes")
    sequence, count = _BATCH.unpack_from(batch)
    position = _BATCH.size
    for n in range(count):
        kind, key, _, end = _parse(batch, position)
        yield Entry(key, -(sequence + n << 8 | kind), name, file_position(start, position), end - position, 0)
        position = end
    if position != len(batch):
        raise damage_error(f"the batch at byte {start} has more than its {count} entries")


def _parse(batch: bytes, position: int) -> tuple[int, bytes, bytes, int]:
    if position >= len(batch) or batch[position] not in (DELETION, VALUE):
        raise damage_error("an entry of a batch is missing or has an unknown kind")
    kind = batch[position]
    key, position = read_prefixed(batch, position + 1)
    value, position = read_prefixed(batch, position) if kind == VALUE else (b"", position)
    return kind, key, value, position
