"""`Solver`, which trains a net with the settings of a solver prototxt, and the compiled updates that it runs."""

from __future__ import annotations

import functools
import itertools
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import jax
import numpy as np

from ...base.config import SolverOptions, TrainConfig
from ...base.errors import SolverError
from ...base.human_readable import format_count
from ...base.variables import Params, Variables
from ..data.user_data import Data
from ..ops.compilation import Jitted
from ..ops.implementations import find_form
from ..parallel import data_parallel, wait_on_cpu
from ..program.net import Net
from ..schema.caffe_pb2 import SolverParameter
from .build_trainer import TrainerParts, build_trainer
from .changing_rows import RowPadding
from .debug_info import DebugInfo
from .evaluate import Scores
from .host_program import HostProgram, as_one_program, join_results
from .index_check import IndexCheck
from .nan_check import FiniteCheck
from .reporting import DataWait, Display, log
from .train_state_io import check_state
from .train_step import StepResult, TrainState, has_varying_shapes, make_forward, make_step, make_steps, stack_batches
from .trainer import Event, Trainer

StackedBatches = Mapping[str, Any]


def make_step_options(param: SolverParameter, debug_nans: bool) -> dict[str, Any]:
    """Return the keyword arguments of `Net.jit` for a training step on one device: its name and donated arguments."""
    return _storage_options("step", param) | {"donate_argnums": () if debug_nans else 0}


def _storage_options(name: str, param: SolverParameter) -> dict[str, Any]:
    """Return keyword arguments of `Net.jit`, without storage for a user's optimizer, which no setting describes."""
    return {} if param.type == "optax" else {"stored_as": name, "solver_param": param}


def prefetch_step(net: Net, param: SolverParameter, debug_nans: bool) -> None:
    """Start to load the compiled training step for one device from the cache on disk, in a background thread."""
    program = net.jit(_placeholder, **make_step_options(param, debug_nans))
    if isinstance(program, Jitted):
        program.prefetch()


def _placeholder(*_: Any) -> None:
    """Do nothing. `prefetch_step` finds the compiled program by its key, so this function is never called."""


