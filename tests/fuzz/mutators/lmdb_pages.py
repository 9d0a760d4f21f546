"""LMDB files changed where numbers are: heads of pages and of nodes, the two states."""

from __future__ import annotations

from random import Random

from .numbers import draw_edge
from .raw import damage

PAGE = 4096


def change_pages(rng: Random, content: bytes) -> bytes:
    """Change numbers in the head of a page or of a node; now and then anything, or pages as a whole."""
    kind = rng.random()
    if kind < 0.15:
        return damage(rng, content)
    result = bytearray(content)
    pages = len(result) // PAGE
    if kind < 0.25:
        target, source = rng.randrange(pages) * PAGE, rng.randrange(pages) * PAGE
        result[target : target + PAGE] = content[source : source + PAGE]
        return bytes(result)
    for _ in range(rng.choice((1, 1, 2, 8))):
        page = rng.randrange(pages) * PAGE
        offset = page + rng.choice((rng.randrange(16), rng.randrange(16, 150), rng.randrange(200), rng.randrange(PAGE)))
        size = rng.choice((1, 2, 4, 8))
        result[offset : offset + size] = draw_edge(rng, 8 * size).to_bytes(size, "little")[: len(result) - offset]
    return bytes(result)
