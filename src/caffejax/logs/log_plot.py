"""Plots of training curves as matplotlib figures."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

from ..atomic_write import replace_file
from ..errors import CaffejaxError
from ..text_table import escape_unprintable
from .log_parser import COMMON_COLUMNS, Log, Row


def make_figure(**settings: Any) -> Any:
    """Return an empty matplotlib Figure.

    Raises:
        CaffejaxError: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise CaffejaxError("plots need matplotlib: pip install matplotlib") from error
    return Figure(**settings)


def write_figure(figure: Any, path: str | os.PathLike[str]) -> None:
    """Write a figure to a file. The file extension determines the format.

    Raises:
        CaffejaxError: if matplotlib does not support the format, or the file cannot be written.
    """
    picture = BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # a character in a name that the font lacks
            figure.savefig(picture, format=Path(path).suffix[1:] or None)
    except ValueError as error:
        raise CaffejaxError(f"{path}: {error}") from error
    with replace_file(path) as file:
        file.write(picture.getvalue())


_MAX_LINES = 8  # for an output with more values, the mean is drawn
_MAX_FINITE = 1e100  # larger values, which float64 axes cannot span, count as infinite


@dataclass
class Curve:
    """A curve of a panel.

    Attributes:
        run: the number of the run.
        rows: the rows of its log, with NumIters, Seconds and the columns.
        columns: the columns whose mean is drawn.
        is_test: whether the values are from a test net instead of training.
    """

    run: int
    rows: Sequence[Row]
    columns: Sequence[str]
    is_test: bool

    def points(self, axis: str) -> tuple[list[float], list[float]]:
        """Return the x values from the column `axis`, and the y values."""
        rows = [row for row in self.rows if any(column in row for column in self.columns)]
        return [row[axis] for row in rows], [_mean([row[c] for c in self.columns if c in row]) for row in rows]


@dataclass
class Panel:
    """A panel of a figure.

    Attributes:
        title: the name of the values.
        curves: the curves.
        smooth: whether the training curves may be smoothed.
    """

    title: str
    curves: list[Curve] = field(default_factory=list)
    smooth: bool = True


def make_panels(logs: Sequence[Log]) -> list[Panel]:
    """Return the panels that have at least one curve for the logs of several runs.

    The test loss is drawn in the panel of the training loss if the train net has one output and the only test net has
    an output of the same name.
    """
    loss, rate = Panel("loss"), Panel("learning rate", smooth=False)
    test_panels: dict[str, Panel] = {}
    for run, log in enumerate(logs):
        if log.loss:
            loss.curves.append(Curve(run, log.loss, ["loss"], is_test=False))
        if log.rate:
            rate.curves.append(Curve(run, log.rate, ["LearningRate"], is_test=False))
        train_outputs = _outputs(log.train)
        nets = _split_by_net(log.test)
        shared = train_outputs.keys() & {name for rows in nets for name in _outputs(rows)}
        for number, rows in enumerate(nets):
            suffix = f" (net {number})" if len(nets) > 1 else ""
            for name, columns in _outputs(rows).items():
                title = f"test {name}{suffix}"
                share_axes = len(train_outputs) == 1 and {name} == shared and log.loss and not suffix
                panel = loss if share_axes else test_panels.setdefault(title, Panel(title))
                panel.curves += [Curve(run, rows, group, is_test=True) for group in _split_columns(columns)]
    return [panel for panel in (loss, *test_panels.values(), rate) if panel.curves]


