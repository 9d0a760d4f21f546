"""`Solver`, which trains a net with the settings of a solver prototxt, and its `Callback`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Unpack

from ...base.config import SolverOptions, TrainConfig
from ...base.errors import SolverError
from ...base.human_readable import format_count
from ..data.user_data import Data
from ..ops.implementations import find_form
from ..schema.caffe_pb2 import SolverParameter
from .build_trainer import build_trainer
from .compiled_updater import CompiledUpdater, prefetch_step
from .nan_check import FiniteCheck
from .reporting import Display, Scores
from .train_step import TrainState
from .trainer import Event, Trainer


class Callback:
    """Base class of objects whose methods a solver calls at events. Append an instance to `Solver.callbacks`.

    With several processes, each process calls its callbacks at the same events. Only the process in which
    `jax.process_index()` is 0 should write logs or files. Reading computed values, such as
    `solver.smoothed_loss`, waits until the devices have finished all iterations. In `on_step`, this makes training
    slower.

    Attributes:
        takes_several_steps: whether `on_step` may be called once for several iterations although the option
            `steps_per_dispatch` is not set.
    """

    takes_several_steps = False

    def __init_subclass__(cls) -> None:
        """Warn about each method of a subclass whose name begins with "on_" but is no event, such as `on_iteration`."""
        super().__init_subclass__()
        for name in vars(cls):
            if name.startswith("on_") and not hasattr(Callback, name):
                events = ", ".join(event for event in vars(Callback) if event.startswith("on_"))
                warnings.warn(f"{cls.__name__}.{name} is never called; the events are {events}", stacklevel=2)

    def on_start(self, solver: Solver) -> None:
        """Called when `solve` starts to train, after a snapshot has been restored if there is one."""

    def on_step(self, solver: Solver) -> None:
        """Called after one or several iterations have been sent to the devices, which may still be computing them."""

    def on_display(self, solver: Solver, display: Display) -> None:
        """Called every `display` iterations, with the values that are displayed."""

    def on_test(self, solver: Solver, results: list[Scores]) -> None:
        """Called after a test with the scores of each test net, in the order of `solver.tests.evaluators`."""

    def on_snapshot(self, solver: Solver, checkpoint: str) -> None:
        """Called with the path of the folder of a new checkpoint, which may not be complete yet."""

    def on_end(self, solver: Solver, error: BaseException | None) -> None:
        """Called when `solve` ends. `error` is the exception that `solve` raises, or None.

        If training was stopped early, `solver.iteration` is less than `max_iter`.
        """


class Solver(Trainer):
    """Trains a net, tests it, and saves snapshots.

    A solver does not change settings of the process, unless `tune` is set. A program that only trains should first call
    `caffejax.tune_process`, like the command line. This makes training faster, and stores compiled programs on disk for
    the next start.

    With several processes, all processes create the same solver and call its methods and properties together.

    Args:
        solver: the path of a solver prototxt, its text, or a SolverParameter.
        file: the file from which a SolverParameter was read, for messages and relative paths.
        data: the examples for the train net's Input layers, in one of three forms. `{blob: array}` contains all
            examples, which are read in order and repeated. An iterable of batches is also repeated; each batch is
            `{blob: array}` or a tuple of arrays in the order of the inputs. A function takes the number of the epoch,
            from 0, and returns one of the other forms. Snapshots store the position in the data.
        test_data: the examples for the test net, in the same forms. For several test nets, it is a list with one item
            for each net, which is None for a net without Input layers.
        tune: whether to call `caffejax.tune_process` first.
        options: the fields of `caffejax.TrainConfig` and `caffejax.NetConfig`, by name.

    Attributes:
        file: the solver's file, or None if the solver was not read from a file.
        device: the device that trains, or the first device of this process if several devices train.
        devices: all devices, including the devices of other processes.
        callbacks: the `Callback` objects to call. The list may also contain functions, which are called with the solver
            at the event `on_step`.
        param, net, loader, tests, snapshots, seed, rate_schedule, iteration, batch_size: see `Trainer`.

    Raises:
        SolverError, SchemaError, GraphError, DataError, WeightsError: if settings, nets or files are invalid. All of
            them are checked before training starts.
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
        if tune and (tune_process := find_form("tune_process")) is not None:
            tune_process()
        parts, initial_state = build_trainer(
            solver,
            file,
            config,
            data=data,
            test_data=test_data,
            checks_memory=True,
            on_net_built=lambda net, param: prefetch_step(net, param, config.debug_nans),
        )
        finite_check = FiniteCheck(parts.net, parts.param.iter_size, every_step=config.debug_nans)
        super().__init__(parts, CompiledUpdater(parts, initial_state, finite_check), finite_check)
        self.file, self.device = parts.file, parts.device
        self.devices = list(parts.placement.mesh.devices.flat)
        self.callbacks: list[Callback | Callable[[Solver], object]] = []

    def __repr__(self) -> str:
        p, devices = self.param, ", ".join(map(str, self.devices))
        rule = p.type if p.type == "optax" else f"{p.type}, {p.lr_policy}, base_lr {p.base_lr:g}"
        return (
            f"Solver of {self.net.graph!r}\n  {rule}; "
            f"iteration {self.iteration} of {p.max_iter}; {format_count(len(self.tests.evaluators), 'test net')}; "
            f"snapshots at {self.snapshots.prefix}; on {devices}"
        )

    def __reduce__(self) -> Any:
        raise SolverError(
            "a solver cannot be copied or pickled, because it reads data and writes files: copy its net and variables, "
            "or create a new one and restore a snapshot"
        )

    @property
    def train_state(self) -> TrainState:
        """The parameters, running statistics, optimizer state, iteration and key.

        A program may set the property between iterations. Learning rate, tests and snapshots then follow the iteration
        of the new state; the positions in the data stay, other than with `restore`. With several devices, the property
        contains the running statistics of the first device, and setting it changes the statistics of all devices.

        Arrays that are sharded over devices are `jax.Array`s with their shardings. With several processes, each has its
        own part; `jax.experimental.multihost_utils.process_allgather` returns the whole. A solver of one device that is
        given a sharded state trains on the devices of the state; `jax.device_put(state, device)` moves it before.
        """
        return self._updater.train_state

    @train_state.setter
    def train_state(self, new_state: TrainState) -> None:
        previous_iteration = int(self._updater.sharded_state[0].iteration)
        self._updater.train_state = new_state
        self.iteration += int(new_state.iteration) - previous_iteration  # in a callback, the two differ by one

    @property
    def _is_observed(self) -> bool:
        return any(
            not getattr(callback, "takes_several_steps", False)
            and getattr(type(callback), "on_step", None) is not Callback.on_step
            for callback in self.callbacks
        )

    def _notify(self, event: Event, *details: Any) -> None:
        for callback in tuple(self.callbacks):  # a callback may remove itself from the list
            if isinstance(callback, Callback):
                getattr(callback, event)(self, *details)
            elif event == "on_step":
                callback(self)
