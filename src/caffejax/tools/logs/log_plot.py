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

from ...base.atomic_write import replace_file
from ...base.errors import CaffejaxError
from ...base.text_table import escape_unprintable
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


_MAX_OUTPUT_LINES = 8  # for an output with more values, the mean is drawn
_MAX_FINITE = 1e100  # larger values, which float64 axes cannot span, count as infinite


@dataclass
class Curve:
    """A curve of a panel.

    Attributes:
        run_index: the index of the run.
        rows: the rows of its log, with NumIters, Seconds and the columns.
        columns: the columns whose mean is drawn.
        is_test: whether the values are from a test net instead of training.
        element: the index of the value in its output, such as the class in an accuracy per class; None for the only
            curve of an output.
    """

    run_index: int
    rows: Sequence[Row]
    columns: Sequence[str]
    is_test: bool
    element: int | None = None

    def points(self, x_column: str) -> tuple[list[float], list[float]]:
        """Return the x values from the column `x_column`, and the y values."""
        rows = [row for row in self.rows if any(column in row for column in self.columns)]
        return [row[x_column] for row in rows], [
            _finite_mean([row[c] for c in self.columns if c in row]) for row in rows
        ]


@dataclass
class Panel:
    """A panel of a figure.

    Attributes:
        title: the name of the values.
        curves: the curves.
        can_smooth: whether the training curves may be smoothed.
    """

    title: str
    curves: list[Curve] = field(default_factory=list)
    can_smooth: bool = True


def make_panels(logs: Sequence[Log]) -> list[Panel]:
    """Return the panels that have at least one curve for the logs of several runs.

    The test loss is drawn in the panel of the training loss if the train net has one output and the only test net has
    an output of the same name.
    """
    loss_panel, rate_panel = Panel("loss"), Panel("learning rate", can_smooth=False)
    test_panels: dict[str, Panel] = {}
    for run_index, log in enumerate(logs):
        if log.loss:
            loss_panel.curves.append(Curve(run_index, log.loss, ["loss"], is_test=False))
        if log.rate:
            rate_panel.curves.append(Curve(run_index, log.rate, ["LearningRate"], is_test=False))
        train_outputs = _group_columns(log.train)
        rows_by_net = _split_by_net(log.test)
        shared_outputs = train_outputs.keys() & {name for rows in rows_by_net for name in _group_columns(rows)}
        for net_index, rows in enumerate(rows_by_net):
            suffix = f" (net {net_index})" if len(rows_by_net) > 1 else ""
            for name, columns in _group_columns(rows).items():
                title = f"test {name}{suffix}"
                shares_panel = len(train_outputs) == 1 and {name} == shared_outputs and log.loss and not suffix
                panel = loss_panel if shares_panel else test_panels.setdefault(title, Panel(title))
                groups = list(_split_columns(columns))
                panel.curves += [
                    Curve(run_index, rows, group, is_test=True, element=i if len(groups) > 1 else None)
                    for i, group in enumerate(groups)
                ]
    return [panel for panel in (loss_panel, *test_panels.values(), rate_panel) if panel.curves]


