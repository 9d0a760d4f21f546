"""Plot training logs, one curve for each. The chart type is one of these numbers or names:

0 test_accuracy_vs_iters, 1 test_accuracy_vs_seconds, 2 test_loss_vs_iters, 3 test_loss_vs_seconds,
4 train_learning_rate_vs_iters, 5 train_learning_rate_vs_seconds, 6 train_loss_vs_iters, 7 train_loss_vs_seconds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from . import image_flags

if TYPE_CHECKING:
    from ..base.errors import Problem

HELP = "plot training logs (needs the extra 'plot')"
EXAMPLE = "caffejax plot_training_log 6 loss.png train.log"

_CHART_TYPES = tuple(
    f"{quantity}_vs_{axis}"
    for quantity in ("test_accuracy", "test_loss", "train_learning_rate", "train_loss")
    for axis in ("iters", "seconds")
)

_COLUMNS = {"iters": "NumIters", "seconds": "Seconds"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument(
        "chart_type", help="the chart type, 0 to 7 or its name", type=_parse_chart_type, metavar="CHART"
    )
    parser.add_argument("output", help="the picture; the file extension selects the format", metavar="FILE")
    parser.add_argument("logs", help="logs of training runs", nargs="+", metavar="LOG")


def _parse_chart_type(text: str) -> str:
    if text.isdigit() and int(text) < len(_CHART_TYPES):
        return _CHART_TYPES[int(text)]
    name = "_".join(text.lower().replace(".", " ").replace("_", " ").replace("-", " ").split())
    if name not in _CHART_TYPES:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a chart type: 0 to {len(_CHART_TYPES) - 1}, or {', '.join(_CHART_TYPES)}"
        )
    return name


def run(options: argparse.Namespace) -> None:
    """Plot the logs."""
    from ..base.errors import CaffejaxError
    from ..tools.logs import make_figure, write_figure

    image_flags.check_figure_path(options.output)
    quantity, _, axis = options.chart_type.partition("_vs_")
    problems: list[Problem] = []
    figure = make_figure()
    axes = figure.add_subplot()
    for path in options.logs:
        try:
            for curve_name, rows in _read_curves(path, quantity).items():
                x, y = zip(*((row[_COLUMNS[axis]], row[curve_name]) for row in rows), strict=True)
                axes.plot(x, y, marker=".", label=f"{Path(path).name}: {curve_name}")
        except CaffejaxError as error:
            problems += error.problems
    if problems:
        raise CaffejaxError(problems)
    title = quantity.replace("_", " ").capitalize()
    axes.set(xlabel=axis.capitalize(), ylabel=title, title=f"{title} vs. {axis.capitalize()}")
    axes.legend()
    write_figure(figure, options.output)
    print(f"Wrote {options.output}")


def _read_curves(path: str, quantity: str) -> dict[str, list[dict[str, float]]]:
    """Return the curves of a log: for each label, the rows of the table that have a value of `quantity`."""
    from ..base.errors import DataError, Problem
    from ..tools.logs import read_log

    log = read_log(path)
    if quantity == "train_learning_rate" and log.rate:
        return {"LearningRate": log.rate}
    if quantity == "train_loss" and log.loss:
        return {"loss": log.loss}
    net, _, output_kind = quantity.partition("_")
    rows = log.train if net == "train" else log.test
    columns = list(dict.fromkeys(column for row in rows for column in row))
    keyword = output_kind.removesuffix("uracy")  # "acc", because outputs such as top1_acc are accuracies too
    curves = {c: [row for row in rows if c in row] for c in columns if keyword in c.lower()}
    if not curves:
        outputs = ", ".join(columns[3:]) or "none"
        message = f"has no output to plot as {quantity.replace('_', ' ')}; outputs of the {net} net: {outputs}"
        raise DataError(Problem(message, path))
    return curves
