"""Mutations of arbitrary bytes, regardless of the format."""

from __future__ import annotations

from random import Random

from .numbers import draw_edge


def change_bytes(rng: Random, content: bytes) -> bytes:
    """Overwrite a few places with other numbers of one to eight bytes, in either order."""
    result = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        offset = rng.randrange(len(result) + 1)
        size = rng.choice((1, 1, 2, 4, 8))
        piece = draw_edge(rng, 8 * size).to_bytes(size, rng.choice(("little", "big")))
        result[offset : offset + size] = piece[: max(0, len(result) - offset)]
    return bytes(result)


def flip_bit(rng: Random, content: bytes) -> bytes:
    """Flip one bit."""
    result = bytearray(content)
    if result:
        result[rng.randrange(len(result))] ^= 1 << rng.randrange(8)
    return bytes(result)


def truncate(rng: Random, content: bytes) -> bytes:
    """Leave out the end."""
    return content[: rng.randrange(len(content) + 1)]


def rearrange(rng: Random, content: bytes) -> bytes:
    """Leave out, repeat, insert or zero a piece."""
    begin, end = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    end = min(end, begin + rng.choice((1, 8, 64, 4096)))
    piece = content[begin:end]
    replacement = rng.choice((b"", piece * 2, bytes(len(piece)), rng.randbytes(rng.randrange(1, 20)) + piece))
    return content[:begin] + replacement + content[end:]


def damage(rng: Random, content: bytes) -> bytes:
    """Damage in one of these ways."""
    return rng.choice((change_bytes, change_bytes, flip_bit, truncate, rearrange))(rng, content)
