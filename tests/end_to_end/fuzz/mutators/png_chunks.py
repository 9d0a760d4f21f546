"""Mutations of PNG files chunk by chunk, with recomputed checksums."""

from __future__ import annotations

import struct
import zlib
from random import Random

from .byte_mutations import damage
from .numbers import draw_edge

_PNG = b"\x89PNG\r\n\x1a\n"


def change_image(rng: Random, content: bytes) -> bytes:
    """Change a PNG's chunk or a JPEG's segment; sometimes, and for other formats always, any bytes."""
    if rng.random() < 0.25:
        return damage(rng, content)
    if content.startswith(_PNG):
        return _change_png(rng, content)
    if content.startswith(b"\xff\xd8"):
        return _change_jpeg(rng, content)
    result = bytearray(content)
    offset, size = rng.randrange(min(60, len(result))), rng.choice((1, 2, 4))
    result[offset : offset + size] = draw_edge(rng, 8 * size).to_bytes(size, rng.choice(("little", "big")))
    return bytes(result)


def _change_png(rng: Random, content: bytes) -> bytes:
    chunks, offset = [], len(_PNG)
    while offset + 8 <= len(content):
        (size,) = struct.unpack_from(">I", content, offset)
        chunks.append((content[offset + 4 : offset + 8], content[offset + 8 : offset + 8 + size]))
        offset += size + 12
    i = rng.randrange(len(chunks))
    chunk_type, data = chunks[i]
    choice = rng.random()
    if choice < 0.4:
        data = bytearray(chunks[0][1])
        field_offset, size = rng.choice(((0, 4), (4, 4), (8, 1), (9, 1), (10, 1), (12, 1)))
        data[field_offset : field_offset + size] = (
            draw_edge(rng, 12) if size == 4 else rng.choice((0, 1, 2, 3, 4, 6, 8, 16, 255))
        ).to_bytes(size, "big")
        chunks[0] = chunks[0][0], bytes(data)
    elif choice < 0.7:
        chunks[i] = chunk_type, damage(rng, data) if data else b"x"
    elif choice < 0.8:
        chunks[i] = rng.choice((b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND", b"acTL", b"eXIf", b"iCCP", b"zTXt")), data
    else:
        chunks = rng.choice([chunks[:i] + chunks[i + 1 :], chunks[: i + 1] * 2, chunks[::-1]])
    out = bytearray(_PNG)
    for chunk_type, data in chunks:
        out += struct.pack(">I", len(data)) + chunk_type + data + struct.pack(">I", zlib.crc32(chunk_type + data))
    return bytes(out)


def _change_jpeg(rng: Random, content: bytes) -> bytes:
    marker_offsets = [i for i in range(len(content) - 1) if content[i] == 0xFF and content[i + 1] not in (0, 0xFF)]
    result = bytearray(content)
    offset = rng.choice(marker_offsets)
    if rng.random() < 0.2:
        result[offset + 1] = rng.choice((0xC0, 0xC1, 0xC2, 0xC4, 0xDB, 0xDA, 0xD8, 0xD9, 0xE1, 0xFE))
        return bytes(result)
    offset += rng.randrange(2, 20)
    size = rng.choice((1, 2))
    result[offset : offset + size] = draw_edge(rng, 8 * size if size == 1 else 12).to_bytes(size, "big")
    return bytes(result)
