"""Training logs, Caffe's and ours, which have the same form, as tables."""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from io import StringIO
from pathlib import Path

from .atomic import replacing
from .errors import DataError, Problem

Row = dict[str, float]

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)"
_GLOG = re.compile(r"^[IWEF](\d{4})?(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_ITERATION = re.compile(r"Iteration (\d+)")
_RATE = re.compile(rf"lr = ({_NUMBER})")
_LOSS = re.compile(rf"Iteration \d+(?: \(.*?\))?, loss = ({_NUMBER})")
_OUTPUT = re.compile(rf"(Train|Test) net output #(\d+): (\S+) = ({_NUMBER})")
_SOLVING = "Solving "


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


def parse_log(path: str | os.PathLike[str]) -> tuple[list[Row], list[Row]]:
    """Return the outputs of the train net and of the test nets, as Caffe's parse_log does. Raises as `read_log`."""
    log = read_log(path)
    return log.train, log.test


def read_log(path: str | os.PathLike[str]) -> Log:
    """Read a log.

    Lines that are none of a log's are passed over. An output of several values has a column for each: `name`,
    `name[1]`, `name[2]`. The first row takes its learning rate from the second, as in Caffe, whose solvers state
    the rate only after the first outputs.

    Raises:
        DataError: for a file that cannot be read, or has no iteration of a solver in it.
    """
    try:
        text = Path(path).read_text(errors="replace")
        year = datetime.fromtimestamp(os.path.getmtime(path)).year
    except OSError as error:
        raise DataError(Problem(f"cannot be read: {error.strerror}", str(path))) from error
    log = _read(text.splitlines(), year)
    if not (log.train or log.test or log.loss):
        raise DataError(Problem("this is no log of a training run: it states no loss and no net output", str(path)))
    for rows in (log.train, log.test, log.loss):
        if len(rows) > 1 and math.isnan(rows[0]["LearningRate"]):
            rows[0]["LearningRate"] = rows[1]["LearningRate"]
    return log


def _read(lines: Sequence[str], year: int) -> Log:
    log = Log()
    iteration, rate = -1, math.nan
    last = {"Train": -1, "Test": -1}  # number of the output last read
    for seconds, line in _timed(lines, year):
        if found := _ITERATION.search(line):
            iteration = int(found[1])
        if iteration < 0:
            continue
        if found := _RATE.search(line):
            rate = float(found[1])
            log.rate.append({"NumIters": float(iteration), "Seconds": seconds, "LearningRate": rate})
        row = {"NumIters": float(iteration), "Seconds": seconds, "LearningRate": rate}
        if found := _LOSS.search(line):
            log.loss.append(row | {"loss": float(found[1])})
        if found := _OUTPUT.search(line):
            rows = log.train if found[1] == "Train" else log.test
            number = int(found[2])
            if not rows or rows[-1]["NumIters"] != iteration or number <= last[found[1]]:
                rows.append(row)
            last[found[1]] = number
            rows[-1][_column(found[3], rows[-1])] = float(found[4])
    return log


def _column(name: str, row: Row) -> str:
    column, index = name, 0
    while column in row:
        index += 1
        column = f"{name}[{index}]"
    return column


def _timed(lines: Sequence[str], year: int) -> Iterator[tuple[float, str]]:
    """Yield the lines that carry a time, each with the seconds since the solver began, or else since the first."""
    began = next((i for i, line in enumerate(lines) if _SOLVING in line and _GLOG.match(line)), 0)
    start: datetime | None = None
    before: datetime | None = None
    for line in lines[began:]:
        found = _GLOG.match(line)
        if not found:
            continue
        stated, month, day, hour, minute, second, micros = found.groups()
        clock = int(hour), int(minute), int(second), int((micros or "0").ljust(6, "0"))
        try:
            time = datetime(int(stated or year), int(month), int(day), *clock)
            if not stated and before is not None and time.month < before.month:  # New Year
                year += 1
                time = time.replace(year=year)
        except ValueError:  # no date
            continue
        start, before = start or time, time
        yield (time - start).total_seconds(), line


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
