"""Window files of forks, which list images with boxes as words."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ...base.errors import DataError, Problem
from ...core.data.window_data import Words

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
    try:
        text_file = open(file, encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
    except OSError as error:
        raise DataError(Problem(f"the window file cannot be read: {error.strerror}", str(file))) from error
    with text_file:
        words = Words(text_file)

        def read_integers(count: int) -> list[int]:
            if count < 0:
                raise ValueError("a number of boxes is negative")
            integers = [int(word) for word in itertools.islice(words, count)]
            if len(integers) < count:
                raise ValueError("the file ends")
            return integers

        try:
            for word in words:
                if word != "#":
                    raise ValueError(f"'{word}' is there instead of '#'")
                read_integers(1)
                entries.append(read_entry(next(words, ""), read_integers))
        except (OSError, ValueError, OverflowError) as error:
            message = f"image {len(entries)} of the window file is malformed: {error}"
            raise DataError(Problem(message, str(file), words.line_number)) from error
    if not entries:
        raise DataError(Problem("the window file is empty", str(file)))
    return entries