def moving_average(values: Sequence[float], width: int) -> list[float]:
    """Return the centered moving average of the finite values, over at most `width` values and fewer near the ends."""
    radii = [min(width // 2, i, len(values) - 1 - i) for i in range(len(values))]
    return [_finite_mean(values[i - radius : i + radius + 1]) for i, radius in enumerate(radii)]


def _finite_mean(values: Sequence[float]) -> float:
    finite_values = [value for value in values if abs(value) <= _MAX_FINITE]
    return sum(finite_values) / len(finite_values) if finite_values else math.nan


def _group_columns(rows: Sequence[Row]) -> Mapping[str, list[str]]:
    """Return the columns of each output by name. For example, `prob` has the columns `prob`, `prob[1]` and so on."""
    columns = dict.fromkeys(column for row in rows for column in row if column not in COMMON_COLUMNS)
    outputs: dict[str, list[str]] = {}
    for column in columns:
        name = column.rpartition("[")[0] if column.endswith("]") else column
        outputs.setdefault(name if name in columns else column, []).append(column)
    return outputs


def _split_columns(columns: list[str]) -> Iterator[list[str]]:
    yield from ([column] for column in columns) if len(columns) <= _MAX_OUTPUT_LINES else [columns]


def _split_by_net(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows of each test net. Consecutive rows of one iteration belong to consecutive nets."""
    rows_by_net: list[list[Row]] = []
    net_index, last_iteration = 0, math.nan
    for row in rows:
        net_index = net_index + 1 if row["NumIters"] == last_iteration else 0
        last_iteration = row["NumIters"]
        rows_by_net += [[]] if net_index == len(rows_by_net) else []
        rows_by_net[net_index].append(row)
    return rows_by_net


Axis = Literal["iterations", "seconds"]
_COLUMNS: Mapping[Axis, str] = {"iterations": "NumIters", "seconds": "Seconds"}
_TEXT_COLOR, _GRID_COLOR = "#333333", "#dddddd"
# the palette of Okabe and Ito, whose colours most colour-blind readers can distinguish
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#b8a200")
_MAX_MARKERS = 60  # curves with more points have no markers
_MAX_PANELS = 200  # drawing them takes about 15 seconds


def draw_runs(logs: Mapping[str, Log], *, axis: Axis = "iterations", smooth: int = 1, log_loss: bool = False) -> Any:
    """Draw the loss, the outputs of test nets and the learning rate of runs as a matplotlib Figure.

    Args:
        logs: the logs by the names of the runs.
        axis: the quantity on the horizontal axis.
        smooth: the number of training points in the moving average. The original curve is also drawn, in a light color.
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
    colors = {name: _pick_color(run_index, len(logs)) for run_index, name in enumerate(logs)}
    num_columns = min(len(panels), 3 if len(panels) != 4 else 2)
    num_rows = -(-len(panels) // num_columns)
    figure = make_figure(figsize=(4.6 * num_columns, 3.3 * num_rows + 0.5), dpi=110, layout="constrained")
    for panel_number, panel in enumerate(panels, 1):
        axes = figure.add_subplot(num_rows, num_columns, panel_number)
        _draw_panel(axes, panel, _COLUMNS[axis], smooth if panel.can_smooth else 1, colors)
        if log_loss and panel.title == "loss":
            axes.set_yscale("log")
        axes.set_xlabel(axis, color=_TEXT_COLOR)
    lines = [_make_legend_line(color, name) for name, color in colors.items()]
    if any({curve.is_test for curve in panel.curves} == {False, True} for panel in panels):
        lines += [_make_legend_line(_TEXT_COLOR, "training"), _make_legend_line(_TEXT_COLOR, "test", **_TEST_STYLE)]
    if len(lines) > 1:
        figure.legend(handles=lines, loc="outside upper center", ncols=min(len(lines), 2 * num_columns), frameon=False)
    else:
        figure.suptitle(_escape_dollars(next(iter(logs))), color=_TEXT_COLOR)
    return figure


_TEST_STYLE = {"linestyle": "--", "marker": "o", "markersize": 3.5}


def _pick_color(index: int, num_colors: int) -> Any:
    if num_colors <= len(_COLORS):
        return _COLORS[index]
    from matplotlib import colormaps

    return colormaps["turbo"](index / (num_colors - 1))


def _make_legend_line(color: Any, name: str, **style: Any) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=color, label=_escape_dollars(name), linewidth=1.8, **style)


def _escape_dollars(name: str) -> str:
    """Escape the dollar signs in a name, because matplotlib parses the text between them as formulas."""
    return escape_unprintable(name).replace("$", r"\$")


def _draw_panel(axes: Any, panel: Panel, x_column: str, smooth: int, run_colors: Mapping[str, Any]) -> None:
    """Draw a panel. Elements of a vector have a colour each and a legend; other curves have the colour of their run."""
    has_both_kinds = len({curve.is_test for curve in panel.curves}) > 1
    elements = [curve for curve in panel.curves if curve.element is not None]
    run_names = list(run_colors)
    for curve in panel.curves:
        x, y = curve.points(x_column)
        color = run_colors[run_names[curve.run_index]]
        label = None
        if curve.element is not None:
            color = _pick_color(elements.index(curve), len(elements))
            run_prefix = f"{_escape_dollars(run_names[curve.run_index])}: " if len(run_names) > 1 else ""
            label = f"{run_prefix}[{curve.element}]"
        style: dict[str, Any] = {"color": color, "linewidth": 1.6, "label": label}
        if curve.is_test and len(x) <= _MAX_MARKERS:
            style |= {"marker": "o", "markersize": 3.5}
        if curve.is_test and has_both_kinds:
            style |= {"linestyle": "--"}
        if smooth > 1 and not curve.is_test:
            axes.plot(x, y, color=color, linewidth=1, alpha=0.25)
            y = moving_average(y, smooth)
        axes.plot(x, y, **style)
    if elements:
        axes.legend(fontsize=7, ncols=2 if len(elements) > 4 else 1, frameon=False)
    axes.set_title(_escape_dollars(panel.title), color=_TEXT_COLOR, fontsize=11, loc="left")
    axes.grid(color=_GRID_COLOR, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_TEXT_COLOR, labelsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_TEXT_COLOR)
    _note_non_finite(axes, panel, x_column)


def _note_non_finite(axes: Any, panel: Panel, x_column: str) -> None:
    if not any(math.isfinite(y) for curve in panel.curves for y in curve.points(x_column)[1]):
        axes.text(0.5, 0.5, "no finite numbers", transform=axes.transAxes, ha="center", color=_TEXT_COLOR)
