"""Reading of logs of training runs as tables: Caffe's logs, caffejax's logs, and JSON lines."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from io import StringIO
from typing import Any, TextIO

from ...base.atomic_write import replace_file
from ...base.errors import DataError, Problem

Row = dict[str, float]

COMMON_COLUMNS = ("NumIters", "Seconds", "LearningRate")  # columns that every row has, before the outputs


@dataclass
class Log:
    """The tables of a log: lists of rows `{column: number}`.

    Each row has NumIters, Seconds since the start of the solver, and LearningRate, which is NaN until the log states
    it.

    Attributes:
        train: rows with the train net's outputs as additional columns.
        test: rows with a test net's outputs as additional columns, one row for each net.
        loss: rows with the smoothed loss as the additional column `loss`.
        rate: rows without additional columns, one for each time that the log states the learning rate.
    """

    train: list[Row] = field(default_factory=list)
    test: list[Row] = field(default_factory=list)
    loss: list[Row] = field(default_factory=list)
    rate: list[Row] = field(default_factory=list)


def make_column_name(name: str, row: Row) -> str:
    """Return the first of the names `name`, `name[1]`, `name[2]`, ... that is not yet a column of the row."""
    key, index = name, 0
    while key in row:
        index += 1
        key = f"{name}[{index}]"
    return key


def write_csv(path: str | os.PathLike[str], rows: Sequence[Row], delimiter: str = ",") -> None:
    """Write a table with a header line. A cell is empty if its row lacks the column.

    Raises:
        CaffejaxError: if the file cannot be written.
    """
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = StringIO()
    writer = csv.DictWriter(text, columns, delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with replace_file(path) as file:
        file.write(text.getvalue().encode())


_NUMBER = r"[-+]?(?:1\.#\w+|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)"
_GLOG_PREFIX = re.compile(r"^[IWEF](\d{4})?(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_ITERATION = re.compile(r"Iteration (\d{1,18})")
_RATE = re.compile(rf"lr = ({_NUMBER})")
_LOSS = re.compile(rf"Iteration \d+(?: \(.*?\))?, loss = ({_NUMBER})")
_OUTPUT = re.compile(rf"(Train|Test) net output #(\d{{1,18}}): (\S+) = ({_NUMBER})")
_START_MARKER = "Solving "


def read_caffe_log(lines: Iterable[str], year: int) -> Log:
    """Read a log with lines in glog's form, and ignore other lines.

    If a second run was appended to the log, its rows replace the rows of the first run from the second run's first
    iteration on.

    Args:
        lines: the lines of the log.
        year: the year of the first date, if the log's dates have no year.
    """
    log = Log()
    iteration, rate = -1, math.nan
    last_output_index = {"Train": -1, "Test": -1}  # the number of the last output that was read
    has_started = has_restarted = False
    for seconds, line in _parse_times(lines, year):
        if _START_MARKER in line:
            if not has_started:
                log, rate = Log(), math.nan
            has_started, has_restarted, iteration = True, has_started, -1
        if match := _ITERATION.search(line):
            iteration = int(match[1])
            if has_restarted:
                log, has_restarted = _keep_rows_before(log, iteration), False
        if iteration < 0:
            continue
        if match := _RATE.search(line):
            rate = _parse_c_number(match[1])
            log.rate.append({"NumIters": float(iteration), "Seconds": seconds, "LearningRate": rate})
        row = {"NumIters": float(iteration), "Seconds": seconds, "LearningRate": rate}
        if match := _LOSS.search(line):
            log.loss.append(row | {"loss": _parse_c_number(match[1])})
        if match := _OUTPUT.search(line):
            rows = log.train if match[1] == "Train" else log.test
            output_index = int(match[2])
            if not rows or rows[-1]["NumIters"] != iteration or output_index <= last_output_index[match[1]]:
                rows.append(row)
            last_output_index[match[1]] = output_index
            rows[-1][make_column_name(match[3], rows[-1])] = _parse_c_number(match[4])
    return log


def _keep_rows_before(log: Log, iteration: int) -> Log:
    def filter_rows(rows: list[Row]) -> list[Row]:
        return [row for row in rows if row["NumIters"] < iteration]

    return Log(filter_rows(log.train), filter_rows(log.test), filter_rows(log.loss), filter_rows(log.rate))


def _parse_c_number(text: str) -> float:
    """Parse a number as C prints it, including 1.#INF, -1.#IND and 1.#QNAN of older Windows libraries."""
    sign, _, word = text.partition("1.#")
    if not word:
        return float(text)
    return float(f"{sign}inf") if word.startswith("INF") else math.nan


