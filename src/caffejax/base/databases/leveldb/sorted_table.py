"""Table files: sorted entries in blocks. Each block is compressed and has a checksum."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import cramjam

from .leveldb_format import Entry, Files, checksum, make_damage_error, read_varint, split_key

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
    stored_block = files.read(name, offset, size + TRAILER.size)
    compression, crc = TRAILER.unpack_from(stored_block, size)
    if checksum(stored_block[: size + 1]) != crc:
        raise make_damage_error(f"the block at byte {offset} has a wrong checksum")
    if compression == RAW:
        return stored_block[:size]
    if compression != SNAPPY:
        raise make_damage_error(f"the block at byte {offset} has the unknown compression {compression}")
    try:
        return bytes(cramjam.snappy.decompress_raw(stored_block[:size]))
    except cramjam.DecompressionError as error:
        raise make_damage_error(f"the block at byte {offset} cannot be decompressed ({error})") from error


def read_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the key, with its tag, and the value of each entry of a block.

    Raises:
        DataError: if an entry extends beyond the end of the block.
    """
    end = _find_entries_end(len(block), block[-WORD.size :])
    position, key = 0, b""
    while position < end:
        shared, unshared, value_size, position = _parse_entry_header(block, position)
        key_end = position + unshared
        value_end = key_end + value_size
        if shared > len(key) or value_end > end:
            raise make_damage_error("an entry of a block extends beyond its end")
        key = key[:shared] + block[position:key_end]
        yield key, block[key_end:value_end]
        position = value_end


def scan_table(files: Files, name: str) -> Iterator[Entry]:
    """Yield all entries of a table in order. Blocks with large values are read only in part, and are not verified.

    Raises:
        DataError: if the table is damaged.
    """
    file_size = files.size(name)
    if file_size < FOOTER.size:
        raise make_damage_error(f"has {file_size} bytes, too few for a table")
    handles, magic = FOOTER.unpack(files.read(name, file_size - FOOTER.size, FOOTER.size))
    if magic != MAGIC:
        raise make_damage_error("does not end with the magic number of a table")
    *_, position = _parse_handle(handles, 0)  # of the filters
    block_offset, block_size, _ = _parse_handle(handles, position)
    for _, value in read_entries(read_block(files, name, block_offset, block_size)):
        block_offset, block_size, _ = _parse_handle(value, 0)
        for entry_index, internal_key in enumerate(_read_keys(files, name, block_offset, block_size)):
            key, tag = split_key(internal_key)
            yield Entry(key, -tag, name, block_offset, block_size, entry_index)


def _read_keys(files: Files, name: str, offset: int, size: int) -> Iterator[bytes]:
    if size >= LARGE_BLOCK:
        tail = files.read(name, offset + size - WORD.size, WORD.size + TRAILER.size)
        if tail[WORD.size] == RAW:
            yield from _scan_keys(files, name, offset, _find_entries_end(size, tail[: WORD.size]))
            return
    for key, _ in read_entries(read_block(files, name, offset, size)):
        yield key


def _scan_keys(files: Files, name: str, offset: int, end: int) -> Iterator[bytes]:
    """Yield the keys of an uncompressed block whose entries end at byte `end`. Values are not read."""
    position, key = 0, b""
    while position < end:
        window = files.read(name, offset + position, min(_WINDOW_SIZE, end - position))
        shared, unshared, value_size, header_size = _parse_entry_header(window, 0)
        if shared > len(key) or position + header_size + unshared + value_size > end:
            raise make_damage_error("an entry of a block extends beyond its end")
        suffix = window[header_size : header_size + unshared]
        if len(suffix) < unshared:
            suffix = files.read(name, offset + position + header_size, unshared)
        key = key[:shared] + suffix
        yield key
        position += header_size + unshared + value_size


def _find_entries_end(size: int, last_word: bytes) -> int:
    """Return the byte where a block's entries end. Its last word is the number of restart points, which follow."""
    num_restarts = WORD.unpack(last_word)[0] if len(last_word) == WORD.size else 0
    end = size - WORD.size * (num_restarts + 1)
    if end < 0 or not num_restarts:
        raise make_damage_error("a block has no restart points")
    return end


def _parse_entry_header(data: bytes, position: int) -> tuple[int, int, int, int]:
    """Return the bytes shared with the previous key, further bytes of the key and of the value, and the next byte."""
    if position + 3 <= len(data) and max(data[position : position + 3]) < 128:
        return data[position], data[position + 1], data[position + 2], position + 3
    shared, position = read_varint(data, position)
    unshared, position = read_varint(data, position)
    value_size, position = read_varint(data, position)
    return shared, unshared, value_size, position


def _parse_handle(data: bytes, position: int) -> tuple[int, int, int]:
    """Decode a block handle. Return the offset and size of the block, and the position after the handle."""
    offset, position = read_varint(data, position)
    size, position = read_varint(data, position)
    return offset, size, position
