"""What of some runs' logs is drawn in which panel: the loss, each output of the test nets, the learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .tables import FIXED, Log, Row

_MOST_LINES = 8  # of an output of more values the mean is drawn
_LARGEST = 1e100  # what is larger counts as infinite: axes of float64 cannot span it, and training is in float32


@dataclass
class Curve:
    """A line of a panel.

    Attributes:
        run: whose it is, as a number.
        rows: where it goes: NumIters, Seconds, and the column.
        column: the column to draw; of several the mean.
        tested: whether a test net's; else it is of training.
    """

    run: int
    rows: Sequence[Row]
    columns: Sequence[str]
    tested: bool

    def points(self, axis: str) -> tuple[list[float], list[float]]:
        """Return the abscissas, by the column `axis`, and the ordinates."""
        rows = [row for row in self.rows if any(column in row for column in self.columns)]
        return [row[axis] for row in rows], [_mean([row[c] for c in self.columns if c in row]) for row in rows]


@dataclass
class Panel:
    """A panel of a figure.

    Attributes:
        title: what it shows.
        curves: the lines.
        smooth: whether smoothing concerns its curves of training.
    """

    title: str
    curves: list[Curve] = field(default_factory=list)
    smooth: bool = True


def panels_of(logs: Sequence[Log]) -> list[Panel]:
    """Return the panels for some runs' logs, those with nothing in them left out.

    The test loss is drawn with the training loss if the train net and a test net have one output of the same name only.
    """
    loss, rate = Panel("loss"), Panel("learning rate", smooth=False)
    tested: dict[str, Panel] = {}
    for run, log in enumerate(logs):
        if log.loss:
            loss.curves.append(Curve(run, log.loss, ["loss"], tested=False))
        if log.rate:
            rate.curves.append(Curve(run, log.rate, ["LearningRate"], tested=False))
        trained = _outputs(log.train)
        nets = _by_net(log.test)
        shared = trained.keys() & {name for rows in nets for name in _outputs(rows)}
        for number, rows in enumerate(nets):
            where = f" (net {number})" if len(nets) > 1 else ""
            for name, columns in _outputs(rows).items():
                beside = len(trained) == 1 and {name} == shared and log.loss and not where
                panel = loss if beside else tested.setdefault(f"test {name}{where}", Panel(f"test {name}{where}"))
                panel.curves += [Curve(run, rows, drawn, tested=True) for drawn in _lines(columns)]
    return [panel for panel in (loss, *tested.values(), rate) if panel.curves]


def smoothed(values: Sequence[float], width: int) -> list[float]:
    """Return the mean of each value and as many before as after it, up to `width` in all, but for those not finite."""
    reach = [min(width // 2, i, len(values) - 1 - i) for i in range(len(values))]
    return [_mean(values[i - n : i + n + 1]) for i, n in enumerate(reach)]


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if abs(value) <= _LARGEST]
    return sum(finite) / len(finite) if finite else math.nan


def _outputs(rows: Sequence[Row]) -> Mapping[str, list[str]]:
    """Return the outputs in some rows: by the name each, the columns of its values."""
    columns = dict.fromkeys(column for row in rows for column in row if column not in FIXED)
    found: dict[str, list[str]] = {}
    for column in columns:
        name = column.rpartition("[")[0] if column.endswith("]") else column
        found.setdefault(name if name in columns else column, []).append(column)
    return found


def _lines(columns: list[str]) -> Iterator[list[str]]:
    yield from ([column] for column in columns) if len(columns) <= _MOST_LINES else [columns]


def _by_net(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows of each test net: of those of one iteration, which follow each other, each is another net's."""
    nets: list[list[Row]] = []
    number, last = 0, math.nan
    for row in rows:
        number = number + 1 if row["NumIters"] == last else 0
        last = row["NumIters"]
        nets += [[]] if number == len(nets) else []
        nets[number].append(row)
    return nets
