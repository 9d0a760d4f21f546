"""The live display of training: loss, accuracies, speed, and the share of time spent waiting for data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import SolverError, did_you_mean
from ..training import Callback, Pace, Scores, Solver

if TYPE_CHECKING:
    from rich.progress import Progress

_SECONDS_BETWEEN = 0.5  # reading the loss waits for the device, so not at every iteration


def check_outputs(solver: Solver, outputs: Sequence[str]) -> None:
    """Raise `SolverError` for outputs that no test net has."""
    known = {name for evaluator in solver.tests.evaluators for name in evaluator.net.outputs}
    there = f"; outputs: {', '.join(sorted(known))}" if known else "; there is no test net"
    unknown = [name for name in outputs if name not in known]
    if unknown:
        raise SolverError(
            f"--show: no test net has an output '{name}'{did_you_mean(name, known) or there}" for name in unknown
        )


class TrainingDisplay(Callback):
    """Keeps a task of a progress bar up to date with a solver.

    Args:
        solver: what trains.
        outputs: the outputs of test nets to show; those of one value that are no losses unless given.
        progress: where to add the task.
    """

    def __init__(self, solver: Solver, outputs: Sequence[str], progress: Progress) -> None:
        self._outputs, self._progress = outputs, progress
        self._task = progress.add_task("", total=solver.param.max_iter, numbers="compiling")
        self._stopwatch = solver.stopwatch()
        self._scores: dict[str, float] = {}

    def on_start(self, solver: Solver) -> None:
        """Begin where the solver is: the time left is reckoned from here."""
        self._progress.reset(self._task, completed=solver.iteration, total=solver.param.max_iter)
        self._stopwatch = solver.stopwatch()

    def on_step(self, solver: Solver) -> None:
        """Show the numbers, twice a second and at the end."""
        if self._stopwatch.seconds < _SECONDS_BETWEEN and solver.iteration < solver.param.max_iter:
            return
        loss = solver.smoothed_loss  # waits for the iterations under way
        pace = self._stopwatch.lap(solver.iteration)
        self._progress.update(self._task, completed=solver.iteration, numbers=self._numbers(loss, pace))

    def on_test(self, solver: Solver, results: list[Scores]) -> None:
        """Take in the scores; of nets with the same output the first counts."""
        for evaluator, scores in zip(reversed(solver.tests.evaluators), reversed(results), strict=True):
            losses = evaluator.net.graph.losses
            for name, values in scores.outputs.items():
                if name in self._outputs or (not self._outputs and np.size(values) == 1 and not losses.get(name)):
                    self._scores[name] = float(np.mean(values))

    def _numbers(self, loss: float, pace: Pace) -> str:
        shown = [name for name in self._outputs or self._scores if name in self._scores]
        scores = [f"{'test loss' if name == 'loss' else name} {self._scores[name]:.4g}" for name in shown]
        speed = f"{pace.images_per_second:.0f} images/s", f"waiting {pace.waiting:.0%}"
        return "  ".join((f"loss {loss:.4g}", *scores, *speed))
