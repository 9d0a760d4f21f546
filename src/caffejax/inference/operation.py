"""What a program is made of: operations, each of which makes one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Shape = tuple[int, ...]
Numbers = int | float | Sequence[int]


@dataclass
class Operation:
    """A word with its fields, the shape of what it makes, and what is then computed on that, likewise.

    Values are numbered: a program's arguments, then what each operation makes. "in" are those that it reads.
    """

    word: str
    fields: dict[str, Numbers]
    out: Shape
    after: list[tuple[str, dict[str, Numbers]]] = field(default_factory=list)
