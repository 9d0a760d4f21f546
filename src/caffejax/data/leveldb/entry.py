"""An entry of a LevelDB: a key, and where its value stands."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """What a table or a log says about a key. Sorts as LevelDB does: by key, the newest first.

    Attributes:
        key: the user's key.
        age: the tag, negative: later entries have the smaller one.
        file: the name of the file.
        offset: where the block of the entry begins in it. In a log, every entry is a block.
        size: the size of that block.
        n: the number of the entry in the block.
    """

    key: bytes
    age: int
    file: str
    offset: int
    size: int
    n: int
