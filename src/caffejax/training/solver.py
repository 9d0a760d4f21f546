"""The solver: trains a net as its SolverParameter says."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Unpack, get_args

from ..data.user_data import Data
from ..errors import SolverError
from ..net import Variables
from ..options import SolverOptions, TrainConfig
from ..process import tune_process
from ..schema.caffe_pb2 import SolverParameter
from ..sizes import counted
from .build import build
from .evaluate import Scores
from .finite_check import FiniteCheck
from .jitted import JittedUpdater, fetch_step_ahead
from .loop import Event, Request, TrainingLoop
from .pace import Stopwatch
from .policies import RateSchedule
from .report import Display
from .state import TrainState


class Callback:
    """What is told of a solver's events: derive from it, and append one to `Solver.callbacks`.

    Of several processes each tells its own, all together: `caffejax.parallel.is_first()` says which is to record.
    Reading what training computes, such as `solver.smoothed_loss`, waits for the iterations that were started; in
    `on_step` that makes training slower.
    """

    def __init_subclass__(cls) -> None:
        """Warn of methods that no event calls: `on_iteration`, for one."""
        super().__init_subclass__()
        for name in vars(cls):
            if name.startswith("on_") and not hasattr(Callback, name):
                known = ", ".join(event for event in vars(Callback) if event.startswith("on_"))
                warnings.warn(f"{cls.__name__}.{name} is never called; the events are {known}", stacklevel=2)

    def on_start(self, solver: Solver) -> None:
        """Take in that `solve` begins to train, from the start or from what it restored."""

    def on_step(self, solver: Solver) -> None:
        """Take in that there was an iteration, or those that were started at once; they may still be computed."""

    def on_display(self, solver: Solver, display: Display) -> None:
        """Take in what was displayed, every `display` iterations."""

    def on_test(self, solver: Solver, results: list[Scores]) -> None:
        """Take in a test: the scores of each of `solver.tests.evaluators`."""

    def on_snapshot(self, solver: Solver, checkpoint: str) -> None:
        """Take in that a snapshot is made, whose checkpoint is that folder; it may still be written."""

    def on_end(self, solver: Solver, error: BaseException | None) -> None:
        """Take in that `solve` ends, and what made it fail; if it was stopped, `solver.iteration` is not the last."""


class Solver:
    """Trains a net, tests it, and saves snapshots.

    Making a solver changes nothing else in the process. Programs that own their process call `caffejax.tune_process`
    before, which makes training faster and stores compiled programs on disk for the next start; the command line does.

    Args:
        solver: a solver prototxt's path, its text, or a SolverParameter.
        file: the file that a SolverParameter was read from: for messages, and for paths relative to it.
        data: examples for the train net's Input layers: `{blob: array}` of all examples, which are read in order, again
            and again; or an iterable of batches, each `{blob: array}` or a tuple of arrays in the order of the inputs,
            which is iterated again when it ends; or a function of the epoch's number, from 0 on, that returns either.
            Snapshots store the position in it.
        test_data: data for the test net, in the same forms; for several test nets a list with one item for each net,
            None for nets that read their data themselves.
        tune: call `caffejax.tune_process` first.
        options: the fields of `caffejax.training.TrainConfig`, `caffejax.Run` and `caffejax.Reading`, by name.

    With several processes, all make the same solver, and call each of its methods and properties together.

    Attributes:
        param: the settings.
        file: the solver's file, or None if it was not read from one.
        net: the train net.
        loader: the loader of its batches.
        tests: the test nets and their positions in the data.
        snapshots: writes and reads snapshots.
        device: the device that trains; of several devices, the first of this process.
        devices: all devices, those of other processes too.
        seed: the seed of all randomness.
        callbacks: the `Callback`s to call; a plain callable is called as an `on_step`.

    Raises:
        SolverError, SchemaError, GraphError, DataError, WeightsError: for settings, nets or files that cannot work,
            before anything runs.
    """

    def __init__(
        self,
        solver: str | os.PathLike[str] | SolverParameter,
        *,
        file: str | os.PathLike[str] | None = None,
        data: Data | None = None,
        test_data: Data | Sequence[Data | None] | None = None,
        tune: bool = False,
        **options: Unpack[SolverOptions],
    ) -> None:
        config = TrainConfig.from_keywords(**options)
        if tune:
            tune_process()
        setup, start = build(
            solver,
            file,
            config,
            data=data,
            test_data=test_data,
            measured=True,
            ahead=lambda net, param: fetch_step_ahead(net, param, config.debug_nans),
        )
        self.param, self.file, self.device, self.seed = setup.param, setup.file, setup.device, setup.seed
        self._batch_size, mesh = setup.batch_size, setup.placement.mesh
        self.devices = [setup.device] if mesh is None else list(mesh.devices.flat)
        self.net, self.loader, self.tests, self.snapshots = setup.net, setup.loader, setup.tests, setup.snapshots
        self.callbacks: list[Callback | Callable[[Solver], object]] = []
        finite_check = FiniteCheck(setup.net, setup.param.iter_size, every_step=config.debug_nans)
        self._updater = JittedUpdater(setup, start, finite_check, config.steps_per_dispatch)
        self._loop = TrainingLoop(setup, self._updater, finite_check, self._tell)

    def __repr__(self) -> str:
        p, where = self.param, ", ".join(map(str, self.devices))
        return (
            f"Solver of {self.net.graph!r}\n  {p.type}, {p.lr_policy}, base_lr {p.base_lr:g}; "
            f"iteration {self.iteration} of {p.max_iter}; {counted(len(self.tests.evaluators), 'test net')}; "
            f"snapshots at {self.snapshots.prefix}; on {where}"
        )

    def __reduce__(self) -> Any:
        raise SolverError(
            "a solver cannot be copied or pickled, as it reads data and writes files: copy its net and variables, or "
            "make another and restore a snapshot"
        )

    @property
    def train_state(self) -> TrainState:
        """Params, running statistics, optimizer state, iteration and key; may be replaced between iterations.

        Of several devices the statistics are the first's; those that are set are for all.
        """
        return self._updater.train_state

    @train_state.setter
    def train_state(self, new: TrainState) -> None:
        self._updater.train_state = new

    @property
    def variables(self) -> Variables:
        """The train net's params and running statistics."""
        return self._loop.variables

    @property
    def iteration(self) -> int:
        """How many updates there have been."""
        return self._loop.iteration

    @iteration.setter
    def iteration(self, new: int) -> None:
        self._loop.iteration = new

    @property
    def batch_size(self) -> int:
        """Examples per iteration, those of all devices."""
        return self._batch_size

    @property
    def rate_schedule(self) -> RateSchedule:
        """The learning rate by iteration."""
        return self._loop.rate_schedule

    @property
    def rate(self) -> float:
        """The learning rate of the next update."""
        return self._loop.rate

    @property
    def smoothed_loss(self) -> float:
        """The displayed loss: the mean over `average_loss` iterations.

        Raises:
            SolverError: if a loss was not finite.
        """
        return self._loop.smoothed_loss

    def step(self, iterations: int) -> None:
        """Train for some iterations, testing, displaying and snapshotting when due.

        Raises:
            SolverError: if a loss or a parameter is found not to be finite, at the latest before a snapshot.
        """
        self._loop.step(iterations)

    def request(self, what: Request) -> None:
        """Ask for a "snapshot" after the iteration under way, or to "stop" after it; safe in a signal handler.

        Raises:
            ValueError: for anything else.
        """
        if what not in get_args(Request):
            raise ValueError(f"what is asked of a solver is {' or '.join(map(repr, get_args(Request)))}, not {what!r}")
        self._loop.request(what)

    def solve(self, resume: str | os.PathLike[str] | None = None) -> None:
        """Train to `max_iter`, from the start or from a snapshot, and end as Caffe does: snapshot, test."""
        self._loop.solve(resume)

    def test(self) -> list[Scores]:
        """Test every test net with the current params; log and return the scores."""
        return self._loop.test()

    def snapshot(self, wait: bool = True) -> None:
        """Save Caffe's two files, in `snapshot_format`, unless `checkpoint_only`, and everything as a checkpoint.

        Args:
            wait: return when all is written; else training may go on meanwhile.

        Raises:
            WeightsError: if it, or the one before, could not be written.
            SolverError: if the parameters are not finite.
        """
        self._loop.snapshot(wait)

    def restore(self, snapshot: str | os.PathLike[str]) -> None:
        """Go back to a snapshot: a checkpoint folder (its newest step), one step of it, or a .solverstate[.h5].

        Caffe's own .solverstate does not say how far the data had been read: it restarts at the first row.

        Raises:
            WeightsError: if it cannot be read or is of another net.
        """
        self._loop.restore(snapshot)

    def close(self) -> None:
        """End background work: data readers and savers."""
        self._loop.close()

    def stopwatch(self) -> Stopwatch:
        """Return a stopwatch, whose laps say how fast training goes."""
        return self._loop.stopwatch()

    def _tell(self, event: Event, *what: Any) -> None:
        for callback in tuple(self.callbacks):  # which may take itself off the list
            if isinstance(callback, Callback):
                getattr(callback, event)(self, *what)
            elif event == "on_step":
                callback(self)
