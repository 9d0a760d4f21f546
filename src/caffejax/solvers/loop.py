"""The training loop: when to update, test, display and snapshot."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import jax
import numpy as np

from ..net import Params, Variables
from ..parallel import Requests, check_alike, meet
from .build import Setup
from .evaluate import Scores
from .finite_check import FiniteCheck
from .plateau import Plateau
from .report import SmoothedLoss, Stopwatch, log, output_lines
from .state import StepResult, TrainState

Request = Literal["snapshot", "stop"]
_REQUESTS: tuple[Request | None, ...] = (None, "snapshot", "stop")  # of several, the last counts
Callback = Callable[[], object]


class Updater(Protocol):
    """What makes updates, wherever it keeps what it trains.

    Attributes:
        train_state: params, running statistics, optimizer state, iteration and key, as they are now.
        last_update: what the last update subtracted, where that is kept.
    """

    train_state: TrainState
    last_update: Params | None

    @property
    def variables(self) -> Variables:
        """The params and running statistics of `train_state`."""

    @property
    def each(self) -> Params | None:
        """The running statistics of each of several devices, of which `train_state` has the first's."""

    def restore(self, state: TrainState, each: Params | None) -> None:
        """Go on from a saved state, with the statistics of each device that it was saved from."""

    @property
    def steps_per_dispatch(self) -> int:
        """How many updates one call of `update` makes where nothing is due between them; else one."""

    def update(
        self, iteration: int, rates: Sequence[np.float32], *, debug_info: bool, asked: jax.Array | None
    ) -> StepResult:
        """Make an update for each rate, the first of them that of `iteration`; log debug info if told to.

        `asked` is what processes ask each other for, where they are several: the result has what all do.
        """

    def final_loss(self) -> jax.Array:
        """Run forward once more, on the next batch; return the loss."""


