"""The training loop: when to update, test, display and snapshot."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax

from ..errors import CaffejaxError, located
from ..net import Variables
from ..parallel import Requests, check_alike, meet
from .build import Setup
from .evaluate import Scores
from .finite_check import FiniteCheck
from .pace import Stopwatch
from .plateau import Plateau
from .report import Display, SmoothedLoss, display_lines, log
from .updater import Updater

Request = Literal["snapshot", "stop"]
_REQUESTS: tuple[Request | None, ...] = (None, "snapshot", "stop")  # of several, the last counts
Event = Literal["on_start", "on_step", "on_display", "on_test", "on_snapshot", "on_end"]
Tell = Callable[..., object]  # is told an `Event`, and what `solver.Callback` says goes with it


class TrainingLoop:
    """Makes updates, and in between what the settings, signals and callers ask for.

    Args:
        setup: the parts of training.
        updater: what makes updates.
        finite_check: what looks at the losses, and at the parameters before they are saved.
        tell: called with each event.

    Attributes:
        updater, rate_schedule, tests, snapshots: as given.
        iteration: how many updates there have been.
    """

    def __init__(
        self, setup: Setup, updater: Updater, finite_check: FiniteCheck, tell: Tell = lambda event, *what: None
    ) -> None:
        self.updater, self.rate_schedule, self.tests, self.snapshots = (
            updater,
            setup.rate_schedule,
            setup.tests,
            setup.snapshots,
        )
        self.iteration = 0
        self._param, self._graph, self._loader = setup.param, setup.net.graph, setup.loader
        self._seed, self._keep_best, self._placement = setup.seed, setup.config.keep_best, setup.placement
        self._finite_check, self._tell, self._batch_size = finite_check, tell, setup.batch_size
        self._loss = SmoothedLoss(self._param.average_loss)
        self._request: Request | None = None
        self._stopped = False
        self._resume = setup.config.resume
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

    def stopwatch(self) -> Stopwatch:
        """Return a stopwatch for a pace from now on."""
        return Stopwatch(self.iteration, self._batch_size, lambda: self.updater.waited)

    def step(self, iterations: int) -> None:
        """Train for some iterations, testing, displaying and snapshotting when due.

        Raises:
            SolverError: if a loss or a parameter is found not to be finite, at the latest before a snapshot.
            WeightsError: if a snapshot could not be written.
        """
        self._loss, stopwatch = SmoothedLoss(self._param.average_loss), self.stopwatch()
        end = self.iteration + iterations
        while self.iteration < end:
            due = self.tests.due(self.iteration) and (self.iteration or self._param.test_initialization)
            if due and self._test() is None:
                self._stop()
                return
            request = self._update(self._steps_to_dispatch(end), stopwatch)
            self.snapshots.check()
            self._tell("on_step")
            if self._requests is None:
                request = self._taken()
            if request == "stop":
                self._stop()
                return
            if self._due(self._param.snapshot) or request is not None:
                self.snapshot(wait=False)
                if self._requests is None and self._request == "stop":  # asked for meanwhile
                    self._stopped = self._taken() == "stop"
                    self.snapshots.wait()  # the last must be written
                    return

    def _stop(self) -> None:
        """Take a snapshot, of what is there, and have training end."""
        self._taken()
        self._finite_check.check(self.updater.cut[0].variables)
        self._snapshot()
        self.snapshots.wait()
        self._stopped = True

    def request(self, what: Request) -> None:
        """Ask for a snapshot after the iteration under way, and to "stop" then; safe in a signal handler."""
        if self._request != "stop":  # a later request does not take it back
            self._request = what

    def _taken(self) -> Request | None:
        """Return what this process was asked for, and forget it."""
        own, self._request = self._request, None
        return own

    def solve(self, resume: str | os.PathLike[str] | None = None) -> None:
        """Train to `max_iter`, from now or from a snapshot, and end as Caffe does; see `step`."""
        try:
            self._solve(resume)
        except BaseException as error:
            self._tell("on_end", error)
            raise
        self._tell("on_end", None)

    def _solve(self, resume: str | os.PathLike[str] | None) -> None:
        p = self._param
        self._request, self._stopped = None, False
        resume, self._resume = resume or self._resume, None
        if p.snapshot_after_train:
            self.snapshots.prepare()
        log.info("Solving %s", self._graph.name)
        log.info("Learning Rate Policy: %s", p.lr_policy)
        if resume is not None:
            self.restore(resume)
        self._tell("on_start")
        self.step(max(0, p.max_iter - self.iteration))
        if self._stopped:
            self.snapshots.close()
            log.info("Optimization stopped early.")
        else:
            self._finish()
        meet()  # the first process may have been writing still

    def test(self) -> list[Scores]:
        """Test every test net with the current params; log and return the scores."""
        results = self.tests.run(self.iteration, self.updater.cut[0].variables)
        assert results is not None  # nothing stops it
        self._tell("on_test", results)
        return results

    def _test(self, *, ahead: bool = False) -> list[Scores] | None:
        """Make a test that is due, or one `ahead`, as `Tests.run` has them; None if a request to stop ended it.

        Of several processes each may be asked at another time, so the test ends first.
        """
        alone = self._requests is None
        results = self.tests.run(
            self.iteration,
            self.updater.cut[0].variables,
            ahead=ahead,
            stopping=lambda: alone and self._request == "stop",
        )
        if results is not None:
            self._tell("on_test", results)
        return results

    def snapshot(self, wait: bool = True) -> None:
        """Save Caffe's two files, and everything as a checkpoint; unless told to `wait`, in the background.

        Raises:
            WeightsError: if it, or the one before, could not be written; unless told to `wait`, only as
                `Snapshots.on_error` says.
            SolverError: if the parameters are not finite.
        """
        self._finite_check.check(self.updater.cut[0].variables)
        if self._keep_best and self.tests.due(self.iteration):
            self._test(ahead=True)  # now, not with the next iteration: the checkpoint is ranked by it
        self._snapshot()
        if wait:
            self.snapshots.wait()

    def _snapshot(self) -> None:
        """Start saving."""
        record = {"data": self._positions(), "seed": self._seed, "scores": self.tests.scores}
        if isinstance(self.rate_schedule, Plateau):
            record["plateau"] = dict(self.rate_schedule.state)
        state, each = self.updater.cut
        self.snapshots.save(state, self._graph, self.iteration, record, self.updater.last_update, each)
        checkpoint = f"{self.snapshots.prefix}.orbax{os.sep}{self.iteration}"
        self._finite_check.good = checkpoint
        self._tell("on_snapshot", checkpoint)

    def restore(self, snapshot: str | os.PathLike[str]) -> None:
        """Go back to a snapshot; raises a `CaffejaxError`, and stays, if it cannot be read or is of another net."""
        state, record, each = self.snapshots.restore(snapshot, self.updater, self._graph)
        check_alike({"the snapshot": str(int(state.iteration))})
        before = self._positions()
        try:
            with located(file=os.fspath(snapshot)):
                self._set_positions(record.get("data", self._start))
        except CaffejaxError:
            self._set_positions(before)
            raise
        self.updater.restore(state, each)
        self.iteration = int(state.iteration)
        self.tests.scores = dict(record.get("scores") or {})
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
            loss, pace = self.smoothed_loss, stopwatch.lap(self.iteration)
            outputs = self._placement.outputs(result.outputs)
            self._display(Display(self.iteration, loss, self.rate, outputs, pace))
        self.iteration += 1
        return None if requests is None or result.asked is None else _REQUESTS[requests.heard(result.asked)]

    def _display(self, display: Display) -> None:
        for line in display_lines(display, self._param.display, self._graph.losses):
            log.info(line)
        self._tell("on_display", display)

    def _finish(self) -> None:
        """Make the last snapshot, display and test, where they are due."""
        p = self._param
        self._finite_check.check(self.updater.cut[0].variables)
        if p.snapshot_after_train and not self._due(p.snapshot):
            self.snapshot()
        if self._due(p.display):
            self._loss.note(self.updater.final_loss())
            self._display(Display(self.iteration, self.smoothed_loss, self.rate, {}, None))
        if self.tests.due(self.iteration):
            self._test()
        self.snapshots.close()
        log.info("Optimization Done.")

    def _positions(self) -> dict[str, Any]:
        """Return the places in the data."""
        return {"train": self._loader.get_state(), "test": self.tests.get_state()}

    def _set_positions(self, places: Mapping[str, Any]) -> None:
        self._loader.set_state(places["train"])
        self.tests.set_state(places["test"])