class CompiledUpdater:
    """An `Updater` that runs compiled training steps on the batches of a loader.

    Args:
        parts: the nets, data, optimizer and options of training.
        initial_state: the initial state, placed on the devices.
        finite_check: the check for NaN and infinity. It is called after each step if its `every_step` is set.
        steps_per_dispatch: the number of updates that are sent to the devices together. It is replaced by 1 for nets
            that do not support several updates at once, such as nets with layers on the host.

    Attributes:
        last_update, steps_per_dispatch, wait_seconds: see `Updater`.

    Raises:
        GraphError: if a layer needs a backward pass, but its type has none.
        SolverError: if `every_step` of the check is set and several devices train.
    """

    def __init__(
        self, parts: TrainerParts, initial_state: TrainState, finite_check: FiniteCheck, steps_per_dispatch: int = 1
    ) -> None:
        param, net, placement = parts.param, parts.net, parts.placement
        self.last_update: Params | None = None
        self._net, self._loader, self._iter_size, self._placement = net, parts.loader, param.iter_size, placement
        self._finite_check, self._data_wait = finite_check, DataWait()
        self._index_check = IndexCheck(net)
        self._debug_info = DebugInfo(net) if param.debug_info else None
        debug_nans = finite_check.every_step
        if not (debug_nans or param.debug_info or self._index_check.is_needed) and jax.process_count() == 1:
            shapes = {name: net.graph.blobs[name].shape for name in net.input_names}
            # devices that work together read batches that may differ from the start
            parts.loader.pad_rows = RowPadding(net.graph, None if placement.mesh is None else shapes)
        if debug_nans and placement.mesh is not None:
            raise SolverError(
                f"debug_nans works only on one device, but the solver has {placement.mesh.size} devices; train on one "
                "device, or omit debug_nans"
            )
        mesh = placement.mesh
        make_step_of = functools.partial(
            make_step,
            optimizer=parts.optimizer,
            iter_size=param.iter_size,
            keep_update=param.snapshot_diff,
            keep_norm=param.clip_gradients >= 0,
            mesh=mesh,
            parallel=parts.config.parallel,
        )
        step = make_step_of(net)
        self._state = initial_state
        one_program = as_one_program(net)
        if mesh is None:
            self._forward = net.jit(make_forward(net), stored_as="forward", solver_param=param)
            self._step = net.jit(step, **make_step_options(param, debug_nans))
            self._steps = net.jit(make_steps(step), **_storage_options("steps", param), donate_argnums=0)
            if one_program is not None:
                step = make_step_of(one_program)
                programs = one_program.jit(step), one_program.jit(make_steps(step))
                host_program = HostProgram(one_program, *programs, step_in_parts=self._step)
                self._step, self._steps = host_program.step, host_program.steps
        else:
            options: dict[str, Any] = {"out_shardings": (placement.shardings(initial_state), None)}
            if one_program is None:
                options["donate_argnums"] = 0
            else:
                self._net, step = one_program, make_step_of(one_program)
            self._forward = self._jit_on_mesh(data_parallel(make_forward(self._net), mesh))
            self._step, self._steps = self._jit_on_mesh(step, **options), self._jit_on_mesh(make_steps(step), **options)
            if one_program is not None:
                host_program = HostProgram(one_program, self._step, self._steps)
                self._step, self._steps = host_program.step, host_program.steps
        runs_in_parts = net.has_host_layers and one_program is None
        needs_single_steps = debug_nans or param.debug_info or runs_in_parts or self._index_check.is_needed
        self.steps_per_dispatch = 1 if needs_single_steps else steps_per_dispatch

    def _jit_on_mesh(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        run_compiled = self._net.jit(function, **options)
        return lambda *args: wait_on_cpu(run_compiled(*args))

    @property
    def train_state(self) -> TrainState:
        """The state with unsharded arrays and the first device's running statistics."""
        return self._placement.gather_state(self._state)

    @train_state.setter
    def train_state(self, new_state: TrainState) -> None:
        check_state(new_state, self.abstract_state)
        self._state = self._placement.place_state(new_state.replace(rule=self._state.rule))

    @property
    def variables(self) -> Variables:
        """The parameters and running statistics of `train_state`."""
        return self._placement.gather_variables(self._state)

    @property
    def abstract_state(self) -> TrainState:
        """The shapes and dtypes of `train_state`, with the shardings that arrays get when a checkpoint is restored."""
        return self._placement.abstract_state(self._state)

    @property
    def sharded_state(self) -> tuple[TrainState, Params | None]:
        """`(state, statistics)`: the state with sharded arrays, and the running statistics of each device.

        On one device, `statistics` is None.
        """
        return self._placement.split_statistics(self._state)

    def restore(self, state: TrainState, device_statistics: Params | None) -> None:
        """Replace the state with a restored state; see `Updater.restore`."""
        self._state, self.last_update = self._placement.place_restored(state, device_statistics), None

    @property
    def wait_seconds(self) -> float:
        """The total time in seconds for which the devices have waited for data."""
        return self._data_wait.seconds

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
            debug_info: whether to log Caffe's debug info (mean absolute values of blobs) before the update.
            requests: see `make_step`.

        Raises:
            DataError: if a batch cannot be read.
            LayerError: if an index, such as a label, is out of range.
            SolverError: if `finite_check` checks every step and a number is not finite.
        """
        with self._data_wait.measure_read():
            batches = [self._placement.read_batches(self._loader, self._iter_size) for _ in rates]
        result = self._dispatch_updates(iteration, rates, batches, requests, debug_info)
        self._data_wait.record_result(result.loss)
        return result

    def _dispatch_updates(
        self,
        iteration: int,
        rates: Sequence[np.float32],
        batches: Sequence[Sequence[StackedBatches]],
        requests: jax.Array | None,
        debug_info: bool,
    ) -> StepResult:
        if len(batches) == 1:
            return self._update(iteration, batches[0], rates[0], requests, debug_info)
        stacked_batches = [stack_batches(row_batches) for row_batches in zip(*batches, strict=True)]
        if any(map(has_varying_shapes, [*stacked_batches, *batches[0]])):
            results = [
                self._update(iteration + i, *inputs, requests)
                for i, inputs in enumerate(zip(batches, rates, strict=True))
            ]
            return join_results(results)
        device_batches = self._placement.put_batches(stacked_batches, 2)
        self._state, result = self._steps(self._state, device_batches, np.array(rates, np.float32), requests)
        self.last_update = result.update
        return result

    def final_loss(self) -> jax.Array:
        """Return the loss of a forward pass on the next batch, a float32 scalar."""
        device_batches = self._placement.put_batches(self._placement.read_batches(self._loader, 1))
        previous = self._state
        _, state, loss, _ = self._forward(previous.params, previous.state, device_batches, previous.key)
        self._state = previous.replace(state=state)
        return loss

    def _update(
        self,
        iteration: int,
        batches: Sequence[StackedBatches],
        rate: np.float32,
        requests: jax.Array | None,
        debug_info: bool = False,
    ) -> StepResult:
        device_batches = self._placement.put_batches(batches)
        previous_state = self._state
        if self._index_check.is_needed:
            for arguments in self._placement.iterate_passes(previous_state, device_batches, self._iter_size):
                self._index_check(*arguments)
        if debug_info:
            self._log_debug_info(device_batches)
        self._state, result = self._step(previous_state, device_batches, rate, requests)
        self.last_update = result.update
        if self._finite_check.every_step:
            self._finite_check.check_step(iteration, previous_state, device_batches, self._state, result.loss)
        return result

    def _log_debug_info(self, device_batches: StackedBatches) -> None:
        assert self._debug_info is not None
        passes = self._placement.iterate_passes(self._state, device_batches, self._iter_size)
        for line in self._debug_info.format_lines(itertools.islice(passes, self._iter_size)):  # the first device's
            log.info(line)


class Callback:
    """Base class of objects whose methods a solver calls at events. Append an instance to `Solver.callbacks`.

    With several processes, each process calls its callbacks at the same events. Only the process in which
    `jax.process_index()` is 0 should write logs or files. Reading computed values, such as
    `solver.smoothed_loss`, waits until the devices have finished all iterations. In `on_step`, this makes training
    slower.
    """

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
        options: the fields of `caffejax.TrainConfig`, `caffejax.ComputeConfig`, `caffejax.DataConfig`, by
            name.

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
        if tune:
            tune_process = find_form("tune_process")
            if tune_process is not None:
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
        super().__init__(
            parts, CompiledUpdater(parts, initial_state, finite_check, config.steps_per_dispatch), finite_check
        )
        self.file, self.device, mesh = parts.file, parts.device, parts.placement.mesh
        self.devices = [parts.device] if mesh is None else list(mesh.devices.flat)
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
        """
        return self._updater.train_state

    @train_state.setter
    def train_state(self, new_state: TrainState) -> None:
        previous_iteration = int(self._updater.sharded_state[0].iteration)
        self._updater.train_state = new_state
        self.iteration += int(new_state.iteration) - previous_iteration  # in a callback, the two differ by one

    def _notify(self, event: Event, *details: Any) -> None:
        for callback in tuple(self.callbacks):  # a callback may remove itself from the list
            if isinstance(callback, Callback):
                getattr(callback, event)(self, *details)
            elif event == "on_step":
                callback(self)
