"""`CompiledUpdater`, which trains with compiled steps."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ...base.errors import SolverError
from ..ops.compilation import Jitted
from ..parallel import data_parallel, note_progress, wait_on_cpu
from ..program.net import Net
from ..schema.caffe_pb2 import SolverParameter
from .build_trainer import TrainerParts
from .changing_rows import RowPadding
from .debug_info import DebugInfo
from .host_program import HostProgram, as_one_program, join_results
from .index_check import IndexCheck
from .nan_check import FiniteCheck
from .reporting import log
from .train_step import StepResult, TrainState, has_varying_shapes, make_forward, make_step, make_steps, stack_batches
from .updater import Updater

StackedBatches = Mapping[str, Any]


def make_step_options(param: SolverParameter, debug_nans: bool) -> dict[str, Any]:
    """Return the keyword arguments of `Net.jit` for a training step: its name and donated arguments."""
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


class CompiledUpdater(Updater):
    """Runs compiled training steps on the batches of a loader.

    Args:
        parts: the nets, data, optimizer and options of training.
        initial_state: the initial state, placed on the devices.
        finite_check: the check for NaN and infinity. It is called after each step if its `every_step` is set.
        steps_per_dispatch: the number of updates that are sent to the devices together. It is replaced by 1 for nets
            that do not support several updates at once, such as nets with layers on the host.

    Raises:
        GraphError: if a layer needs a backward pass, but its type has none.
        SolverError: if `every_step` of the check is set and several devices train.
    """

    def __init__(
        self, parts: TrainerParts, initial_state: TrainState, finite_check: FiniteCheck, steps_per_dispatch: int = 1
    ) -> None:
        param, net, placement = parts.param, parts.net, parts.placement
        super().__init__(placement, initial_state)
        self._loader, self._iter_size, self._finite_check = parts.loader, param.iter_size, finite_check
        self._index_check = IndexCheck(net)
        self._debug_info = DebugInfo(net) if param.debug_info else None
        debug_nans = finite_check.every_step
        if debug_nans and not placement.is_one_device:
            raise SolverError(
                f"debug_nans works only on one device, but the solver has {placement.mesh.size} devices; train on one "
                "device, or omit debug_nans"
            )
        if not (debug_nans or param.debug_info or self._index_check.is_needed) and jax.process_count() == 1:
            shapes = {name: net.graph.blobs[name].shape for name in net.input_names}
            # devices that work together read batches that may differ from the start
            parts.loader.pad_rows = RowPadding(net.graph, None if placement.is_one_device else shapes)
        one_program = as_one_program(net)
        program_net = one_program or net
        make_step_of = functools.partial(
            make_step,
            optimizer=parts.optimizer,
            iter_size=param.iter_size,
            keep_update=param.snapshot_diff,
            keep_norm=param.clip_gradients >= 0,
            mesh=placement.mesh,
            parallel=parts.config.parallel,
        )
        step = make_step_of(program_net)
        shardings: dict[str, Any] = {}
        if not placement.is_one_device:
            shardings["out_shardings"] = placement.shardings(initial_state), None
        if one_program is None:
            self._step = self._jit(net, step, **make_step_options(param, debug_nans), **shardings)
            self._steps = self._jit(
                net, make_steps(step), **_storage_options("steps", param), donate_argnums=0, **shardings
            )
        else:
            host_program = HostProgram(
                one_program,
                self._jit(one_program, step, **shardings),
                self._jit(one_program, make_steps(step), **shardings),
                make_step_of(net) if placement.is_one_device else None,
            )
            self._step, self._steps = host_program.step, host_program.steps
        forward_net = net if placement.is_one_device else program_net
        forward = data_parallel(make_forward(forward_net), placement.mesh)
        self._forward = self._jit(forward_net, forward, stored_as="forward", solver_param=param)
        runs_in_parts = net.has_host_layers and one_program is None
        needs_single_steps = debug_nans or param.debug_info or runs_in_parts or self._index_check.is_needed
        self.steps_per_dispatch = 1 if needs_single_steps else steps_per_dispatch

    def _jit(
        self, net: Net, function: Callable[..., Any], *, stored_as: str | None = None, **options: Any
    ) -> Callable[..., Any]:
        """Compile a function; see `Net.jit`. Only programs for one device are stored."""
        if self._placement.is_one_device:
            return net.jit(function, stored_as=stored_as, **options)
        run_compiled = net.jit(function, **options)
        return lambda *args: wait_on_cpu(run_compiled(*args))

    def update(
        self,
        iteration: int,
        rates: Sequence[np.float32],
        *,
        debug_info: bool = False,
        requests: jax.Array | None = None,
    ) -> StepResult:
        """Make one update for each rate; see `Updater.update`.

        Raises:
            DataError: if a batch cannot be read.
            LayerError: if an index, such as a label, is out of range.
            SolverError: if `finite_check` checks every step and a number is not finite.
        """
        note_progress(f"reads the data of iteration {iteration}")
        with self._data_wait.measure_read():
            batches = [self._placement.read_batches(self._loader, self._iter_size) for _ in rates]
        note_progress(f"runs iteration {iteration}")
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
        new_state, result = self._step(previous_state, device_batches, rate, requests)
        if self._finite_check.every_step:  # after an error the solver keeps the state before the step
            self._finite_check.check_step(iteration, previous_state, device_batches, new_state, result.loss)
        self._state, self.last_update = new_state, result.update
        return result

    def _log_debug_info(self, device_batches: StackedBatches) -> None:
        assert self._debug_info is not None
        passes = self._placement.iterate_passes(self._state, device_batches, self._iter_size)
        for line in self._debug_info.format_lines(itertools.islice(passes, self._iter_size)):  # the first device's
            log.info(line)
