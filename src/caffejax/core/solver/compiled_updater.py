"""`CompiledUpdater`, which trains with compiled steps."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ...base.errors import SolverError
from ..graph import Graph
from ..layers.row_padding import PaddedRows, RowsOrigin, zero_pad_rows
from ..ops.compilation import Jitted
from ..parallel.coordination import note_progress
from ..parallel.data_parallel import data_parallel
from ..parallel.global_arrays import wait_on_cpu
from ..program.callbacks import find_layers_without_padding
from ..program.net import Net
from ..schema.caffe_pb2 import SolverParameter
from .build_trainer import TrainerParts
from .debug_info import DebugInfo
from .host_program import HostProgram, as_one_program
from .index_check import IndexCheck
from .joint_steps import MAX_STEPS, JointSteps, can_join_steps
from .nan_check import FiniteCheck
from .reporting import log
from .train_step import (
    StepResult,
    TrainState,
    has_varying_shapes,
    join_results,
    make_forward,
    make_step,
    make_steps,
    stack_batches,
)
from .updater import Updater

StackedBatches = Mapping[str, Any]

_MIN_ROWS = 16  # smaller numbers of rows share a program


def make_step_options(param: SolverParameter, debug_nans: bool) -> dict[str, Any]:
    """Return the keyword arguments of `Net.jit` for a training step: its name and donated arguments."""
    return _storage_options("step", param) | {"donate_argnums": () if debug_nans else 0}


def _storage_options(name: str, param: SolverParameter) -> dict[str, Any]:
    """Return keyword arguments of `Net.jit`, without storage for a user's optimizer, which no setting describes."""
    return {} if param.type == "optax" else {"stored_as": name, "solver_param": param}


def prefetch_step(net: Net, param: SolverParameter, debug_nans: bool) -> None:
    """Start to load the compiled training step for one device from the cache on disk, in a background thread."""
    # the program is found by its key, so this function is never called
    program = net.jit(lambda *_: None, **make_step_options(param, debug_nans))
    if isinstance(program, Jitted):
        program.prefetch()


class CompiledUpdater(Updater):
    """Runs compiled training steps on the batches of a loader.

    Args:
        parts: the nets, data, optimizer and options of training. The option `steps_per_dispatch` is replaced by 1 for
            nets that do not support several updates at once, such as nets with layers on the host. None stands for up
            to `MAX_STEPS` where `can_join_steps` allows it, and for 1 elsewhere.
        initial_state: the initial state, placed on the devices.
        finite_check: the check for NaN and infinity. It is called after each step if its `every_step` is set.

    Raises:
        GraphError: if a layer needs a backward pass, but its type has none.
        SolverError: if `every_step` of the check is set and several devices train.
    """

    def __init__(self, parts: TrainerParts, initial_state: TrainState, finite_check: FiniteCheck) -> None:
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
        outputs = () if placement.is_one_device else (placement.shardings(initial_state), None)
        shardings: dict[str, Any] = {"out_shardings": outputs} if outputs else {}
        steps_shardings: dict[str, Any] = {"out_shardings": (*outputs, None)} if outputs else {}
        if one_program is None:
            self._step = self._jit(net, step, **make_step_options(param, debug_nans), **shardings)
            self._steps = self._jit(
                net, make_steps(step), **_storage_options("steps", param), donate_argnums=0, **steps_shardings
            )
        else:
            host_program = HostProgram(
                one_program,
                self._jit(one_program, step, **shardings),
                self._jit(one_program, make_steps(step), **steps_shardings),
                make_step_of(net) if placement.is_one_device else None,
            )
            self._step, self._steps = host_program.step, host_program.steps
        forward_net = net if placement.is_one_device else program_net
        forward = data_parallel(make_forward(forward_net), placement.mesh)
        self._forward = self._jit(forward_net, forward, stored_as="forward", solver_param=param)
        runs_in_parts = net.has_host_layers and one_program is None
        needs_single_steps = debug_nans or param.debug_info or runs_in_parts or self._index_check.is_needed
        number = parts.config.steps_per_dispatch
        self.steps_per_dispatch = 1 if needs_single_steps or number is None else number
        self._joint_steps: JointSteps | None = None
        if number is None and not needs_single_steps and can_join_steps(parts):
            self.steps_per_dispatch, self.takes_fewer_steps = MAX_STEPS, True
            program = self._jit(net, make_steps(step), **_storage_options("joint_steps", param), donate_argnums=0)
            self._joint_steps = JointSteps(net, param.iter_size, program, self._step, placement)

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
        self._raise_read_error()
        with self.data_wait.measure_read():
            read = functools.partial(self._placement.read_batches, self._loader, self._iter_size)
            batches = self._read_iterations(len(rates), read)
        note_progress(f"runs iteration {iteration}")
        # users may spread a state over devices; each step then places what it needs
        is_spread = any(len(x.sharding.device_set) > 1 for x in jax.tree.leaves(self._state.params))
        if self._joint_steps is not None and not is_spread:
            self._state, result = self._joint_steps(self._state, [rows[0] for rows in batches], rates)
            self.last_update = result.update
        elif self._joint_steps is None and len(batches) == len(rates) > 1 and (stacked := _stack_steps(batches)):
            device_batches = self._placement.put_batches(stacked, 2)
            self._state, result, *_ = self._steps(self._state, device_batches, np.array(rates, np.float32), requests)
            self.last_update = result.update
        else:
            pairs = enumerate(zip(batches, rates, strict=False), iteration)
            results = [self._update(i, *inputs, requests, debug_info) for i, inputs in pairs]
            result = results[0] if len(results) == 1 else join_results(results)
        self.data_wait.record_result(result.loss)
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
        debug_info: bool,
    ) -> StepResult:
        device_batches = self._placement.put_batches(batches)
        previous_state = self._state
        if self._index_check.is_needed:
            for arguments in self._placement.iterate_passes(previous_state, device_batches, self._iter_size):
                self._index_check(*arguments)
        if debug_info:
            assert self._debug_info is not None
            passes = self._placement.iterate_passes(previous_state, device_batches, self._iter_size)
            for line in self._debug_info.format_lines(itertools.islice(passes, self._iter_size)):  # the first device's
                log.info(line)
        new_state, result = self._step(previous_state, device_batches, rate, requests)
        if self._finite_check.every_step:  # after an error the solver keeps the state before the step
            self._finite_check.check_step(iteration, previous_state, device_batches, new_state, result.loss)
        self._state, self.last_update = new_state, result.update
        return result


