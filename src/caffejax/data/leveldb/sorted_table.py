"""Table files: sorted entries in blocks. Each block is compressed and has a checksum."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import cramjam

from .leveldb_format import Entry, Files, checksum, damage_error, read_varint, split_key

MAGIC = 0xDB4775248B80FB57
FOOTER = struct.Struct("<40sQ")  # two handles with padding, and the magic number
TRAILER = struct.Struct("<BI")  # compression, checksum
WORD = struct.Struct("<I")
RAW, SNAPPY = 0, 1

LARGE_BLOCK = 1 << 17  # bytes; a block of this size has a large value, which is skipped when keys are read
_WINDOW_SIZE = 4096


def read_block(files: Files, name: str, offset: int, size: int) -> bytes:
    """Read, verify and decompress a block.

    Raises:
        DataError: if its checksum is wrong, or it cannot be read or decompressed.
    """
    stored = files.read(name, offset, size + TRAILER.size)
    compression, crc = TRAILER.unpack_from(stored, size)
    if checksum(stored[: size + 1]) != crc:
        raise damage_error(f"the block at byte {offset} has a wrong checksum")
    if compression == RAW:
        return stored[:size]
    if compression != SNAPPY:
        raise damage_error(f"the block at byte {offset} has the unknown compression {compression}")
    try:
        return bytes(cramjam.snappy.decompress_raw(stored[:size]))
    except cramjam.DecompressionError as error:
        raise damage_error(f"the block at byte {offset} cannot be decompressed ({error})") from error


def read_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the key, with its tag, and the value of each entry of a block.

    Raises:
        DataError: if an entry extends beyond the end of the block.
    """
    end = _entries_end(len(block), block[-WORD.size :])
    position, key = 0, b""
    while position < end:
        shared, unshared, length, position = _entry_head(block, position)
        key_end = position + unshared
        value_end = key_end + length
        if shared > len(key) or value_end > end:
            raise damage_error("an entry of a block extends beyond its end")
        key = key[:shared] + block[position:key_end]
        yield key, block[key_end:value_end]
        position = value_end


def scan_table(files: Files, name: str) -> Iterator[Entry]:
    """Yield all entries of a table in order. Blocks with large values are read only in part, and are not verified.

    Raises:
        DataError: if the table is damaged.
    """
    size = files.size(name)
    if size < FOOTER.size:
        raise damage_error(f"has {size} bytes, too few for a table")
    handles, magic = FOOTER.unpack(files.read(name, size - FOOTER.size, FOOTER.size))
    if magic != MAGIC:
        raise damage_error("does not end with the magic number of a table")
    _, position = _handle(handles, 0)
    (offset, length), _ = _handle(handles, position)
    for _, value in read_entries(read_block(files, name, offset, length)):
        (offset, length), _ = _handle(value, 0)
        for n, internal in enumerate(_keys(files, name, offset, length)):
            key, tag = split_key(internal)
            yield Entry(key, -tag, name, offset, length, n)


def _keys(files: Files, name: str, offset: int, size: int) -> Iterator[bytes]:
    if size >= LARGE_BLOCK:
        tail = files.read(name, offset + size - WORD.size, WORD.size + TRAILER.size)
        if tail[WORD.size] == RAW:
            yield from _keys_without_values(files, name, offset, _entries_end(size, tail[: WORD.size]))
            return
    for key, _ in read_entries(read_block(files, name, offset, size)):
        yield key


def _keys_without_values(files: Files, name: str, offset: int, end: int) -> Iterator[bytes]:
    """Yield the keys of an uncompressed block whose entries end at byte `end`. Values are not read."""
    position, key = 0, b""
    while position < end:
        window = files.read(name, offset + position, min(_WINDOW_SIZE, end - position))
        shared, unshared, length, header_size = _entry_head(window, 0)
        if shared > len(key) or position + header_size + unshared + length > end:
            raise damage_error("an entry of a block extends beyond its end")
        suffix = window[header_size : header_size + unshared]
        if len(suffix) < unshared:
            suffix = files.read(name, offset + position + header_size, unshared)
        key = key[:shared] + suffix
        yield key
        position += header_size + unshared + length


def _entries_end(size: int, last_word: bytes) -> int:
    """Return the byte where a block's entries end and its restart points begin.

    Args:
        size: the size of the block in bytes.
        last_word: the last four bytes of the block, the number of restart points.
    """
    restarts = WORD.unpack(last_word)[0] if len(last_word) == WORD.size else 0
    end = size - WORD.size * (restarts + 1)
    if end < 0 or not restarts:
        raise damage_error("a block has no restart points")
    return end


def _entry_head(data: bytes, position: int) -> tuple[int, int, int, int]:
    """Decode an entry's header at byte `position`.

    Returns:
        The number of bytes shared with the previous key, the number of further bytes of the key, the size of the value,
        and the byte after the header.
    """
    if position + 3 <= len(data) and max(data[position : position + 3]) < 128:
        return data[position], data[position + 1], data[position + 2], position + 3
    shared, position = read_varint(data, position)
    unshared, position = read_varint(data, position)
    length, position = read_varint(data, position)
    return shared, unshared, length, position


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    """Decode a block handle. Return the (offset, size) of the block, and the position after the handle."""
    offset, position = read_varint(data, position)
    size, position = read_varint(data, position)
    return (offset, size), position