def moving_mean(values: Sequence[float], width: int) -> list[float]:
    """Return the centered moving mean of the finite values, over at most `width` values and fewer near the ends."""
    radii = [min(width // 2, i, len(values) - 1 - i) for i in range(len(values))]
    return [_mean(values[i - radius : i + radius + 1]) for i, radius in enumerate(radii)]


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if abs(value) <= _MAX_FINITE]
    return sum(finite) / len(finite) if finite else math.nan


def _outputs(rows: Sequence[Row]) -> Mapping[str, list[str]]:
    """Return the columns of each output by name. For example, `prob` has the columns `prob`, `prob[1]` and so on."""
    columns = dict.fromkeys(column for row in rows for column in row if column not in COMMON_COLUMNS)
    outputs: dict[str, list[str]] = {}
    for column in columns:
        name = column.rpartition("[")[0] if column.endswith("]") else column
        outputs.setdefault(name if name in columns else column, []).append(column)
    return outputs


def _split_columns(columns: list[str]) -> Iterator[list[str]]:
    yield from ([column] for column in columns) if len(columns) <= _MAX_LINES else [columns]


def _split_by_net(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows of each test net. Consecutive rows of one iteration belong to consecutive nets."""
    nets: list[list[Row]] = []
    number, last = 0, math.nan
    for row in rows:
        number = number + 1 if row["NumIters"] == last else 0
        last = row["NumIters"]
        nets += [[]] if number == len(nets) else []
        nets[number].append(row)
    return nets


Axis = Literal["iterations", "seconds"]
_COLUMNS: Mapping[Axis, str] = {"iterations": "NumIters", "seconds": "Seconds"}
_INK, _FAINT = "#333333", "#dddddd"
# the palette of Okabe and Ito, whose colours most colour-blind readers can distinguish
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#b8a200")
_MAX_MARKERS = 60  # curves with more points have no markers
_MAX_PANELS = 200  # drawing them takes about 15 seconds


def draw_runs(logs: Mapping[str, Log], *, axis: Axis = "iterations", smooth: int = 1, log_loss: bool = False) -> Any:
    """Draw the loss, the outputs of test nets and the learning rate of runs as a matplotlib Figure.

    Args:
        logs: the logs by the names of the runs.
        axis: the quantity on the horizontal axis.
        smooth: the number of training points in the moving mean. The original curve is also drawn, in a light colour.
        log_loss: whether the axis of the loss is logarithmic.

    Raises:
        CaffejaxError: if the figure would have 0 panels or more than 200, or matplotlib is not installed.
    """
    panels = make_panels(list(logs.values()))
    if not panels:
        raise CaffejaxError("there is nothing to draw: the logs contain no losses, test outputs or learning rates")
    if len(panels) > _MAX_PANELS:
        message = f"there are {len(panels)} panels to draw, but at most {_MAX_PANELS} are drawn"
        hint = "each output of a test net has one panel; `caffejax parse_log` writes tables instead"
        raise CaffejaxError(f"{message}: {hint}")
    colours = [_run_colour(run, len(logs)) for run in range(len(logs))]
    n_columns = min(len(panels), 3 if len(panels) != 4 else 2)
    n_rows = -(-len(panels) // n_columns)
    figure = make_figure(figsize=(4.6 * n_columns, 3.3 * n_rows + 0.5), dpi=110, layout="constrained")
    for number, panel in enumerate(panels, 1):
        axes = figure.add_subplot(n_rows, n_columns, number)
        _draw(axes, panel, _COLUMNS[axis], smooth if panel.smooth else 1, colours)
        if log_loss and panel.title == "loss":
            axes.set_yscale("log")
        axes.set_xlabel(axis, color=_INK)
    lines = [_legend_line(colour, name) for colour, name in zip(colours, logs, strict=True)]
    if any({curve.is_test for curve in panel.curves} == {False, True} for panel in panels):
        lines += [_legend_line(_INK, "training"), _legend_line(_INK, "test", **_TEST_STYLE)]
    if len(lines) > 1:
        figure.legend(handles=lines, loc="outside upper center", ncols=min(len(lines), 2 * n_columns), frameon=False)
    else:
        figure.suptitle(_escape_dollars(next(iter(logs))), color=_INK)
    return figure


_TEST_STYLE = {"linestyle": "--", "marker": "o", "markersize": 3.5}


def _run_colour(run: int, n_runs: int) -> Any:
    """Return the colour of run number `run` of `n_runs` runs."""
    if n_runs <= len(_COLOURS):
        return _COLOURS[run]
    from matplotlib import colormaps

    return colormaps["turbo"](run / (n_runs - 1))


def _legend_line(colour: Any, name: str, **style: Any) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, label=_escape_dollars(name), linewidth=1.8, **style)


def _escape_dollars(name: str) -> str:
    """Escape the dollar signs in a name, because matplotlib parses the text between them as formulas."""
    return escape_unprintable(name).replace("$", r"\$")


def _draw(axes: Any, panel: Panel, column: str, smooth: int, colours: Sequence[Any]) -> None:
    has_both_kinds = len({curve.is_test for curve in panel.curves}) > 1
    for curve in panel.curves:
        x, y = curve.points(column)
        colour = colours[curve.run]
        style: dict[str, Any] = {"color": colour, "linewidth": 1.6}
        if curve.is_test and len(x) <= _MAX_MARKERS:
            style |= {"marker": "o", "markersize": 3.5}
        if curve.is_test and has_both_kinds:
            style |= {"linestyle": "--"}
        if smooth > 1 and not curve.is_test:
            axes.plot(x, y, color=colour, linewidth=1, alpha=0.25)
            y = moving_mean(y, smooth)
        axes.plot(x, y, **style)
    axes.set_title(_escape_dollars(panel.title), color=_INK, fontsize=11, loc="left")
    axes.grid(color=_FAINT, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_INK, labelsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_INK)
    _mark_non_finite(axes, panel, column)


def _mark_non_finite(axes: Any, panel: Panel, column: str) -> None:
    """Write a note into the panel if none of its numbers is finite."""
    if not any(math.isfinite(y) for curve in panel.curves for y in curve.points(column)[1]):
        axes.text(0.5, 0.5, "no finite numbers", transform=axes.transAxes, ha="center", color=_INK)
