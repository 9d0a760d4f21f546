"""Caffe's log lines, and ours, which have the same form: glog's."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from datetime import datetime

from .tables import Log, Row, column

_NUMBER = r"[-+]?(?:1\.#\w+|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)"
_GLOG = re.compile(r"^[IWEF](\d{4})?(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_ITERATION = re.compile(r"Iteration (\d{1,18})")
_RATE = re.compile(rf"lr = ({_NUMBER})")
_LOSS = re.compile(rf"Iteration \d+(?: \(.*?\))?, loss = ({_NUMBER})")
_OUTPUT = re.compile(rf"(Train|Test) net output #(\d{{1,18}}): (\S+) = ({_NUMBER})")
_SOLVING = "Solving "


def read_caffe_log(lines: Iterable[str], year: int) -> Log:
    """Read glog's lines; others are passed over. Of dates without a year, the first is in `year`.

    Where a second run was added to the log, resumed or begun anew, it counts from its first iteration on: what the one
    before did from there on is dropped.
    """
    log = Log()
    iteration, rate = -1, math.nan
    last = {"Train": -1, "Test": -1}  # number of the output last read
    began = again = False
    for seconds, line in _timed(lines, year):
        if _SOLVING in line:
            if not began:
                log, rate = Log(), math.nan
            began, again, iteration = True, began, -1
        if found := _ITERATION.search(line):
            iteration = int(found[1])
            if again:
                log, again = _before(log, iteration), False
        if iteration < 0:
            continue
        if found := _RATE.search(line):
            rate = _number(found[1])
            log.rate.append({"NumIters": float(iteration), "Seconds": seconds, "LearningRate": rate})
        row = {"NumIters": float(iteration), "Seconds": seconds, "LearningRate": rate}
        if found := _LOSS.search(line):
            log.loss.append(row | {"loss": _number(found[1])})
        if found := _OUTPUT.search(line):
            rows = log.train if found[1] == "Train" else log.test
            number = int(found[2])
            if not rows or rows[-1]["NumIters"] != iteration or number <= last[found[1]]:
                rows.append(row)
            last[found[1]] = number
            rows[-1][column(found[3], rows[-1])] = _number(found[4])
    return log


def _before(log: Log, iteration: int) -> Log:
    def kept(rows: list[Row]) -> list[Row]:
        return [row for row in rows if row["NumIters"] < iteration]

    return Log(kept(log.train), kept(log.test), kept(log.loss), kept(log.rate))


def _number(text: str) -> float:
    """Return a number as C prints it, or older libraries of Windows: 1.#INF, -1.#IND, 1.#QNAN."""
    sign, _, word = text.partition("1.#")
    if not word:
        return float(text)
    return float(f"{sign}inf") if word.startswith("INF") else math.nan


def _timed(lines: Iterable[str], year: int) -> Iterator[tuple[float, str]]:
    """Yield the lines that carry a time, each with the seconds since the solver began, or else since the first."""
    start: datetime | None = None
    before: datetime | None = None
    stated_year, began = year, False
    for line in lines:
        found = _GLOG.match(line)
        if not found:
            continue
        if _SOLVING in line and not began:
            start, before, year, began = None, None, stated_year, True
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
