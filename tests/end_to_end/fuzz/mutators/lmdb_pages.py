"""Mutations of numbers in LMDB files: page headers, nodes and meta pages."""

from __future__ import annotations

from random import Random

from .byte_mutations import damage
from .numbers import draw_edge

PAGE_SIZE = 4096


def change_pages(rng: Random, content: bytes) -> bytes:
    """Change numbers in the head of a page or of a node; now and then anything, or pages as a whole."""
    choice = rng.random()
    if choice < 0.15:
        return damage(rng, content)
    result = bytearray(content)
    num_pages = len(result) // PAGE_SIZE
    if choice < 0.25:
        target, source = rng.randrange(num_pages) * PAGE_SIZE, rng.randrange(num_pages) * PAGE_SIZE
        result[target : target + PAGE_SIZE] = content[source : source + PAGE_SIZE]
        return bytes(result)
    for _ in range(rng.choice((1, 1, 2, 8))):
        page_offset = rng.randrange(num_pages) * PAGE_SIZE
        offset = page_offset + rng.choice(
            (rng.randrange(16), rng.randrange(16, 150), rng.randrange(200), rng.randrange(PAGE_SIZE))
        )
        size = rng.choice((1, 2, 4, 8))
        result[offset : offset + size] = draw_edge(rng, 8 * size).to_bytes(size, "little")[: len(result) - offset]
    return bytes(result)
