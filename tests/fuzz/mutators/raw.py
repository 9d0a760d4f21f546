"""Bytes changed anywhere, whatever they mean."""

from __future__ import annotations

from random import Random

from .numbers import draw_edge


def change_bytes(draw: Random, content: bytes) -> bytes:
    """Overwrite a few places with other numbers of one to eight bytes, in either order."""
    result = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 4, 16))):
        offset = draw.randrange(len(result) + 1)
        size = draw.choice((1, 1, 2, 4, 8))
        piece = draw_edge(draw, 8 * size).to_bytes(size, draw.choice(("little", "big")))
        result[offset : offset + size] = piece[: max(0, len(result) - offset)]
    return bytes(result)


def flip_bit(draw: Random, content: bytes) -> bytes:
    """Flip one bit."""
    result = bytearray(content)
    if result:
        result[draw.randrange(len(result))] ^= 1 << draw.randrange(8)
    return bytes(result)


def truncate(draw: Random, content: bytes) -> bytes:
    """Leave out the end."""
    return content[: draw.randrange(len(content) + 1)]


def rearrange(draw: Random, content: bytes) -> bytes:
    """Leave out, repeat, insert or zero a piece."""
    begin, end = sorted(draw.randrange(len(content) + 1) for _ in range(2))
    end = min(end, begin + draw.choice((1, 8, 64, 4096)))
    piece = content[begin:end]
    replacement = draw.choice((b"", piece * 2, bytes(len(piece)), draw.randbytes(draw.randrange(1, 20)) + piece))
    return content[:begin] + replacement + content[end:]


def damage(draw: Random, content: bytes) -> bytes:
    """Damage in one of these ways."""
    return draw.choice((change_bytes, change_bytes, flip_bit, truncate, rearrange))(draw, content)
