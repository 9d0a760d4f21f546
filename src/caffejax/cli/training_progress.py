"""The progress display of training: loss, accuracies, speed, and the share of time spent waiting for data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..base.errors import SolverError, did_you_mean
from ..core.solver import Callback, Pace, Scores, Solver

if TYPE_CHECKING:
    from rich.progress import Progress

_MIN_INTERVAL = (
    0.5  # seconds; the display is not updated at every iteration, because reading the loss waits for the device
)


def check_outputs(solver: Solver, outputs: Sequence[str]) -> None:
    """Raise `SolverError` if any of the outputs is missing from every test net; the error lists all missing outputs."""
    names = {name for evaluator in solver.tests.evaluators for name in evaluator.net.outputs}
    hint = f"; outputs: {', '.join(sorted(names))}" if names else "; there is no test net"
    unknown = [name for name in outputs if name not in names]
    if unknown:
        raise SolverError(
            f"--show: no test net has an output '{name}'{did_you_mean(name, names) or hint}" for name in unknown
        )


class TrainingDisplay(Callback):
    """A callback that shows the progress of a solver as a task of a progress bar.

    Args:
        solver: the solver to watch.
        outputs: the outputs of test nets to show; default: scalar outputs that are not losses.
        progress: the progress bar, to which the task is added.
    """

    takes_several_steps = True

    def __init__(self, solver: Solver, outputs: Sequence[str], progress: Progress) -> None:
        self._outputs, self._progress = outputs, progress
        text = "compiling: XLA is choosing kernels" if solver.device.platform == "gpu" else "compiling"
        self._task = progress.add_task("", total=solver.param.max_iter, numbers=text)
        self._stopwatch = solver.start_stopwatch()
        self._scores: dict[str, float] = {}

    def on_start(self, solver: Solver) -> None:
        """Set the task to the solver's current iteration, from which the remaining time is estimated."""
        self._progress.reset(self._task, completed=solver.iteration, total=solver.param.max_iter)
        self._stopwatch = solver.start_stopwatch()

    def on_step(self, solver: Solver) -> None:
        """Show loss, scores and speed, at most twice a second and at the end."""
        if self._stopwatch.seconds < _MIN_INTERVAL and solver.iteration < solver.param.max_iter:
            return
        loss = solver.smoothed_loss  # waits for the running iterations
        pace = self._stopwatch.lap(solver.iteration)
        self._progress.update(self._task, completed=solver.iteration, numbers=self._format_numbers(loss, pace))

    def on_test(self, solver: Solver, results: list[Scores]) -> None:
        """Store the scores of the shown outputs. If several nets have an output, the first net's scores are stored."""
        for evaluator, scores in zip(reversed(solver.tests.evaluators), reversed(results), strict=True):
            loss_weights = evaluator.net.graph.loss_weights
            for name, values in scores.outputs.items():
                if name in self._outputs or (not self._outputs and np.size(values) == 1 and not loss_weights.get(name)):
                    self._scores[name] = float(np.mean(values))

    def _format_numbers(self, loss: float, pace: Pace) -> str:
        outputs = [name for name in self._outputs or self._scores if name in self._scores]
        scores = [f"{'test loss' if name == 'loss' else name} {self._scores[name]:.4g}" for name in outputs]
        speed = f"{pace.images_per_second:.0f} images/s", f"waiting {pace.waiting:.0%}"
        return "  ".join((f"loss {loss:.4g}", *scores, *speed))
