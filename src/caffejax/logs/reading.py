"""Reading a log, whichever form it has."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TextIO

from ..errors import DataError, Problem
from .caffe_log import read_caffe_log
from .json_lines import read_json_lines
from .tables import Log, Row

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_LONGEST_LINE = 2**24  # characters; what is longer is read in parts, and so is no line of a log


def parse_log(path: str | os.PathLike[str]) -> tuple[list[Row], list[Row]]:
    """Return the outputs of the train net and of the test nets, as Caffe's parse_log does. Raises as `read_log`."""
    log = read_log(path)
    return log.train, log.test


def read_log(path: str | os.PathLike[str]) -> Log:
    """Read a log: Caffe's, caffejax's, or JSON lines, which begin with a brace.

    Lines that are none of a log's are passed over. An output of several values has a column for each: `name`,
    `name[1]`, `name[2]`. The first row takes its learning rate from the second, as in Caffe, whose solvers state
    the rate only after the first outputs.

    Raises:
        DataError: for a file that cannot be read, or has no iteration of a solver in it.
    """
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            year = datetime.fromtimestamp(os.path.getmtime(path)).year
            start = file.read(2**16)
            lines = map(_plain, _lines(start, file))
            if "\0" in start:
                log = Log()  # binary
            elif _plain(start).lstrip().startswith("{"):
                log = read_json_lines(lines)
            else:
                log = read_caffe_log(lines, year)
    except OSError as error:
        raise DataError(Problem(f"cannot be read: {error.strerror}", str(path))) from error
    if not (log.train or log.test or log.loss):
        raise DataError(Problem("this is no log of a training run: it states no loss and no net output", str(path)))
    for rows in (log.train, log.test, log.loss):
        if len(rows) > 1 and math.isnan(rows[0]["LearningRate"]):
            rows[0]["LearningRate"] = rows[1]["LearningRate"]
    return log


def read_logs(paths: Iterable[str | os.PathLike[str]]) -> list[Log]:
    """Read several logs.

    Raises:
        DataError: for all that cannot be read, together.
    """
    logs: list[Log] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            logs.append(read_log(path))
        except DataError as error:
            problems += error.problems
    if problems:
        raise DataError(problems)
    return logs


def _plain(line: str) -> str:
    """Return a line without what moves a terminal's cursor and colours it, as in what `script` captures of one."""
    return _ESCAPES.sub("", line)


def _lines(start: str, file: TextIO) -> Iterator[str]:
    """Yield the lines of a file of which the start has been read."""
    *whole, cut = start.splitlines(keepends=True) or [""]
    yield from whole
    yield cut if cut.endswith("\n") else cut + file.readline(_LONGEST_LINE)
    while line := file.readline(_LONGEST_LINE):
        yield line
