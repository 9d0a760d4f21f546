"""Live displays on a terminal: of training, and of anything that can be counted."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..glog import start_logging

if TYPE_CHECKING:
    from rich.progress import Progress

    from ..solvers import Solver

_SECONDS_BETWEEN = 0.5  # reading the loss waits for the device, so not at every iteration


@contextmanager
def shown(solver: Solver) -> Iterator[None]:
    """Show iteration, loss, rate, speed and time left, below the log; only on a terminal, of the first process."""
    from ..parallel import is_first

    if not (sys.stderr.isatty() and is_first()):
        yield
        return
    with _bar() as progress:
        task = progress.add_task("", total=solver.param.max_iter, numbers="compiling")
        last_time, last_iteration = time.perf_counter(), solver.iteration

        def update(solver: Solver) -> None:
            nonlocal last_time, last_iteration
            if time.perf_counter() - last_time < _SECONDS_BETWEEN:
                return
            loss = solver.smoothed_loss  # waits for the iterations under way
            now = time.perf_counter()
            speed = (solver.iteration - last_iteration) * solver.batch_size / (now - last_time)
            last_time, last_iteration = now, solver.iteration
            numbers = f"loss {loss:.4g}  lr {solver.rate:.4g}  {speed:.0f} examples/s"
            progress.update(task, completed=solver.iteration, numbers=numbers)

        solver.callbacks.append(update)
        try:
            yield
        finally:
            solver.callbacks.remove(update)


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

    columns = (
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[numbers]}"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True, soft_wrap=True)
    with Progress(*columns, console=console, transient=True) as progress:
        start_logging(lambda line: console.print(line, markup=False, highlight=False))
        try:
            yield progress
        finally:
            start_logging()
