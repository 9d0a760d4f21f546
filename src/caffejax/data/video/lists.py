"""Lists of videos: a name, whole numbers, and labels on each line, with spaces between them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ...errors import DataError, Problem
from ..lists import read_names, shorten

_WHOLE = re.compile(r"[+-]?\d{1,9}")


@dataclass(frozen=True)
class VideoList:
    """A list of videos.

    Attributes:
        names: the videos' names, as written.
        numbers: the number that stands between a name and its labels: where a clip begins, or how many frames there
            are; 0 where there is none.
        labels: the labels of each.
    """

    names: list[str]
    numbers: list[int]
    labels: list[list[int]]


def read_videos(file: Path, *, numbered: bool, several: bool = False) -> VideoList:
    """Read a list of videos.

    Args:
        file: the list.
        numbered: whether there is a number between the name and the labels.
        several: whether there may be several labels, with commas between them.

    Raises:
        DataError: if the file cannot be read, is empty, or with all lines that are not of that form.
    """
    videos, problems = VideoList([], [], []), []
    form = "a name, " + ("a whole number, " if numbered else "") + ("labels" if several else "a label")
    for line, text in enumerate(read_names(file), 1):
        name, *rest = text.split()
        labels = rest[-1].split(",") if several and rest else rest[-1:]
        numbers = rest[:-1]
        if len(rest) != 1 + numbered or not all(map(_WHOLE.fullmatch, (*numbers, *labels))):
            problems.append(Problem(f"'{text}' is not {form}, with spaces between them", str(file), line))
            continue
        videos.names.append(name)
        videos.numbers.append(int(numbers[0]) if numbered else 0)
        videos.labels.append([int(label) for label in labels])
    if problems:
        raise DataError(shorten(problems))
    return videos
