"""`Solver`, which trains a net by the settings of a solver prototxt, and the compiled updates that it runs."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from ..config import SolverOptions, TrainConfig
from ..data.user_data import Data
from ..debugging import IndexCheck
from ..debugging.debug_info import DebugInfo
from ..errors import SolverError
from ..human_readable import format_count
from ..kernels.compilation import Jitted
from ..net import Net, Params, Variables
from ..parallel import data_parallel, wait_on_cpu
from ..process_settings import tune_process
from ..schema.caffe_pb2 import SolverParameter
from .build_trainer import Setup, build
from .evaluate import Scores
from .nan_check import FiniteCheck
from .program_keys import training_function
from .reporting import DataWait, Display, log
from .train_state_io import check_state
from .train_step import StepResult, TrainState, has_varying_shapes, make_forward, make_step, make_steps, stack
from .trainer import Event, Trainer

Batches = Mapping[str, Any]


def step_options(net: Net, param: SolverParameter, debug_nans: bool) -> dict[str, Any]:
    """Return the options of `Net.jit` for a training step on one device: cache key and donated arguments."""
    return {"cache_key": training_function("step", net, param), "donate_argnums": () if debug_nans else 0}


def fetch_step_ahead(net: Net, param: SolverParameter, debug_nans: bool) -> None:
    """Start to load the compiled training step for one device from the cache on disk, in another thread."""
    program = net.jit(_unused, **step_options(net, param, debug_nans))
    if isinstance(program, Jitted):
        program.prefetch()


def _unused(*_: Any) -> None:
    """Placeholder for a function that is never called: programs are found by their keys."""


class CompiledUpdater:
    """An `Updater` that runs compiled training steps on the batches of a loader.

    Args:
        setup: the nets, data, optimizer and options of training.
        start: the initial state, placed on the devices.
        finite_check: the check for NaN and infinity. It is called after each step if its `every_step` is set.
        steps_per_dispatch: the number of updates to dispatch together. It is 1 for nets that do not allow several, such
            as nets with layers on the host.

    Attributes:
        last_update, steps_per_dispatch, wait_seconds: as in `Updater`.

    Raises:
        GraphError: if a layer needs a backward pass, but its type has none.
        SolverError: if `every_step` is set on several devices.
    """

    def __init__(self, setup: Setup, start: TrainState, finite_check: FiniteCheck, steps_per_dispatch: int = 1) -> None:
        param, net, placement = setup.param, setup.net, setup.placement
        self.last_update: Params | None = None
        self._net, self._loader, self._iter_size, self._placement = net, setup.loader, param.iter_size, placement
        self._finite_check, self._wait = finite_check, DataWait()
        self._check_indices = IndexCheck(net)
        self._debug_info = DebugInfo(net) if param.debug_info else None
        debug_nans = finite_check.every_step
        if debug_nans and placement.mesh is not None:
            raise SolverError("debug_nans works on one device only; train on one device")
        mesh = placement.mesh
        parallel = setup.config.parallel
        step = make_step(
            net, setup.optimizer, param.iter_size, keep_update=param.snapshot_diff, mesh=mesh, parallel=parallel
        )
        self._state = start
        if mesh is None:
            self._forward = net.jit(make_forward(net), cache_key=training_function("forward", net, param))
            self._step = net.jit(step, **step_options(net, param, debug_nans))
            steps = training_function("steps", net, param)
            self._steps = net.jit(make_steps(step), cache_key=steps, donate_argnums=0)
        else:
            options = {"donate_argnums": 0, "out_shardings": (placement.shardings(start), None)}
            self._forward = self._jit_on_mesh(data_parallel(make_forward(net), mesh))
            self._step, self._steps = self._jit_on_mesh(step, **options), self._jit_on_mesh(make_steps(step), **options)
        one_by_one = debug_nans or param.debug_info or net.has_host_layers or self._check_indices.needed
        self.steps_per_dispatch = 1 if one_by_one else steps_per_dispatch

    def _jit_on_mesh(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        run = self._net.jit(function, **options)
        return lambda *args: wait_on_cpu(run(*args))

    @property
    def train_state(self) -> TrainState:
        """The state with unsharded arrays and the first device's running statistics."""
        return self._placement.gather(self._state)

    @train_state.setter
    def train_state(self, new: TrainState) -> None:
        check_state(new, self.abstract_state)
        self._state = self._placement.place(new)

    @property
    def variables(self) -> Variables:
        """The parameters and running statistics of `train_state`."""
        return self._placement.variables(self._state)

    @property
    def abstract_state(self) -> TrainState:
        """The shapes of `train_state`, with the shardings with which a checkpoint is read."""
        return self._placement.abstract_state(self._state)

    @property
    def sharded_state(self) -> tuple[TrainState, Params | None]:
        """The state with sharded arrays, and the running statistics of each device, or None on one device."""
        return self._placement.split_statistics(self._state)

    def restore(self, state: TrainState, device_statistics: Params | None) -> None:
        """Replace the state by a restored state; see `Updater.restore`."""
        self._state, self.last_update = self._placement.place_restored(state, device_statistics), None

    @property
    def wait_seconds(self) -> float:
        """The total time for which devices have waited for data, in seconds."""
        return self._wait.seconds

    def update(
        self,
        iteration: int,
        rates: Sequence[np.float32],
        *,
        debug_info: bool = False,
        requests: jax.Array | None = None,
    ) -> StepResult:
        """Make one update for each rate.

        Args:
            iteration: the number of the first update.
            rates: the learning rates, float32.
            debug_info: whether to log debug info before the update.
            requests: as for `make_step`.

        Raises:
            DataError: if a batch cannot be read.
            LayerError: if an index, such as a label, is out of range.
            SolverError: if `finite_check` checks every step and a number is not finite.
        """
        with self._wait.reading():
            batches = [self._placement.read(self._loader, self._iter_size) for _ in rates]
        result = self._updates(iteration, rates, batches, requests, debug_info)
        self._wait.note(result.loss)
        return result

    def _updates(
        self,
        iteration: int,
        rates: Sequence[np.float32],
        batches: Sequence[Sequence[Batches]],
        requests: jax.Array | None,
        debug_info: bool,
    ) -> StepResult:
        if len(batches) == 1:
            return self._update(iteration, batches[0], rates[0], requests, debug_info)
        stacked = [stack(device_batches) for device_batches in zip(*batches, strict=True)]
        if any(map(has_varying_shapes, [*stacked, *batches[0]])):
            results = [
                self._update(iteration + i, *inputs, requests)
                for i, inputs in enumerate(zip(batches, rates, strict=True))
            ]
            return results[-1]._replace(loss=jnp.stack([result.loss for result in results]))
        on_device = self._placement.put(stacked, 2)
        self._state, result = self._steps(self._state, on_device, np.array(rates, np.float32), requests)
        self.last_update = result.update
        return result

    def final_loss(self) -> jax.Array:
        """Return the loss of a forward pass on the next batch."""
        batches, before = self._placement.put(self._placement.read(self._loader, 1)), self._state
        _, state, loss, _ = self._forward(before.params, before.state, batches, before.key)
        self._state = before.replace(state=state)
        return loss

    def _update(
        self,
        iteration: int,
        batches: Sequence[Batches],
        rate: np.float32,
        requests: jax.Array | None,
        debug_info: bool = False,
    ) -> StepResult:
        device_batches = self._placement.put(batches)
        before = self._state
        if self._check_indices.needed:
            for arguments in self._placement.passes(before, device_batches, self._iter_size):
                self._check_indices(*arguments)
        if debug_info:
            self._log_debug_info(device_batches)
        self._state, result = self._step(before, device_batches, rate, requests)
        self.last_update = result.update
        if self._finite_check.every_step:
            self._finite_check.trace(iteration, before, device_batches, self._state, result.loss)
        return result

    def _log_debug_info(self, batches: Batches) -> None:
        assert self._debug_info is not None
        passes = self._placement.passes(self._state, batches, self._iter_size)
        for arguments in itertools.islice(passes, self._iter_size):  # only the passes of the first device
            for line in self._debug_info.lines(*arguments):
                log.info(line)


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
        options: the fields of `caffejax.training.TrainConfig`, `caffejax.ComputeConfig` and `caffejax.DataConfig`, by
            name.

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
            f"iteration {self.iteration} of {p.max_iter}; {format_count(len(self.tests.evaluators), 'test net')}; "
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
