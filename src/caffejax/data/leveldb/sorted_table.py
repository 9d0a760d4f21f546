"""Table files: sorted entries in blocks, each compressed and checksummed by itself."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import cramjam

from .leveldb_format import Entry, Files, checksum, damage_error, read_varint, split_key

MAGIC = 0xDB4775248B80FB57
FOOTER = struct.Struct("<40sQ")  # the two handles and padding, the magic number
TRAILER = struct.Struct("<BI")  # compression, checksum
WORD = struct.Struct("<I")
RAW, SNAPPY = 0, 1

LARGE = 1 << 17  # from here on a block holds a large value, which need not be read to know the keys
_WINDOW = 4096


def read_block(files: Files, name: str, offset: int, size: int) -> bytes:
    """Read, verify and decompress a block.

    Raises:
        DataError: if it is not what was written there.
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
    """Yield the entries of a block: keys with their tags, and values.

    Raises:
        DataError: if they do not fit into it.
    """
    end = _entries_end(len(block), block[-WORD.size :])
    at, key = 0, b""
    while at < end:
        shared, unshared, length, at = _entry_head(block, at)
        middle = at + unshared
        after = middle + length
        if shared > len(key) or after > end:
            raise damage_error("an entry of a block runs over its end")
        key = key[:shared] + block[at:middle]
        yield key, block[middle:after]
        at = after


def scan_table(files: Files, name: str) -> Iterator[Entry]:
    """Yield all entries of a table in their order. Large values are not read, so their blocks not verified.

    Raises:
        DataError: if the table is damaged.
    """
    size = files.size(name)
    if size < FOOTER.size:
        raise damage_error(f"has {size} bytes, too few for a table")
    handles, magic = FOOTER.unpack(files.read(name, size - FOOTER.size, FOOTER.size))
    if magic != MAGIC:
        raise damage_error("does not end as a table does")
    _, at = _handle(handles, 0)
    (offset, length), _ = _handle(handles, at)
    for _, value in read_entries(read_block(files, name, offset, length)):
        (offset, length), _ = _handle(value, 0)
        for n, internal in enumerate(_keys(files, name, offset, length)):
            key, tag = split_key(internal)
            yield Entry(key, -tag, name, offset, length, n)


def _keys(files: Files, name: str, offset: int, size: int) -> Iterator[bytes]:
    if size >= LARGE:
        tail = files.read(name, offset + size - WORD.size, WORD.size + TRAILER.size)
        if tail[WORD.size] == RAW:
            yield from _keys_without_values(files, name, offset, _entries_end(size, tail[: WORD.size]))
            return
    for key, _ in read_entries(read_block(files, name, offset, size)):
        yield key


def _keys_without_values(files: Files, name: str, offset: int, end: int) -> Iterator[bytes]:
    """Yield the keys of an uncompressed block whose entries end at byte `end`, and read nothing else of it."""
    at, key = 0, b""
    while at < end:
        window = files.read(name, offset + at, min(_WINDOW, end - at))
        shared, unshared, length, head = _entry_head(window, 0)
        if shared > len(key) or at + head + unshared + length > end:
            raise damage_error("an entry of a block runs over its end")
        delta = window[head : head + unshared]
        if len(delta) < unshared:
            delta = files.read(name, offset + at + head, unshared)
        key = key[:shared] + delta
        yield key
        at += head + unshared + length


def _entries_end(size: int, last_word: bytes) -> int:
    """Return where the entries end and the restart points begin, whose number the last word gives."""
    restarts = WORD.unpack(last_word)[0] if len(last_word) == WORD.size else 0
    end = size - WORD.size * (restarts + 1)
    if end < 0 or not restarts:
        raise damage_error("a block has no restart points")
    return end


def _entry_head(data: bytes, at: int) -> tuple[int, int, int, int]:
    """Return how many bytes of the key are shared, how many are its own, the value's size, and where its own begin."""
    if at + 3 <= len(data) and max(data[at : at + 3]) < 128:
        return data[at], data[at + 1], data[at + 2], at + 3
    shared, at = read_varint(data, at)
    unshared, at = read_varint(data, at)
    length, at = read_varint(data, at)
    return shared, unshared, length, at


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """Read the offset and size of a block; return them and the position after them."""
    offset, at = read_varint(data, at)
    size, at = read_varint(data, at)
    return (offset, size), at
