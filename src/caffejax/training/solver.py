"""`Solver`, which trains a net by the settings of a solver prototxt."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Unpack

from ..data.user_data import Data
from ..errors import SolverError
from ..human_readable import counted
from ..options import SolverOptions, TrainConfig
from ..process import tune_process
from ..schema.caffe_pb2 import SolverParameter
from .build import build
from .evaluate import Scores
from .finite_check import FiniteCheck
from .reporting import Display
from .train_step import TrainState
from .trainer import Event, Trainer
from .updater import CompiledUpdater, fetch_step_ahead


class Callback:
    """Base class of objects whose methods a solver calls at events. Append an instance to `Solver.callbacks`.

    With several processes, each process calls its callbacks, at the same events. `caffejax.parallel.is_first()` returns
    whether a process is the one that should write records. Reading computed values, such as `solver.smoothed_loss`,
    waits for all started iterations; in `on_step` this makes training slower.
    """

    def __init_subclass__(cls) -> None:
        """Warn of methods of a subclass that no event calls, such as `on_iteration`."""
        super().__init_subclass__()
        for name in vars(cls):
            if name.startswith("on_") and not hasattr(Callback, name):
                events = ", ".join(event for event in vars(Callback) if event.startswith("on_"))
                warnings.warn(f"{cls.__name__}.{name} is never called; the events are {events}", stacklevel=2)

    def on_start(self, solver: Solver) -> None:
        """Called when `solve` starts to train, after it has restored a snapshot."""

    def on_step(self, solver: Solver) -> None:
        """Called after each dispatch of one or several iterations, which the devices may still be computing."""

    def on_display(self, solver: Solver, display: Display) -> None:
        """Called every `display` iterations, with the values that are displayed."""

    def on_test(self, solver: Solver, results: list[Scores]) -> None:
        """Called after a test. `results` has the scores of each test net, in the order of `solver.tests.evaluators`."""

    def on_snapshot(self, solver: Solver, checkpoint: str) -> None:
        """Called with the folder of a new checkpoint, which may not be complete yet."""

    def on_end(self, solver: Solver, error: BaseException | None) -> None:
        """Called when `solve` ends. `error` is the exception that `solve` raises, or None.

        If training was stopped early, `solver.iteration` is less than `max_iter`.
        """


class Solver(Trainer):
    """Trains a net, tests it, and saves snapshots.

    A solver does not change settings of the process. A program that is only for training should call
    `caffejax.tune_process` first, as the command line does: it makes training faster and stores compiled programs on
    disk for the next start.

    With several processes, all processes create the same solver and call its methods and properties together.

    Args:
        solver: the path of a solver prototxt, its text, or a SolverParameter.
        file: the file that a SolverParameter was read from, for messages and relative paths.
        data: the examples for the train net's Input layers. Either `{blob: array}` of all examples, which are read in
            order and repeated; or an iterable of batches, each `{blob: array}` or a tuple of arrays in the order of the
            inputs, which is repeated; or a function that takes the number of the epoch, from 0, and returns one of
            these. Snapshots store the position in the data.
        test_data: the examples for the test net, in the same forms. For several test nets, a list with one item for
            each net; None for a net without Input layers.
        tune: whether to call `caffejax.tune_process` first.
        options: the fields of `caffejax.training.TrainConfig`, `caffejax.Run` and `caffejax.Reading`, by name.

    Attributes:
        file: the solver's file, or None if the solver was not read from a file.
        device: the device that trains; of several devices, the first device of this process.
        devices: all devices, including the devices of other processes.
        callbacks: the `Callback`s to call. A function is called as `on_step`, with the solver.
        param, net, loader, tests, snapshots, seed, rate_schedule, iteration, batch_size: as in `Trainer`.

    Raises:
        SolverError, SchemaError, GraphError, DataError, WeightsError: if settings, nets or files are invalid. All are
            checked before training starts.
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
        finite_check = FiniteCheck(setup.net, setup.param.iter_size, every_step=config.debug_nans)
        super().__init__(setup, CompiledUpdater(setup, start, finite_check, config.steps_per_dispatch), finite_check)
        self.file, self.device, mesh = setup.file, setup.device, setup.placement.mesh
        self.devices = [setup.device] if mesh is None else list(mesh.devices.flat)
        self.callbacks: list[Callback | Callable[[Solver], object]] = []

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
        """The parameters, running statistics, optimizer state, iteration and key. May be set between iterations.

        With several devices, the running statistics are the statistics of the first device. Statistics that are set are
        used by all devices.
        """
        return self._updater.train_state

    @train_state.setter
    def train_state(self, new: TrainState) -> None:
        self._updater.train_state = new

    def _notify(self, event: Event, *details: Any) -> None:
        for callback in tuple(self.callbacks):  # a callback may remove itself from the list
            if isinstance(callback, Callback):
                getattr(callback, event)(self, *details)
            elif event == "on_step":
                callback(self)
