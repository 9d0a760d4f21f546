"""Metrics as JSON lines: one object a line, each an event. The form is described in docs/watching.md.

Numbers that are not finite, which JSON has no words for, are the strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .tables import Log, Row, column


def line_of(event: Mapping[str, Any]) -> bytes:
    """Return an event as a line; floats that are not finite become strings."""
    return json.dumps(_words(event), separators=(", ", ": "), allow_nan=False).encode() + b"\n"


def event_of(line: str) -> dict[str, Any] | None:
    """Return the event in a line, or None where there is none, as in one that was cut."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("event"), str) else None


def read_json_lines(lines: Iterable[str]) -> Log:
    """Read events as tables; lines that are none are passed over.

    A run that was resumed, or begun anew, counts from there on: what an earlier one did after the iteration it starts
    from is dropped, and where an iteration comes twice, the later line counts. Its seconds go on from the earlier's.
    """
    trained: dict[float, tuple[Row, Row, Row]] = {}  # by iteration: loss, rate, outputs
    tested: dict[tuple[float, float], Row] = {}  # by iteration and net
    began = 0.0
    for line in lines:
        event = event_of(line)
        iteration = _number(event.get("iteration")) if event else None
        if event is None or iteration is None:
            continue
        row = {"NumIters": iteration, "Seconds": began + _or_nan(event.get("seconds"))}
        row["LearningRate"] = _or_nan(event.get("lr"))
        match event["event"]:
            case "start":
                trained = {at: rows for at, rows in trained.items() if iteration and at <= iteration}
                tested = {at: found for at, found in tested.items() if iteration and at[0] <= iteration}
                kept = [loss["Seconds"] for loss, *_ in trained.values()] + [r["Seconds"] for r in tested.values()]
                began = max((seconds for seconds in kept if math.isfinite(seconds)), default=0.0)
            case "train":
                trained.pop(iteration, None)
                loss = row | {"loss": _or_nan(event.get("loss"))}
                trained[iteration] = loss, row, _with_outputs(row, event.get("outputs"))
            case "test":
                key = iteration, _number(event.get("net")) or 0.0
                tested.pop(key, None)
                tested[key] = _with_outputs(row, event.get("outputs"))
    log = Log(test=list(tested.values()))
    for loss, rate, outputs in trained.values():
        log.loss.append(loss)
        log.rate.append(rate)
        log.train += [outputs] if len(outputs) > len(rate) else []
    return log


def _words(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): _words(of_key) for key, of_key in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_words(one) for one in value]
    return value


def _number(value: Any) -> float | None:
    """Return a number as it stands in a line; None for anything else."""
    if isinstance(value, bool) or not (isinstance(value, int | float) or value in ("NaN", "Infinity", "-Infinity")):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _or_nan(value: Any) -> float:
    found = _number(value)
    return math.nan if found is None else found


def _with_outputs(row: Row, outputs: Any) -> Row:
    found = dict(row)
    for name, value in outputs.items() if isinstance(outputs, dict) else ():
        for one in value if isinstance(value, list) else [value]:
            if (number := _number(one)) is not None:
                found[column(name, found)] = number
    return found