def _parse_times(lines: Iterable[str], year: int) -> Iterator[tuple[float, str]]:
    """Yield (seconds, line) for each line with a time.

    Seconds are counted from the start of the solver, or from the first line if the log does not contain this start.
    """
    start: datetime | None = None
    previous: datetime | None = None
    first_year, has_started = year, False
    for line in lines:
        match = _GLOG_PREFIX.match(line)
        if not match:
            continue
        if _START_MARKER in line and not has_started:
            start, previous, year, has_started = None, None, first_year, True
        stated_year, month, day, hour, minute, second, micros = match.groups()
        clock = int(hour), int(minute), int(second), int((micros or "0").ljust(6, "0"))
        try:
            time = datetime(int(stated_year or year), int(month), int(day), *clock)
            if not stated_year and previous is not None and time.month < previous.month:  # New Year
                year += 1
                time = time.replace(year=year)
        except ValueError:  # not a date
            continue
        start, previous = start or time, time
        yield (time - start).total_seconds(), line


def format_event(event: Mapping[str, Any]) -> bytes:
    """Return an event as a line of JSON. Non-finite floats become strings; see docs/watching.md."""
    return json.dumps(to_json_values(event), separators=(", ", ": "), allow_nan=False).encode() + b"\n"


def parse_event(line: str) -> dict[str, Any] | None:
    """Return the event in a line, or None if the line is truncated or not an event."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def read_json_lines(lines: Iterable[str]) -> Log:
    """Read the events in JSON lines as tables, and ignore other lines.

    If a run was resumed or restarted, the rows of the earlier run after the iteration at which the new run starts are
    discarded, and the seconds of the new run continue from the end of the earlier run. If an iteration occurs twice,
    the later line is used.
    """
    train_rows: dict[float, tuple[Row, Row, Row]] = {}  # by iteration: loss, rate, outputs
    test_rows: dict[tuple[float, float], Row] = {}  # by iteration and net
    start_seconds = 0.0
    for line in lines:
        event = parse_event(line)
        iteration = _parse_json_number(event.get("iteration")) if event else None
        if event is None or iteration is None:
            continue
        row = {"NumIters": iteration, "Seconds": start_seconds + _parse_float_or_nan(event.get("seconds"))}
        row["LearningRate"] = _parse_float_or_nan(event.get("lr"))
        match event["event"]:
            case "start":
                train_rows = {n: rows for n, rows in train_rows.items() if iteration and n <= iteration}
                test_rows = {key: scores for key, scores in test_rows.items() if iteration and key[0] <= iteration}
                times = [loss["Seconds"] for loss, *_ in train_rows.values()] + [
                    r["Seconds"] for r in test_rows.values()
                ]
                start_seconds = max((seconds for seconds in times if math.isfinite(seconds)), default=0.0)
            case "train":
                train_rows.pop(iteration, None)
                loss = row | {"loss": _parse_float_or_nan(event.get("loss"))}
                train_rows[iteration] = loss, row, _add_outputs(row, event.get("outputs"))
            case "test":
                key = iteration, _parse_json_number(event.get("net")) or 0.0
                test_rows.pop(key, None)
                test_rows[key] = _add_outputs(row, event.get("outputs"))
    log = Log(test=list(test_rows.values()))
    for loss, rate, outputs in train_rows.values():
        log.loss.append(loss)
        log.rate.append(rate)
        log.train += [outputs] if len(outputs) > len(rate) else []
    return log


def to_json_values(value: Any) -> Any:
    """Convert nested values to types that JSON supports.

    Keys and non-finite floats become strings, and sequences become lists.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): to_json_values(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [to_json_values(item) for item in value]
    return value


def _parse_json_number(value: Any) -> float | None:
    """Return a JSON number as a float, or None for a value of another type."""
    if isinstance(value, bool) or not (isinstance(value, int | float) or value in ("NaN", "Infinity", "-Infinity")):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _parse_float_or_nan(value: Any) -> float:
    number = _parse_json_number(value)
    return math.nan if number is None else number


def _add_outputs(row: Row, outputs: Any) -> Row:
    extended_row = dict(row)
    for name, value in outputs.items() if isinstance(outputs, dict) else ():
        for item in value if isinstance(value, list) else [value]:
            if (number := _parse_json_number(item)) is not None:
                extended_row[make_column_name(name, extended_row)] = number
    return extended_row


_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_MAX_LINE_LENGTH = 2**24  # characters; the parts of longer lines are ignored like other text


def parse_log(path: str | os.PathLike[str]) -> tuple[list[Row], list[Row]]:
    """Return the rows of the train net's outputs and of the test nets' outputs, like Caffe's parse_log.py.

    Raises:
        DataError: if the file cannot be read, or contains no losses and no outputs.
    """
    log = read_log(path)
    return log.train, log.test


def read_log(path: str | os.PathLike[str]) -> Log:
    """Read a log of Caffe or caffejax, or a file of JSON lines, which begins with a brace.

    Other lines are ignored. An output with several values has a column for each value: `name`, `name[1]`, `name[2]`.
    The learning rate of the rows of the first iteration is copied from the next iteration, as in Caffe's parse_log.py,
    because solvers print the rate after the first outputs.

    Raises:
        DataError: if the file cannot be read, or contains no losses and no outputs.
    """
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            year = datetime.fromtimestamp(os.path.getmtime(path)).year
            start = file.read(2**16)
            lines = map(_strip_escapes, _iterate_lines(start, file))
            if "\0" in start:
                log = Log()  # binary
            elif _strip_escapes(start).lstrip().startswith("{"):
                log = read_json_lines(lines)
            else:
                log = read_caffe_log(lines, year)
    except OSError as error:
        raise DataError(Problem(f"cannot be read: {error.strerror}", str(path))) from error
    if not (log.train or log.test or log.loss):
        raise DataError(Problem("this is not the log of a training run: it has no loss and no net output", str(path)))
    for rows in (log.train, log.test, log.loss):
        later_rows = (row for row in rows if row["NumIters"] != rows[0]["NumIters"])
        next_rate = next((row["LearningRate"] for row in later_rows), math.nan)
        for row in rows:  # several test nets have a row each
            if row["NumIters"] == rows[0]["NumIters"] and math.isnan(row["LearningRate"]):
                row["LearningRate"] = next_rate
    return log


def read_logs(paths: Iterable[str | os.PathLike[str]]) -> list[Log]:
    """Read several logs.

    Raises:
        DataError: if logs cannot be read; the message names each of them.
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


def _strip_escapes(line: str) -> str:
    """Remove terminal escape sequences, which the command `script` records, from a line."""
    return _ESCAPE_SEQUENCE.sub("", line)


def _iterate_lines(start: str, file: TextIO) -> Iterator[str]:
    """Yield all lines of a file whose first characters, `start`, have already been read from it."""
    *complete_lines, last_line = start.splitlines(keepends=True) or [""]
    yield from complete_lines
    yield last_line if last_line.endswith("\n") else last_line + file.readline(_MAX_LINE_LENGTH)
    while line := file.readline(_MAX_LINE_LENGTH):
        yield line