def _stack_steps(batches: Sequence[Sequence[StackedBatches]]) -> list[dict[str, Any]] | None:
    """Return the batches of several iterations, stacked for each row of devices, or None if their shapes differ."""
    stacked = [stack_batches(row_batches) for row_batches in zip(*batches, strict=True)]
    return None if any(map(has_varying_shapes, [*stacked, *batches[0]])) else stacked


class RowPadding:
    """A function of batches that pads the inputs whose number of rows has changed since the first batch.

    The numbers of rows, for example of ground-truth boxes, are rounded up to powers of two. Inputs that have had
    equal numbers of rows in all batches have the same rows. If a layer depends on all rows of such an input, batches
    are returned as they are, and the net is compiled for each number of rows.

    Args:
        graph: the net's graph.
        first_shapes: the shapes with which the numbers of rows are compared, by input; default: the shapes of the first
            batch.
    """

    def __init__(self, graph: Graph, first_shapes: Mapping[str, tuple[int, ...]] | None = None) -> None:
        self._graph = graph
        self._first_shapes = first_shapes
        self._origins: dict[str, str] = {}  # inputs of one origin have had equal numbers of rows in all batches
        self._changing: frozenset[str] = frozenset()
        self._is_possible = True

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return a batch of NumPy arrays, in which `PaddedRows` replace arrays whose number of rows changes."""
        shapes = {name: np.shape(array) for name, array in batch.items()}
        if self._first_shapes is None:
            self._first_shapes = shapes
        first = self._first_shapes
        changing = self._changing.union(name for name, shape in shapes.items() if shape[:1] != first[name][:1])
        names = sorted(shapes)
        rows = {name: (self._origins.get(name), shapes[name][:1]) for name in names}
        origins = {name: next(n for n in names if rows[n] == rows[name]) for name in names}
        if changing and (changing, origins) != (self._changing, self._origins):
            self._is_possible = self._check(changing, origins)
        self._changing, self._origins = changing, origins
        if not self._is_possible or any(shapes[name][0] == 0 for name in changing):
            return dict(batch)
        return {name: self._pad(name, np.asarray(x)) if name in changing else x for name, x in batch.items()}

    def _pad(self, name: str, array: np.ndarray) -> PaddedRows:
        n = len(array)
        rows = zero_pad_rows(array, max(_MIN_ROWS, 1 << (n - 1).bit_length()), 0)
        return PaddedRows(rows, np.int32(n), RowsOrigin(self._origins[name]))

    def _check(self, changing: frozenset[str], origins: Mapping[str, str]) -> bool:
        rows = {name: RowsOrigin(origins[name]) for name in changing}
        layers = find_layers_without_padding(self._graph, rows)
        if layers:
            log.info(
                "The net is compiled for each number of rows of %s, because these layers depend on all rows: %s",
                ", ".join(f"'{name}'" for name in sorted(changing)),
                ", ".join(f"'{layer.name}'" for layer in layers),
            )
        return not layers
