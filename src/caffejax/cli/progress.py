"""Live displays on a terminal: of training, and of anything that can be counted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..glog import start_logging

if TYPE_CHECKING:
    from rich.progress import Progress

    from ..training import Solver


@contextmanager
def shown(solver: Solver, outputs: Sequence[str] = ()) -> Iterator[None]:
    """Show how far training is, below the log; only on a terminal, of the first process.

    Args:
        solver: what trains.
        outputs: the outputs of test nets to show; those of one value that are no losses, such as accuracies, unless
            given.

    Raises:
        SolverError: at once, for outputs that no test net has.
    """
    from ..parallel import is_first
    from .training_display import TrainingDisplay, check_outputs

    check_outputs(solver, outputs)
    if not (sys.stderr.isatty() and is_first()):
        yield
        return
    with _bar() as progress:
        display = TrainingDisplay(solver, outputs, progress)
        solver.callbacks.append(display)
        try:
            yield
        finally:
            solver.callbacks.remove(display)


@contextmanager
def counter(total: int, noun: str) -> Iterator[Callable[[], object]]:
    """Show how many of `total` are done, below the log; only on a terminal. What it gives is called after each one."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    with _bar() as progress:
        task = progress.add_task("", total=total, numbers=noun)
        yield lambda: progress.advance(task)


@contextmanager
def _bar() -> Iterator[Progress]:
    """Show a bar at the bottom of the terminal, and the log above it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    columns = (
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),  # what the others leave
        TextColumn("{task.fields[numbers]}", table_column=Column()),  # on narrow terminals they take two lines
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
    )
    console = Console(stderr=True, soft_wrap=True)
    with Progress(*columns, console=console, transient=True, expand=True) as progress:
        start_logging(lambda line: console.print(line, markup=False, highlight=False))
        try:
            yield progress
        finally:
            start_logging()
