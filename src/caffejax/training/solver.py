"""The solver: trains a net as its SolverParameter says."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Unpack, get_args

import jax

from ..data.user_data import Data
from ..errors import SolverError
from ..net import Variables
from ..options import OnSnapshotError, Parallel, Reading, Run, SolverOptions
from ..process import tune_process
from ..schema.caffe_pb2 import SolverParameter
from ..sizes import counted
from .build import build
from .evaluate import Scores
from .finite_check import FiniteCheck
from .given import check_options, chosen_devices
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
    """Trains a net, tests it, and keeps snapshots.

    Args:
        solver: path of a solver prototxt, its text, or a SolverParameter.
        file: where a SolverParameter came from: for messages, and for paths relative to it.
        data: what feeds the train net's Input layers: `{blob: array}` of all examples, which are taken in order, round
            and round; or an iterable of batches, `{blob: array}` each or a tuple of arrays in the order of the inputs,
            which is iterated again when it ends; or a function that is given the number of the epoch, from 0 on, and
            returns either for it. Snapshots hold the place in it.
        test_data: likewise for the test net; of several test nets a list with one for each, None for those that read
            their data themselves.
        weights: .caffemodel[.h5] files to start from; the solver's own `weights` come first.
        strict_weights: whether these files must have weights for every layer that has some.
        device: where to run; JAX's default device unless given.
        devices: several, on which to run in place of `device`: how many of JAX's, or which; of several processes those
            of all. Each takes batch_size examples, as in Caffe.
        parallel: how training is spread over them. With `sync_bn`, BatchNorm's statistics are of all; else of each.
        keep_last: how many of the newest checkpoints to keep; all unless given.
        keep_best: a test output; the checkpoint with its best value is kept as well. A loss is best when lowest.
        checkpoint_only: let snapshots be checkpoints only, which all of several processes write. Caffe's files, from
            which Caffe could resume, are written by the first, in whose memory all params come together for them.
        seed: what all randomness comes from where the settings have no `random_seed`; another each time unless given.
        steps_per_dispatch: how many iterations to start at once, where nothing else is due between them; for small nets
            on fast devices. As many batches are then in memory together.
        on_snapshot_error: what to do where a snapshot cannot be written: "stop", or "continue" with a warning and try
            again when the next is due. That of the end must be written. Several processes can only stop.
        debug_nans: look at every step's numbers, and name the layer where they cease to be finite; slower.
        tune: call `tune_process`, which makes nets faster and concerns the whole process; False leaves that as it is.
        run: how the nets compute; what is trained and saved is always float32.
        reading: how they read their data, but for the seed, which is this one's.
        options: fields of `Run` and `Reading`, by name, in place of those of `run` and `reading`.

    Of several processes, all make the same solver, and call each of its methods and properties together.

    Attributes:
        param: the settings.
        file: where they came from, if from a file.
        net: the train net.
        loader: its batches.
        tests: the test nets, with their places in the data.
        snapshots: where snapshots go.
        device: where all runs; of several devices, the first of this process.
        devices: all of them, those of other processes too.
        seed: what all randomness comes from.
        callbacks: what is told of events, each a `Callback`; a plain callable is an `on_step`.

    Raises:
        SolverError, SchemaError, GraphError, DataError: for settings or nets that cannot work, before
            anything runs.
    """

    def __init__(
        self,
        solver: str | os.PathLike[str] | SolverParameter,
        *,
        file: str | os.PathLike[str] | None = None,
        data: Data | None = None,
        test_data: Data | Sequence[Data | None] | None = None,
        weights: Sequence[str | os.PathLike[str]] = (),
        strict_weights: bool = False,
        device: jax.Device | None = None,
        devices: int | Sequence[jax.Device] | None = None,
        parallel: Parallel = Parallel(),
        keep_last: int | None = None,
        keep_best: str | None = None,
        checkpoint_only: bool = False,
        steps_per_dispatch: int = 1,
        on_snapshot_error: OnSnapshotError = "stop",
        debug_nans: bool = False,
        seed: int | None = None,
        tune: bool = True,
        run: Run = Run(),
        reading: Reading = Reading(),
        **options: Unpack[SolverOptions],
    ) -> None:
        own = {"weights": weights, "device": device, "keep_last": keep_last, "keep_best": keep_best, "seed": seed}
        own |= {"steps_per_dispatch": steps_per_dispatch, "debug_nans": debug_nans}
        own |= {"devices": devices, "parallel": parallel, "on_snapshot_error": on_snapshot_error}
        own |= {"checkpoint_only": checkpoint_only}
        run, reading = check_options(own, run, reading, options)
        if tune:
            tune_process()
        setup, start = build(
            solver,
            file,
            device=device,
            devices=chosen_devices(device, devices),
            parallel=parallel,
            data=data,
            test_data=test_data,
            seed=seed,
            weights=weights,
            strict_weights=strict_weights,
            keep_last=keep_last,
            keep_best=keep_best,
            checkpoint_only=checkpoint_only,
            run=run,
            reading=reading,
            measured=True,
            ahead=lambda net, param: fetch_step_ahead(net, param, debug_nans),
        )
        self.param, self.file, self.device, self.seed = setup.param, setup.file, setup.device, setup.seed
        self._batch_size, mesh = setup.batch_size, setup.placement.mesh
        self.devices = [setup.device] if mesh is None else list(mesh.devices.flat)
        self.net, self.loader, self.tests, self.snapshots = setup.net, setup.loader, setup.tests, setup.snapshots
        self.snapshots.on_error = on_snapshot_error
        self.callbacks: list[Callback | Callable[[Solver], object]] = []
        finite_check = FiniteCheck(setup.net, setup.param.iter_size, every_step=debug_nans)
        self._updater = JittedUpdater(setup, start, finite_check, steps_per_dispatch)
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
