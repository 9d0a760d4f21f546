"""Curves of training runs as one figure of panels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ..errors import CaffejaxError
from ..tables import printable
from .figures import new_figure
from .panels import Panel, panels_of, smoothed
from .tables import Log

Axis = Literal["iterations", "seconds"]
_COLUMNS: Mapping[Axis, str] = {"iterations": "NumIters", "seconds": "Seconds"}
_INK, _FAINT = "#333333", "#dddddd"
# Okabe and Ito's colours, which most colour-blind readers can tell apart
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#b8a200")
_MOST_MARKERS = 60
_MOST_PANELS = 200  # they take some 15 seconds


def draw_runs(logs: Mapping[str, Log], *, axis: Axis = "iterations", smooth: int = 1, log_loss: bool = False) -> Any:
    """Draw the loss, all outputs of test nets, and the learning rate of some runs; return a matplotlib Figure.

    Args:
        logs: by the names of the runs.
        axis: what is drawn to the right.
        smooth: how many points of training a mean is taken over; the points themselves then stay visible, faintly.
        log_loss: whether the loss is drawn on a logarithmic scale.

    Raises:
        CaffejaxError: if there is nothing to draw, or far too much, or matplotlib is not installed.
    """
    panels = panels_of(list(logs.values()))
    if not panels:
        raise CaffejaxError("there is nothing to draw")
    if len(panels) > _MOST_PANELS:
        found = f"there are {len(panels)} panels to draw, and at most {_MOST_PANELS} can be"
        raise CaffejaxError(f"{found}: one for each output of test nets; `caffejax parse_log` writes tables")
    colours = [_colour(run, len(logs)) for run in range(len(logs))]
    across = min(len(panels), 3 if len(panels) != 4 else 2)
    down = -(-len(panels) // across)
    figure = new_figure(figsize=(4.6 * across, 3.3 * down + 0.5), dpi=110, layout="constrained")
    for number, panel in enumerate(panels, 1):
        axes = figure.add_subplot(down, across, number)
        _draw(axes, panel, _COLUMNS[axis], smooth if panel.smooth else 1, colours)
        if log_loss and panel.title == "loss":
            axes.set_yscale("log")
        axes.set_xlabel(axis, color=_INK)
    lines = [_handle(colour, name) for colour, name in zip(colours, logs, strict=True)]
    if any({curve.tested for curve in panel.curves} == {False, True} for panel in panels):
        lines += [_handle(_INK, "training"), _handle(_INK, "test", **_TESTED)]
    if len(lines) > 1:
        figure.legend(handles=lines, loc="outside upper center", ncols=min(len(lines), 2 * across), frameon=False)
    else:
        figure.suptitle(_plain(next(iter(logs))), color=_INK)
    return figure


_TESTED = {"linestyle": "--", "marker": "o", "markersize": 3.5}


def _colour(run: int, runs: int) -> Any:
    """Return the colour of one of some runs."""
    if runs <= len(_COLOURS):
        return _COLOURS[run]
    from matplotlib import colormaps

    return colormaps["turbo"](run / (runs - 1))


def _handle(colour: Any, name: str, **style: Any) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, label=_plain(name), linewidth=1.8, **style)


def _plain(name: str) -> str:
    """Return a name, which may come from a file, as text: matplotlib reads formulas between dollars."""
    return printable(name).replace("$", r"\$")


def _draw(axes: Any, panel: Panel, column: str, smooth: int, colours: Sequence[Any]) -> None:
    both = len({curve.tested for curve in panel.curves}) > 1
    for curve in panel.curves:
        x, y = curve.points(column)
        colour = colours[curve.run]
        style: dict[str, Any] = {"color": colour, "linewidth": 1.6}
        if curve.tested and len(x) <= _MOST_MARKERS:
            style |= {"marker": "o", "markersize": 3.5}
        if curve.tested and both:
            style |= {"linestyle": "--"}
        if smooth > 1 and not curve.tested:
            axes.plot(x, y, color=colour, linewidth=1, alpha=0.25)
            y = smoothed(y, smooth)
        axes.plot(x, y, **style)
    axes.set_title(_plain(panel.title), color=_INK, fontsize=11, loc="left")
    axes.grid(color=_FAINT, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_INK, labelsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_INK)
    _unbounded(axes, panel, column)


def _unbounded(axes: Any, panel: Panel, column: str) -> None:
    """Say so where a curve has no finite number at all."""
    if not any(math.isfinite(y) for curve in panel.curves for y in curve.points(column)[1]):
        axes.text(0.5, 0.5, "no finite numbers", transform=axes.transAxes, ha="center", color=_INK)
