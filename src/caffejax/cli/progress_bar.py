"""Progress displays on a terminal for training and for loops, and flags that record the metrics of training."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..base.glog import start_logging
from . import flags

if TYPE_CHECKING:
    from rich.progress import Progress

    from ..core.solver import Solver

_OFF = "off"


@contextmanager
def show_progress(solver: Solver, outputs: Sequence[str] = ()) -> Iterator[None]:
    """Return a context that shows the progress of training below the log.

    It has no effect in processes other than the first, or if stderr is not a terminal with a cursor.

    Args:
        solver: the solver to watch.
        outputs: the outputs of test nets to show; default: scalar outputs that are not losses, such as accuracies.

    Raises:
        SolverError: if any of `outputs` is missing from every test net.
    """
    from ..core.parallel.mesh import is_first
    from .training_progress import TrainingDisplay, check_outputs

    check_outputs(solver, outputs)
    if not (_has_cursor() and is_first()):
        yield
        return
    with _show_bar() as progress:
        display = TrainingDisplay(solver, outputs, progress)
        solver.callbacks.append(display)
        try:
            yield
        finally:
            solver.callbacks.remove(display)


@contextmanager
def show_loop_progress(total: int, noun: str) -> Iterator[Callable[[], object]]:
    """Return a context that shows the progress of `total` steps below the log.

    The context's value is a function to call after each step. `noun` is the text after the numbers. Nothing is shown
    if stderr is not a terminal with a cursor.
    """
    if not _has_cursor():
        yield lambda: None
        return
    with _show_bar() as progress:
        task = progress.add_task("", total=total, numbers=noun)
        yield lambda: progress.advance(task)


def _has_cursor() -> bool:
    """Return whether stderr is a terminal that moves its cursor.

    Jupyter runs `!command` in a pseudo-terminal, but shows its output without moving the cursor.
    """
    environment = os.environ
    notebook_variables = {"TERM": "xterm-color", "PAGER": "cat", "GIT_PAGER": "cat"}  # set by each front end of Jupyter
    is_notebook = "JPY_PARENT_PID" in environment or notebook_variables.items() <= environment.items()
    return sys.stderr.isatty() and not is_notebook and environment.get("TERM") != "dumb"


@contextmanager
def _show_bar() -> Iterator[Progress]:
    """Return a context with a progress bar at the bottom of the terminal; the log is printed above it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    columns = (
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),  # fills the remaining line
        TextColumn("{task.fields[numbers]}", table_column=Column()),  # wraps to two lines on narrow terminals
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
    )
    console = Console(stderr=True, soft_wrap=True)
    with Progress(*columns, console=console, transient=True, expand=True) as progress:
        start_logging(lambda line: console.print(line, markup=False, highlight=False))
        try:
            yield progress
        finally:
            start_logging()


def add_recording_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--metrics`, `--tensorboard` and `--show`."""
    group = flags.get_group(parser, "records and displays")
    flags.add(
        group,
        "metrics",
        "append a line of JSON for each display, test and snapshot to this file; off writes none "
        "(default: <snapshot_prefix>.metrics.jsonl)",
        metavar="FILE|off",
    )
    flags.add(
        group,
        "tensorboard",
        "write events for TensorBoard to this folder (needs the extra 'tensorboard')",
        metavar="FOLDER",
    )
    flags.add(
        group,
        "show",
        "the outputs of test nets on the live display, separated by commas (default: all that are not losses)",
        metavar="NAMES",
    )


@contextmanager
def record_training(solver: Solver, options: argparse.Namespace) -> Iterator[None]:
    """Return a context that writes metrics and shows the progress of a solver, as the flags select."""
    from ..tools.metrics import JsonLines, TensorBoard

    recorders: list[JsonLines | TensorBoard] = []
    if options.tensorboard:  # first, so that a folder that cannot be written leaves no file of metrics
        recorders.append(TensorBoard(options.tensorboard))
    if options.metrics != _OFF:
        recorders.append(JsonLines(options.metrics or f"{solver.snapshots.prefix}.metrics.jsonl"))
    solver.callbacks += recorders
    try:
        with show_progress(solver, flags.split_commas(options.show)):
            yield
    finally:
        for recorder in recorders:
            solver.callbacks.remove(recorder)
