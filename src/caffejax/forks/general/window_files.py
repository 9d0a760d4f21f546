"""Window files of forks, which list images with boxes as words."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ...base.errors import DataError, Problem
from ...base.paths import read_bytes
from ...core.data.window_data import Words

_LIMIT = 2**31  # of the integers of a file
Entry = TypeVar("Entry")
ReadIntegers = Callable[[int], list[int]]


def read_window_file(file: Path, read_entry: Callable[[str, ReadIntegers], Entry]) -> list[Entry]:
    """Read a window file. The words of an image are "#", its number, its path, and those that `read_entry` reads.

    Args:
        file: the window file.
        read_entry: `read_entry(path, read_integers)` reads the other words of an image, where `read_integers(n)`
            returns the next n words as integers. It raises a ValueError if they are invalid.

    Returns:
        The results of `read_entry`.

    Raises:
        DataError: if the file cannot be read, is empty, or has another form. The message names the line.
    """
    entries: list[Entry] = []
    words = Words(read_bytes(file, DataError, "the window file"))

    def read_integers(count: int) -> list[int]:
        if count < 0:
            raise ValueError("a number of boxes is negative")
        integers = [int(word) for word in itertools.islice(words, count)]
        if not all(-_LIMIT <= integer < _LIMIT for integer in integers):
            raise ValueError("a number does not fit 32 bits")
        if len(integers) < count:
            raise ValueError("the file ends")
        return integers

    try:
        for word in words:
            if word != "#":
                raise ValueError(f"'{word}' is there instead of '#'")
            read_integers(1)
            entries.append(read_entry(next(words, ""), read_integers))
    except ValueError as error:
        message = f"image {len(entries)} of the window file is malformed: {error}"
        raise DataError(Problem(message, str(file), words.line_number)) from error
    if not entries:
        raise DataError(Problem("the window file is empty", str(file)))
    return entries
