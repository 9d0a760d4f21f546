"""The tables in a log, whichever form it has."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import StringIO

from ..atomic import replacing

Row = dict[str, float]

FIXED = ("NumIters", "Seconds", "LearningRate")  # columns that every row has, before the outputs


@dataclass
class Log:
    """The tables in a log: lists of rows `{column: number}`.

    Each row has NumIters; Seconds since the solver began; and LearningRate, NaN before the log first states it.

    Attributes:
        train: further columns are the train net's outputs.
        test: likewise the test nets', one row per net.
        loss: a further column `loss` is the smoothed loss.
        rate: no further column; where the log states the learning rate.
    """

    train: list[Row] = field(default_factory=list)
    test: list[Row] = field(default_factory=list)
    loss: list[Row] = field(default_factory=list)
    rate: list[Row] = field(default_factory=list)


def column(name: str, row: Row) -> str:
    """Return the column of a row's next value of an output: `name`, `name[1]`, `name[2]`."""
    found, index = name, 0
    while found in row:
        index += 1
        found = f"{name}[{index}]"
    return found


def write_csv(path: str | os.PathLike[str], rows: Sequence[Row], delimiter: str = ",") -> None:
    """Write a table with a line of headings; columns that a row lacks stay empty.

    Raises:
        CaffejaxError: if the file cannot be written.
    """
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = StringIO()
    writer = csv.DictWriter(text, columns, delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with replacing(path) as file:
        file.write(text.getvalue().encode())
