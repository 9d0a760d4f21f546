"""Numbers at the limits of fields."""

from __future__ import annotations

from random import Random

EDGES = sorted(
    {0, 1, 2, 3, 100, 1000, 4096, 65537, 10**6}
    | {(1 << bits) + offset for bits in (7, 8, 15, 16, 24, 31, 32, 62, 63, 64) for offset in (-1, 0, 1)}
)


def draw_edge(rng: Random, bits: int = 64) -> int:
    """Draw a number of at most this many bits, not negative."""
    value = rng.choice(EDGES) if rng.random() < 0.7 else rng.getrandbits(rng.randrange(1, bits + 1))
    return value & ((1 << bits) - 1)
