"""Mutations of LevelDB files with valid checksums: records of logs and manifests, blocks of tables."""

from __future__ import annotations

import struct
from random import Random

import cramjam

from caffejax.base.databases.leveldb.leveldb_format import checksum
from caffejax.base.databases.leveldb.write_ahead_log import frame_records

from .byte_mutations import damage
from .numbers import draw_edge

_HEADER = struct.Struct("<IHB")
_TRAILER = struct.Struct("<BI")
_FOOTER = 48


def change_log(rng: Random, content: bytes) -> bytes:
    """Change a record of a log or manifest, and frame all records again; sometimes the file's bytes instead."""
    records = _read_records(content)
    choice = rng.random()
    if choice < 0.25 or not records:
        return damage(rng, content)
    index = rng.randrange(len(records))
    if choice < 0.8:
        records[index] = _change_numbers(rng, records[index]) if rng.random() < 0.6 else damage(rng, records[index])
    else:
        records = rng.choice([records[:index], records + records[: index + 1], records[::-1], records[index:]])
    return frame_records(records)


def change_table(rng: Random, content: bytes) -> bytes:
    """Change the bytes of a table's blocks, and compute the checksums again; sometimes the file's bytes instead."""
    if rng.random() < 0.3 or len(content) < _FOOTER:
        return damage(rng, content)
    result = bytearray(content)
    blocks = list(_find_blocks(content))
    if not blocks:
        return damage(rng, content)
    offset, size = rng.choice(blocks)
    block = bytes(result[offset : offset + size])
    compression = result[offset + size]
    if compression == 1 and rng.random() < 0.8:
        try:
            decompressed = bytes(cramjam.snappy.decompress_raw(block))
            compressed = bytes(cramjam.snappy.compress_raw(_change_in_place(rng, decompressed)))
        except cramjam.DecompressionError:
            compressed = _change_in_place(rng, block)
        if len(compressed) <= size:  # what is left over is no part of it: snappy says how long it is
            block = compressed.ljust(size, b"\0") if rng.random() < 0.2 else compressed
    else:
        block = _change_in_place(rng, block)
    if len(block) == size:
        result[offset : offset + size] = block
        compression = rng.choice((compression, compression, compression, 0, 1, 2))
        result[offset + size : offset + size + 5] = _TRAILER.pack(compression, checksum(block + bytes([compression])))
    return bytes(result)


def _change_in_place(rng: Random, content: bytes) -> bytes:
    """Change bytes where numbers are: at the begin of entries, and the restart points at the end."""
    if not content:
        return content
    result = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        size = rng.choice((1, 1, 4))
        offset = rng.choice(
            (
                rng.randrange(min(16, len(result))),
                max(0, len(result) - rng.randrange(1, 20)),
                rng.randrange(len(result)),
            )
        )
        result[offset : offset + size] = draw_edge(rng, 8 * size).to_bytes(size, "little")[: len(result) - offset]
    return bytes(result)


def _change_numbers(rng: Random, record: bytes) -> bytes:
    return _change_in_place(rng, record) if rng.random() < 0.7 else record + rng.randbytes(rng.randrange(1, 12))


def _find_blocks(content: bytes) -> list[tuple[int, int]]:
    """Where the blocks are that the footer names, and those before the first of them, as far as they can be told."""
    numbers, value, shift = [], 0, 0
    for byte in content[-_FOOTER:-8]:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(value)
            value = shift = 0
    blocks = [(numbers[i], numbers[i + 1]) for i in (0, 2) if len(numbers) > i + 1]
    ends = [offset for offset, _ in blocks if offset]
    if ends and min(ends) > 5:  # a small table has one block of data, from its begin on
        blocks.append((0, min(ends) - 5))
    return [(offset, size) for offset, size in blocks if size and offset + size + 5 <= len(content)]


def _read_records(content: bytes) -> list[bytes]:
    """The records of a small log: those in one fragment."""
    records, offset = [], 0
    while offset + _HEADER.size <= len(content):
        _, length, record_type = _HEADER.unpack_from(content, offset)
        data = content[offset + _HEADER.size : offset + _HEADER.size + length]
        if record_type in (1, 2):
            records.append(data)
        elif record_type in (3, 4) and records:
            records[-1] += data
        offset += _HEADER.size + length
        if 32768 - offset % 32768 < _HEADER.size:
            offset += 32768 - offset % 32768
    return records
