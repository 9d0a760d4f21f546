"""Write-ahead logs: blocks of 32 KiB with fragments of records, which contain batches of writes.

Manifests have the same block format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from .leveldb_format import DELETION, VALUE, Entry, Files, checksum, make_damage_error, read_length_prefixed

BLOCK_SIZE = 32768
_HEADER = struct.Struct("<IHB")  # checksum, length, type
_BATCH_HEADER = struct.Struct("<QI")  # sequence number of the first entry, number of entries
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


class LogReader:
    """An iterable of a log file's records, each with the file position of its first byte.

    A crash can truncate the last record. That record is omitted, as in LevelDB, and `truncation_offset` is then the
    byte at which the last complete record ends.

    Raises:
        DataError: if the log is damaged in any other way. The error is raised during iteration.
    """

    def __init__(self, files: Files, name: str) -> None:
        self.truncation_offset: int | None = None
        self._files = files
        self._name = name
        self._size = files.size(name)

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        parts: list[bytes] = []
        start = complete_end = 0
        is_inside_record = False
        for record_type, data, position in self._fragments():
            is_start = record_type in (_FULL, _FIRST)
            # an empty first fragment may occur twice
            if is_start == is_inside_record and (not is_inside_record or any(parts)):
                raise make_damage_error(f"the fragments at byte {position} do not fit together")
            if is_start:
                parts = []
            if not any(parts):
                start = position
            parts.append(data)
            is_inside_record = record_type in (_FIRST, _MIDDLE)
            if not is_inside_record:
                yield b"".join(parts), start
                complete_end = position + len(data)
        if is_inside_record or self.truncation_offset is not None:
            self.truncation_offset = complete_end

    def _fragments(self) -> Iterator[tuple[int, bytes, int]]:
        for offset in range(0, self._size, BLOCK_SIZE):
            block = self._files.read(self._name, offset, min(BLOCK_SIZE, self._size - offset))
            position = 0
            while position + _HEADER.size <= len(block):
                crc, length, record_type = _HEADER.unpack_from(block, position)
                data = block[position + _HEADER.size : position + _HEADER.size + length]
                is_end = not (crc or length or record_type) and self._is_zero_from(offset + position)
                if is_end or len(data) < length <= BLOCK_SIZE - _HEADER.size - position:
                    self.truncation_offset = offset + position
                    return
                location = f"the record at byte {offset + position}"
                if len(data) < length or crc != checksum(bytes([record_type]) + data):
                    raise make_damage_error(f"{location} has a wrong checksum")
                if record_type not in (_FULL, _FIRST, _MIDDLE, _LAST):
                    raise make_damage_error(f"{location} has the unknown kind {record_type}")
                position += _HEADER.size
                if record_type in (_FIRST, _MIDDLE) and position + length != BLOCK_SIZE:
                    raise make_damage_error(f"the fragment at byte {offset + position} is too short")
                yield record_type, data, offset + position
                position += length
            if position < len(block) < BLOCK_SIZE:
                self.truncation_offset = offset + position

    def _is_zero_from(self, offset: int) -> bool:
        """Return whether the file has only zeros from byte `offset` on, as in preallocated space."""
        starts = range(offset, self._size, BLOCK_SIZE)
        return not any(any(self._files.read(self._name, i, min(BLOCK_SIZE, self._size - i))) for i in starts)


def file_position(start: int, n: int) -> int:
    """Return the file position of byte `n` of a record whose first byte is at `start`."""
    capacity = BLOCK_SIZE - start % BLOCK_SIZE
    if n < capacity:
        return start + n
    num_blocks, remainder = divmod(n - capacity, BLOCK_SIZE - _HEADER.size)
    return (start // BLOCK_SIZE + 1 + num_blocks) * BLOCK_SIZE + _HEADER.size + remainder


def _read_span(files: Files, name: str, start: int, size: int) -> bytes:
    """Read `size` bytes of one record from file position `start` on, without the headers of its fragments."""
    raw = files.read(name, start, file_position(start, size - 1) + 1 - start)
    capacity = BLOCK_SIZE - start % BLOCK_SIZE
    if size <= capacity:
        return raw
    offsets = range(capacity, len(raw), BLOCK_SIZE)  # of the other blocks
    return b"".join([raw[:capacity], *(raw[offset + _HEADER.size : offset + BLOCK_SIZE] for offset in offsets)])


def frame_records(records: Iterable[bytes]) -> bytes:
    """Return the content of a log file that contains the records."""
    content = bytearray()
    for record in records:
        is_first = True
        while is_first or record:
            capacity = BLOCK_SIZE - len(content) % BLOCK_SIZE - _HEADER.size
            if capacity < 0:
                content += bytes(capacity + _HEADER.size)
                continue
            data, record = record[:capacity], record[capacity:]
            record_type = (_FIRST if record else _FULL) if is_first else (_MIDDLE if record else _LAST)
            content += _HEADER.pack(checksum(bytes([record_type]) + data), len(data), record_type) + data
            is_first = False
    return bytes(content)


def read_log(files: Files, name: str) -> tuple[list[Entry], int | None]:
    """Return the entries of a log in the order of their keys, and the byte where a crash has truncated it, or None.

    Raises:
        DataError: if the log is damaged in any other way.
    """
    reader = LogReader(files, name)
    entries = [entry for record, start in reader for entry in _parse_batch(record, name, start)]
    return sorted(entries), reader.truncation_offset


def read_value(files: Files, name: str, offset: int, size: int) -> tuple[bytes, bytes]:
    """Read the key and the value of a log entry.

    Raises:
        DataError: if the file has changed.
    """
    _, key, value, _ = _parse_entry(_read_span(files, name, offset, size), 0)
    return key, value


def _parse_batch(batch: bytes, name: str, start: int) -> Iterator[Entry]:
    if len(batch) < _BATCH_HEADER.size:
        raise make_damage_error(f"the batch at byte {start} has only {len(batch)} bytes")
    sequence, num_entries = _BATCH_HEADER.unpack_from(batch)
    position = _BATCH_HEADER.size
    for n in range(num_entries):
        value_type, key, _, end = _parse_entry(batch, position)
        yield Entry(key, -(sequence + n << 8 | value_type), name, file_position(start, position), end - position, 0)
        position = end
    if position != len(batch):
        raise make_damage_error(f"the batch at byte {start} has more than its {num_entries} entries")


def _parse_entry(batch: bytes, position: int) -> tuple[int, bytes, bytes, int]:
    if position >= len(batch) or batch[position] not in (DELETION, VALUE):
        raise make_damage_error("an entry of a batch is missing or has an unknown kind")
    value_type = batch[position]
    key, position = read_length_prefixed(batch, position + 1)
    value, position = read_length_prefixed(batch, position) if value_type == VALUE else (b"", position)
    return value_type, key, value, position
