"""LMDB files changed where numbers are: heads of pages and of nodes, the two states."""

from __future__ import annotations

from random import Random

from .numbers import draw_edge
from .raw import damage

PAGE = 4096


def change_pages(draw: Random, content: bytes) -> bytes:
    """Change numbers in the head of a page or of a node; now and then anything, or pages as a whole."""
    kind = draw.random()
    if kind < 0.15:
        return damage(draw, content)
    result = bytearray(content)
    pages = len(result) // PAGE
    if kind < 0.25:
        target, source = draw.randrange(pages) * PAGE, draw.randrange(pages) * PAGE
        result[target : target + PAGE] = content[source : source + PAGE]
        return bytes(result)
    for _ in range(draw.choice((1, 1, 2, 8))):
        page = draw.randrange(pages) * PAGE
        offset = page + draw.choice(
            (draw.randrange(16), draw.randrange(16, 150), draw.randrange(200), draw.randrange(PAGE))
        )
        size = draw.choice((1, 2, 4, 8))
        result[offset : offset + size] = draw_edge(draw, 8 * size).to_bytes(size, "little")[: len(result) - offset]
    return bytes(result)
