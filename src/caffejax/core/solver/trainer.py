"""Training loop, which updates the parameters, and runs tests, displays and snapshots when they are due."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal, get_args

import jax
import numpy as np

from ...base.errors import CaffejaxError, is_integer, locate_errors
from ...base.variables import Variables
from ..parallel.coordination import barrier, note_progress
from ..parallel.multihost import Requests
from .build_trainer import TrainerParts
from .fingerprint import check_same_snapshot
from .lr_schedules import AdaptiveSchedule, Plateau, StepEarly
from .nan_check import FiniteCheck
from .reporting import ClippingLog, Display, Scores, SlowDataWarning, SmoothedLoss, Stopwatch, format_display_lines, log
from .state_files import find_resumable
from .updater import Updater

Request = Literal["snapshot", "stop"]
# if there are several requests, the last in this order wins
_REQUESTS_BY_PRIORITY: tuple[Request | None, ...] = (None, "snapshot", "stop")
Event = Literal["on_start", "on_step", "on_display", "on_test", "on_snapshot", "on_end"]


class Trainer:
    """Trains a net, tests it, and saves snapshots when settings, signals or callers request them.

    With several processes, all processes must call each method and property together.

    Attributes:
        param: the solver's settings.
        net: the train net.
        loader: an iterator that yields the batches of the train net.
        tests: the test nets.
        snapshots: writes and reads snapshots.
        seed: the seed of all random numbers.
        rate_schedule: the learning rate as a function of the iteration.
        iteration: the number of updates so far.
        batch_size: the number of examples per iteration, on all devices together.
    """

    def __init__(self, parts: TrainerParts, updater: Updater, finite_check: FiniteCheck) -> None:
        self.param, self.net, self.loader, self.tests = parts.param, parts.net, parts.loader, parts.tests
        self.snapshots, self.seed, self.rate_schedule = parts.snapshots, parts.seed, parts.rate_schedule
        self.iteration, self.batch_size = 0, parts.batch_size
        self._updater, self._finite_check, self._placement = updater, finite_check, parts.placement
        self._keep_best = parts.config.keep_best
        self._slow_data = SlowDataWarning(parts.net.config.workers)
        self._loss = SmoothedLoss(self.param.average_loss)
        self._stopwatch: Stopwatch | None = None  # of all steps since the iteration was set
        self._clipping = ClippingLog(self.param.clip_gradients)
        self._request: Request | None = None
        self._is_stopped = False
        self._request_codec = Requests(parts.placement.mesh) if jax.process_count() > 1 else None
        self._initial_positions = self._positions()
        if parts.config.resume is not None:
            try:
                self.restore(parts.config.resume)
            except BaseException:
                self.close()
                raise

    @property
    def variables(self) -> Variables:
        """The train net's parameters and running statistics.

        A step reuses the memory of the arrays; keep copies, as by `jax.tree.map(np.array, solver.variables)`.
        """
        return self._updater.train_state.variables

    @property
    def rate(self) -> float:
        """The learning rate of the next update, or NaN with the option `optimizer`, which has a rate of its own."""
        return float(self.rate_schedule(self.iteration))

    @property
    def smoothed_loss(self) -> float:
        """The displayed loss, which is the mean over the last `average_loss` iterations.

        Raises:
            SolverError: if a loss was not finite.
        """
        self._finite_check.check()
        return self._loss.value

    def start_stopwatch(self) -> Stopwatch:
        """Return a stopwatch that measures the speed of training, starting now."""
        return Stopwatch(self.iteration, self.batch_size, lambda: self._updater.data_wait.seconds)

    def step(self, iterations: int) -> None:
        """Train for a number of iterations, and run the tests, displays and snapshots that are due.

        Raises:
            SolverError: if a loss or a parameter is not finite. The error of a call for one iteration may be raised
                some calls later, but always before a snapshot.
            WeightsError: if a snapshot could not be written.
            ValueError: if `iterations` is not an integer of at least 0.
        """
        if not is_integer(iterations) or iterations < 0:
            raise ValueError(f"iterations must be an integer of at least 0, not {iterations!r}")
        self._loss = SmoothedLoss(self.param.average_loss)
        if self._stopwatch is None:
            self._stopwatch = self.start_stopwatch()
        try:
            with self._stopwatch.running():
                self._step(self.iteration + iterations, self._stopwatch)
            if iterations > 1:  # a loop of calls for one iteration each must not wait for the device in each
                self._finite_check.check()
        finally:
            self._clipping.write(wait=True)

    def _step(self, end: int, stopwatch: Stopwatch) -> None:
        while self.iteration < end:
            is_test_due = self.tests.is_due(self.iteration) and (self.iteration or self.param.test_initialization)
            if is_test_due and self._test() is None:
                self._stop()
                return
            request = self._update(self._steps_to_dispatch(end), stopwatch)
            self._slow_data.check(self.iteration, self._updater.data_wait.seconds)
            self.snapshots.check()
            self._notify("on_step")
            if self._request_codec is None:
                request = self._take_request()
            if request == "stop":
                self._stop()
                return
            if self._is_due(self.param.snapshot) or request is not None:
                self.snapshot(wait=False)
                # the stop was requested during the snapshot
                if self._request_codec is None and self._request == "stop":
                    self._is_stopped = self._take_request() == "stop"
                    self.snapshots.wait()  # training ends only after the last snapshot has been written
                    return

    def request(self, request: Request) -> None:
        """Request a snapshot after the current iteration ("snapshot"), or the end of training ("stop").

        This method may be called in a signal handler.

        Raises:
            ValueError: if the request is unknown.
        """
        if request not in get_args(Request):
            raise ValueError(f"a request must be {' or '.join(map(repr, get_args(Request)))}, not {request!r}")
        if self._request != "stop":  # a later request does not cancel it
            self._request = request

    def solve(self, resume: str | os.PathLike[str] | None = None) -> None:
        """Train up to iteration `max_iter`, and end as Caffe does, with a snapshot and a test.

        Args:
            resume: the snapshot to restore first; see `restore`. "auto" restores the newest state of the solver's
                snapshot prefix, if there is one. The default continues from the current state, which is the restored
                one if the solver has the option `resume`.
        """
        try:
            self._solve(resume)
        except BaseException as error:
            self._notify("on_end", error)
            raise
        finally:
            self._request = None  # not before: a signal may have made a request since its handler was installed
        self._notify("on_end", None)

    def test(self) -> list[Scores]:
        """Test all test nets with the current parameters, and log and return the scores of each net."""
        results = self.tests.run(self.iteration, self._updater.sharded_state[0].variables)
        assert results is not None  # they are None only if `should_stop` returns True
        self._notify("on_test", results)
        return results

    def snapshot(self, wait: bool = True) -> None:
        """Save a checkpoint and, if the option `checkpoint_only` is not set, Caffe's two files in `snapshot_format`.

        Args:
            wait: whether to wait until the snapshot is complete. Otherwise it is written in the background, and the
                solver's option `on_snapshot_error` determines how an error is reported.

        Raises:
            WeightsError: if this snapshot or the previous snapshot could not be written.
            SolverError: if the parameters are not finite.
        """
        note_progress("saves a snapshot")
        self._finite_check.check(self._updater.sharded_state[0].variables)
        if self._keep_best and self.tests.is_due(self.iteration):
            self._test(is_early=True)  # run the test now, because its score decides whether the checkpoint is kept
        self._save_snapshot()
        if wait:
            self.snapshots.wait()

    def restore(self, snapshot: str | os.PathLike[str]) -> None:
        """Restore a snapshot: parameters, optimizer state, iteration and positions in the data.

        A .solverstate that Caffe wrote contains no positions in the data. The data are then read from the start.

        Args:
            snapshot: a checkpoint folder, whose newest step is restored, a step in such a folder, or a
                .solverstate[.h5] file.

        Raises:
            WeightsError: if the snapshot cannot be read or belongs to a different net. The solver then stays unchanged.
        """
        check_same_snapshot(snapshot)
        state, record, device_statistics = self.snapshots.restore(snapshot, self._updater, self.net.graph)
        previous_positions = self._positions()
        try:
            with locate_errors(file=os.fspath(snapshot)):
                self._set_positions(record.get("data", self._initial_positions))
        except CaffejaxError:
            self._set_positions(previous_positions)
            raise
        self._updater.restore(state, device_statistics)
        self.iteration, self._stopwatch = int(state.iteration), None
        self.tests.scores = dict(record.get("scores") or {})
        if isinstance(self.rate_schedule, AdaptiveSchedule):
            self.rate_schedule.restore(record.get("plateau", {}))
        self._finite_check.restart(os.fspath(snapshot))
        log.info("Restored iteration %d from %s", self.iteration, snapshot)
        if (examples := record.get("examples", self.batch_size)) != self.batch_size:
            log.warning(
                "%s was made with %d examples in each iteration, but this run has %d, at the same learning rate; "
                "continue with the same devices, --batch and iter_size for the same result",
                *(snapshot, examples, self.batch_size),
            )

    def close(self) -> None:
        """Close the loaders, and end the thread that writes snapshots."""
        self.snapshots.close()
        self.loader.close()
        self.tests.close()

    @property
    def _is_observed(self) -> bool:
        """True if a callback takes each iteration."""
        return False

    def _notify(self, event: Event, *details: Any) -> None:
        """Handle an event, which is the name of a `Callback` method. `details` are its arguments after `solver`."""

    def _solve(self, resume: str | os.PathLike[str] | None) -> None:
        p = self.param
        self._is_stopped = False
        if p.snapshot_after_train:
            self.snapshots.prepare()
        log.info("Solving %s", self.net.graph.name)
        if p.type != "optax":
            log.info("Learning Rate Policy: %s", p.lr_policy)
        if resume == "auto":
            resume = find_resumable(self.snapshots.prefix)
        if resume is not None:
            self.restore(resume)
        self._notify("on_start")
        self.step(max(0, p.max_iter - self.iteration))
        if self._is_stopped:
            self.snapshots.close()
            log.info("Optimization stopped early.")
        else:
            self._finish()
        barrier("end training")  # the first process may still be writing

    def _stop(self) -> None:
        self._take_request()
        self._finite_check.check(self._updater.sharded_state[0].variables)
        self._save_snapshot()
        self.snapshots.wait()
        self._is_stopped = True

    def _take_request(self) -> Request | None:
        request, self._request = self._request, None
        return request

    def _test(self, *, is_early: bool = False) -> list[Scores] | None:
        """Run a test, and return the scores of each test net, or None if a request to stop ended the test.

        With several processes, a test always runs to its end, because processes receive requests at different times.
        """
        self._clipping.write(wait=True)
        is_single_process = self._request_codec is None
        results = self.tests.run(
            self.iteration,
            self._updater.sharded_state[0].variables,
            is_early=is_early,
            should_stop=lambda: is_single_process and self._request == "stop",
        )
        if results is not None:
            if isinstance(self.rate_schedule, StepEarly) and (accuracy := self.tests.accuracy(results)) is not None:
                self.rate_schedule.record_test(accuracy)
            self._notify("on_test", results)
        return results

    def _save_snapshot(self) -> None:
        self._clipping.write(wait=True)
        record = {
            "type": self.param.type,
            "data": self._positions(),
            "seed": self.seed,
            "scores": self.tests.scores,
            "examples": self.batch_size,
        }
        if isinstance(self.rate_schedule, AdaptiveSchedule):
            record["plateau"] = dict(self.rate_schedule.state)
        state, device_statistics = self._updater.sharded_state
        last_update = self._updater.last_update
        self.snapshots.save(state, self.net.graph, self.iteration, record, last_update, device_statistics)
        checkpoint = f"{self.snapshots.prefix}.orbax{os.sep}{self.iteration}"
        self._finite_check.last_good_checkpoint = checkpoint
        self._notify("on_snapshot", checkpoint)

    def _is_due(self, interval: int) -> bool:
        return bool(interval) and self.iteration % interval == 0

    def _steps_to_dispatch(self, end: int) -> int:
        """Return how many updates to send to the devices together. No test, snapshot or display is due between them."""
        i, p, n = self.iteration, self.param, self._updater.steps_per_dispatch
        if n == 1 or isinstance(self.rate_schedule, Plateau):  # its rate depends on the previous loss
            return 1
        # a display comes after the update of its iteration, tests and snapshots come before it
        due = (p.display, 1), (p.snapshot, 0), (p.test_interval, p.test_offset)
        left = end - i - self._updater.ends_with_single_step
        limit = min([left, *(interval - (i - offset) % interval for interval, offset in due if interval)])
        if self._updater.takes_fewer_steps:
            # what was requested comes after the next iteration
            return 1 if self._is_observed or self._request else max(1, min(n, limit))
        return 1 if n > limit else n

    def _update(self, n: int, stopwatch: Stopwatch) -> Request | None:
        """Make n updates; return the most important request of all processes, or None if there is only one process."""
        if isinstance(self.rate_schedule, Plateau) and self._loss.has_losses:
            self.rate_schedule.record_loss(self.iteration, self.smoothed_loss)
        rates = [self.rate_schedule(i) for i in range(self.iteration, self.iteration + n)]
        debug_info = self.param.debug_info and self._is_due(self.param.display)
        codec = self._request_codec
        encoded = None if codec is None else codec.encode(_REQUESTS_BY_PRIORITY.index(self._take_request()))
        result = self._updater.update(self.iteration, rates, debug_info=debug_info, requests=encoded)
        norms: Any = result.gradient_norm
        n = result.loss.size  # fewer, if the data of a later iteration cannot be read
        self._loss.record_losses(result.loss)
        self._finite_check.record_losses(self.iteration, result.loss)
        self.iteration += n - 1  # the display shows the last of these iterations, the snapshot comes after it
        is_displayed = self._is_due(self.param.display)
        if is_displayed:
            if norms is not None and n > 1:
                *earlier_norms, norms = np.asarray(norms)
                self._clipping.record_norms(np.array(earlier_norms))
            self._clipping.write(wait=True)
            loss, pace = self.smoothed_loss, stopwatch.lap(self.iteration)
            outputs = self._placement.gather_outputs(result.outputs)
            self._display(Display(self.iteration, loss, self.rate, outputs, pace))
        if norms is not None:
            self._clipping.record_norms(norms)
            self._clipping.write(wait=is_displayed)
        self.iteration += 1
        if codec is None or result.requests is None:
            return None
        return _REQUESTS_BY_PRIORITY[codec.decode(result.requests)]

    def _display(self, display: Display) -> None:
        logs_rate = self.param.type != "optax"
        for line in format_display_lines(display, self.param.display, self.net.graph.loss_weights, logs_rate):
            log.info(line)
        self._notify("on_display", display)

    def _finish(self) -> None:
        p = self.param
        self._finite_check.check(self._updater.sharded_state[0].variables)
        if p.snapshot_after_train and not self._is_due(p.snapshot):
            self.snapshot()
        if self._is_due(p.display):
            self._loss.record_losses(self._updater.final_loss())
            self._display(Display(self.iteration, self.smoothed_loss, self.rate, {}, None))
        if self.tests.is_due(self.iteration):
            self._test()
        self.snapshots.close()
        log.info("Optimization Done.")

    def _positions(self) -> dict[str, Any]:
        return {"train": self.loader.get_state(), "test": self.tests.get_state()}

    def _set_positions(self, positions: Mapping[str, Any]) -> None:
        self.loader.set_state(positions["train"])
        self.tests.set_state(positions["test"])