class TrainingLoop:
    """Makes updates, and in between what the settings, signals and callers ask for.

    Args:
        setup: the parts of training.
        updater: what makes updates.
        finite_check: what looks at the losses, and at the parameters before they are saved.

    Attributes:
        updater, rate_schedule, tests, snapshots: as given.
        iteration: how many updates there have been.
    """

    def __init__(self, setup: Setup, updater: Updater, finite_check: FiniteCheck) -> None:
        self.updater, self.rate_schedule, self.tests, self.snapshots = (
            updater,
            setup.rate_schedule,
            setup.tests,
            setup.snapshots,
        )
        self.iteration = 0
        self._param, self._graph, self._loader = setup.param, setup.net.graph, setup.loader
        self._seed, self._keep_best, self._placement = setup.seed, setup.keep_best, setup.placement
        self._finite_check = finite_check
        self._loss = SmoothedLoss(self._param.average_loss)
        self._request: Request | None = None
        self._stopped = False
        mesh = setup.placement.mesh
        self._requests = Requests(mesh) if mesh is not None and jax.process_count() > 1 else None
        self._start = self._positions()

    @property
    def variables(self) -> Variables:
        """The train net's params and running statistics."""
        return self.updater.variables

    @property
    def rate(self) -> float:
        """The learning rate of the next update."""
        return float(self.rate_schedule(self.iteration))

    @property
    def smoothed_loss(self) -> float:
        """The mean loss of the last `average_loss` iterations; raises `SolverError` if a loss was not finite."""
        self._finite_check.check()
        return self._loss.value

    def step(self, iterations: int, callback: Callback | None = None) -> None:
        """Train for some iterations, testing, displaying and snapshotting when due.

        Args:
            iterations: how many.
            callback: called after every iteration, or after those that were started at once.

        Raises:
            SolverError: if a loss or a parameter is found not to be finite, at the latest before a snapshot.
            WeightsError: if a snapshot could not be written.
        """
        self._loss, stopwatch = SmoothedLoss(self._param.average_loss), Stopwatch(self.iteration)
        end = self.iteration + iterations
        while self.iteration < end:
            if self.tests.due(self.iteration) and (self.iteration or self._param.test_initialization):
                self.test()
            request = self._update(self._steps_to_dispatch(end), stopwatch)
            self.snapshots.check()
            if callback is not None:
                callback()
            if self._requests is None:
                request = self._taken()
            if self._due(self._param.snapshot) or request is not None:
                self.snapshot(wait=False)
                if request == "stop":
                    self._stopped = True
                    return

    def request(self, what: Request) -> None:
        """Ask for a snapshot after the iteration under way, and to "stop" then; safe in a signal handler."""
        if self._request != "stop":  # a later request does not take it back
            self._request = what

    def _taken(self) -> Request | None:
        """Return what this process was asked for, and forget it."""
        own, self._request = self._request, None
        return own

    def solve(self, resume: str | os.PathLike[str] | None = None, callback: Callback | None = None) -> None:
        """Train to `max_iter`, from now or from a snapshot, and end as Caffe does; see `step`."""
        p = self._param
        self._request, self._stopped = None, False
        if p.snapshot_after_train:
            self.snapshots.prepare()
        log.info("Solving %s", self._graph.name)
        log.info("Learning Rate Policy: %s", p.lr_policy)
        if resume is not None:
            self.restore(resume)
        self.step(max(0, p.max_iter - self.iteration), callback)
        if self._stopped:
            self.snapshots.close()
            log.info("Optimization stopped early.")
        else:
            self._finish()
        meet()  # the first process may have been writing still

    def test(self) -> list[Scores]:
        """Test every test net with the current params; log and return the scores."""
        return self.tests.run(self.iteration, self.variables)

    def snapshot(self, wait: bool = True) -> None:
        """Save Caffe's two files, and everything as a checkpoint; unless told to `wait`, in the background.

        Raises:
            WeightsError: if it, or the one before, could not be written.
            SolverError: if the parameters are not finite.
        """
        self._finite_check.check(self.updater.variables)
        if self._keep_best and self.tests.due(self.iteration):
            self.test()  # now, not with the next iteration: the checkpoint is ranked by it
        record = {"data": self._positions(), "seed": self._seed, "scores": self.tests.scores}
        if isinstance(self.rate_schedule, Plateau):
            record["plateau"] = dict(self.rate_schedule.state)
        self.snapshots.save(
            self.updater.train_state,
            self._graph,
            self.iteration,
            record,
            last_update=self.updater.last_update,
            each=self.updater.each,
        )
        self._finite_check.good = f"{self.snapshots.prefix}.orbax{os.sep}{self.iteration}"
        if wait:
            self.snapshots.wait()

    def restore(self, snapshot: str | os.PathLike[str]) -> None:
        """Go back to a snapshot; raises `WeightsError` if it cannot be read or is of another net."""
        state, record, each = self.snapshots.restore(snapshot, self.updater.train_state, self._graph)
        check_alike({"the snapshot": str(int(state.iteration))})
        self.updater.restore(state, each)
        self.iteration = int(state.iteration)
        positions = record.get("data", self._start)
        self._loader.set_state(positions["train"])
        self.tests.set_state(positions["test"])
        if isinstance(self.rate_schedule, Plateau) and "plateau" in record:
            self.rate_schedule.state.update(record["plateau"])
        self._finite_check.restart(os.fspath(snapshot))
        log.info("Restored iteration %d from %s", self.iteration, snapshot)

    def close(self) -> None:
        """End background work: data readers and savers."""
        self.snapshots.close()
        self._loader.close()
        self.tests.close()

    def _due(self, interval: int) -> bool:
        return bool(interval) and self.iteration % interval == 0

    def _steps_to_dispatch(self, end: int) -> int:
        """Return how many updates to dispatch: no end, test, snapshot or display may fall between them."""
        tests, p, n = self.tests, self._param, self.updater.steps_per_dispatch
        between = range(self.iteration, self.iteration + n - 1)
        anything_due = any(
            tests.due(i + 1) or (p.snapshot and (i + 1) % p.snapshot == 0) or (p.display and i % p.display == 0)
            for i in between
        )
        by_loss = isinstance(self.rate_schedule, Plateau)
        return 1 if by_loss or anything_due or self.iteration + n > end else n

    def _update(self, n: int, stopwatch: Stopwatch) -> Request | None:
        """Make n updates; return what any of several processes was asked for before."""
        if isinstance(self.rate_schedule, Plateau) and self._loss.noted:
            self.rate_schedule.note(self.iteration, self.smoothed_loss)
        rates = [self.rate_schedule(i) for i in range(self.iteration, self.iteration + n)]
        debug_info = self._param.debug_info and self._due(self._param.display)
        requests = self._requests
        asked = None if requests is None else requests.asked(_REQUESTS.index(self._taken()))
        result = self.updater.update(self.iteration, rates, debug_info=debug_info, asked=asked)
        self._loss.note(result.loss)
        self._finite_check.note(self.iteration, result.loss)
        self.iteration += n - 1
        if self._due(self._param.display):
            self._display(result, stopwatch)
        self.iteration += 1
        return None if requests is None or result.asked is None else _REQUESTS[requests.heard(result.asked)]

    def _display(self, result: StepResult, stopwatch: Stopwatch) -> None:
        loss = self.smoothed_loss
        speed, seconds = stopwatch.lap(self.iteration)
        interval = self._param.display
        log.info(f"Iteration {self.iteration} ({speed:g} iter/s, {seconds:g}s/{interval} iters), loss = {loss:g}")
        for line in output_lines("Train", self._placement.outputs(result.outputs), self._graph.losses):
            log.info(line)
        log.info(f"Iteration {self.iteration}, lr = {self.rate:g}")

    def _finish(self) -> None:
        """Make the last snapshot, display and test, where they are due."""
        p = self._param
        self._finite_check.check(self.updater.variables)
        if p.snapshot_after_train and not self._due(p.snapshot):
            self.snapshot()
        if self._due(p.display):
            self._loss.note(self.updater.final_loss())
            log.info(f"Iteration {self.iteration}, loss = {self.smoothed_loss:g}")
        if self.tests.due(self.iteration):
            self.test()
        self.snapshots.close()
        log.info("Optimization Done.")

    def _positions(self) -> dict[str, Any]:
        """Return the places in the data."""
        return {"train": self._loader.get_state(), "test": self.tests.get_state()}
