"""`caffe.Solver` and its subclasses: solvers with Caffe's Python interface."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..base.config import TrainConfig
from ..base.errors import ReadOnlyError, SolverError, raise_if_any
from ..base.variables import Params, Variables
from ..core.data.loader import Loader
from ..core.graph import UNNAMED_TOP
from ..core.layers import SourceInput
from ..core.schema import read_solver, source_file
from ..core.schema.caffe_pb2 import SolverParameter
from ..core.solver.build_trainer import TrainerParts, build_trainer
from ..core.solver.caffe_optimizer import compute_total_norm
from ..core.solver.debug_info import DebugInfo, Pass
from ..core.solver.evaluate import copy_trained_params
from ..core.solver.joint_steps import MAX_STEPS, JointSteps, can_join_steps
from ..core.solver.nan_check import FiniteCheck
from ..core.solver.reporting import ClippingLog
from ..core.solver.train_step import StepResult, TrainState, make_step, make_steps, make_update, pass_key, stack_batches
from ..core.solver.trainer import Trainer
from ..core.solver.updater import Updater
from ..cpu.process_settings import tune_process
from . import _global_state
from ._arguments import as_callable, as_instance, as_integer, as_path
from ._executor import Executor
from ._net import Net
from ._read_only import ReadOnlyList
from ._solver_tests import NetEvaluator

Callback = Callable[[], object]


class BlobUpdater(Updater):
    """An updater that stores parameters, blobs and diffs in the blobs of the train net, where users can read them.

    Where `can_join_steps` allows it, the parameters come from `JointSteps`, and only the last iteration that a user
    asks for fills the blobs, by a further pass.

    Args:
        parts: the parts of training.
        train_state: the state to start from; the train net already has its parameters and running statistics.
        executor: the train net's executor.

    Attributes:
        on_start: functions that are called in each iteration before the first pass.
        on_gradients: functions that are called in each iteration before the update.
    """

    takes_fewer_steps = ends_with_single_step = True

    def __init__(self, parts: TrainerParts, train_state: TrainState, executor: Executor) -> None:
        self.on_start: list[Callback] = []
        self.on_gradients: list[Callback] = []
        self._executor, self._device, self._iter_size = executor, parts.device, parts.param.iter_size
        super().__init__(parts.placement, train_state)
        executor.logs_shapes = True
        self._input_names = parts.net.input_names
        self._outputs = [name for name in parts.net.outputs if name != UNNAMED_TOP]
        self._last_layer = len(parts.net.graph.layers) - 1
        self._apply = make_update(parts.optimizer, parts.param.iter_size, keep_update=True)
        self._debug_info = DebugInfo(parts.net) if parts.param.debug_info else None
        self._clips, self._compute_norm = parts.param.clip_gradients >= 0, jax.jit(compute_total_norm)
        self._joint_steps = None if self._debug_info is not None else _make_joint_steps(parts)
        self._graph = executor.graph

    @property
    def _state(self) -> TrainState:
        """The train state on the current device, with the net's current parameters and running statistics."""
        self._move_to_current_device()
        params, state = self._executor.memories.variables
        return self._state_without_variables.replace(params=params, state=state)

    @_state.setter
    def _state(self, new: TrainState) -> None:
        self._state_without_variables = new.replace(params={}, state={})
        self._executor.memories.variables = Variables(new.params, new.state)

    @property
    def sharded_state(self) -> tuple[TrainState, None]:
        """A copy of the train state, because users may write to blobs, and None."""
        self._executor.memories.lists.check_training()
        return jax.tree.map(jnp.copy, self._state), None

    def restore(self, state: TrainState, row_statistics: Params | None) -> None:
        """Replace the train state by a saved state; `row_statistics` is ignored."""
        self._state, self.last_update, self._read_error = jax.device_put(state, self._device), None, None

    @property
    def steps_per_dispatch(self) -> int:  # type: ignore[override]
        """The number of iterations in one call, 1 if callbacks look at each, or the net was reshaped."""
        return 1 if self._get_joint_steps() is None else MAX_STEPS

    def _get_joint_steps(self) -> JointSteps | None:
        is_watched = self.on_start or self.on_gradients or self._executor.has_callbacks
        is_changed = self._executor.graph is not self._graph or _global_state.get_device() is not self._device
        return None if is_watched or is_changed else self._joint_steps

    def update(
        self,
        iteration: int,
        rates: Sequence[np.float32],
        *,
        debug_info: bool = False,
        requests: jax.Array | None = None,
    ) -> StepResult:
        """Make one update for each rate, each from `iter_size` passes.

        `requests` is ignored, because there is a single process.
        """
        self._raise_read_error()
        self._executor.memories.lists.check_training()
        if len(rates) > 1:
            return self._make_joint_updates(self._read_iterations(len(rates), self._read_batches), rates)
        (rate,) = rates
        for callback in self.on_start:
            callback()
        self._move_to_current_device()
        joint_steps, state = self._get_joint_steps(), self._state
        self._executor.memories.clear_param_diffs()
        losses, batches = [], []
        passes: list[Pass] = []
        for i in range(self._iter_size):
            variables = self._executor.memories.variables
            losses.append(self._run_pass(i))
            if joint_steps is not None or debug_info:
                batches.append(self._executor.memories.get_values(self._input_names))
            if debug_info:
                passes.append((*variables, batches[-1], pass_key(self._state_without_variables, i)))
        if joint_steps is not None and self._get_joint_steps() is joint_steps:  # the net has its shapes as before
            self._state = state
            return self._make_joint_updates([stack_batches(batches)], rates)
        if self._debug_info is not None:
            for line in self._debug_info.format_lines(passes):
                _global_state.log(line)
        loss = jnp.mean(jnp.stack(losses)) if len(losses) > 1 else losses[0]
        for callback in self.on_gradients:
            callback()
        norm = self.apply_update(rate)
        outputs = self._executor.memories.get_values(self._outputs)
        return StepResult(loss, outputs, self.last_update, gradient_norm=norm)

    def _read_batches(self) -> dict[str, Any]:
        reader, layers = self._executor.batch_reader, self._graph.layers
        return stack_batches([reader.read_arrays(layers) for _ in range(self._iter_size)])

    def _make_joint_updates(self, batches: Sequence[Mapping[str, Any]], rates: Sequence[np.float32]) -> StepResult:
        assert self._joint_steps is not None
        self._state, result = self._joint_steps(self._state, batches, rates)
        assert result.update is not None
        self._executor.memories.param_diffs = self.last_update = result.update
        return result

    def apply_update(self, rate: np.float32) -> jax.Array | None:
        """Replace the diffs of the train net's parameters by their updates, and subtract the updates.

        Returns:
            The L2 norm of the diffs, a scalar, or None if they are not clipped.
        """
        self._move_to_current_device()
        norm = self._compute_norm(self._executor.memories.param_diffs) if self._clips else None
        old_state = self._state_without_variables.replace(params=self._executor.memories.params)
        new_state, update = self._apply(self._executor.memories.param_diffs, old_state, rate)
        assert update is not None
        self._executor.memories.params = new_state.params
        self._executor.memories.param_diffs = self.last_update = update
        self._state_without_variables = new_state.replace(params={}, state={})
        return norm

    def final_loss(self) -> jax.Array:
        """Run the train net forward on the next batch; return the loss."""
        return sum(self._executor.forward(0, self._last_layer), start=jnp.zeros(()))

    def _run_pass(self, pass_index: int) -> jax.Array:
        """Run a pass and return its loss."""
        first_loss, *other_losses = self._executor.forward_backward(
            (self._state_without_variables.key, self._state_without_variables.iteration, pass_index)
        )
        return sum(other_losses, start=first_loss)

    def _move_to_current_device(self) -> None:
        if (device := _global_state.get_device()) is not self._device:
            self._device = device
            self._state_without_variables = jax.device_put(self._state_without_variables, device)
            self._executor.move_to_current_device()


def _make_joint_steps(parts: TrainerParts) -> JointSteps | None:
    """Return the steps of a train net that may be computed together, or None.

    The passes in its blobs must leave the inputs of the step as they are.
    """
    net, param = parts.net, parts.param
    input_layers = [layer for layer in net.graph.layers if isinstance(layer.type.implementation, SourceInput)]
    written = {top for layer in net.graph.layers if layer not in input_layers for top in layer.tops}
    if written.intersection(net.input_names) or any(layer.device_transform for layer in input_layers):
        return None
    if not can_join_steps(parts):
        return None
    step = make_step(net, parts.optimizer, param.iter_size, keep_update=True, keep_norm=param.clip_gradients >= 0)
    program = net.jit(make_steps(step), stored_as="joint_steps_with_update", solver_param=param)
    plain_program = net.jit(step, stored_as="step_with_update", solver_param=param)
    return JointSteps(net, param.iter_size, program, plain_program, parts.placement)


AnyPath = str | os.PathLike[str]


class Solver:
    """A solver with its nets.

    Args:
        solver_file: a solver prototxt.
        tune: if True, call `caffejax.tune_process` first. This makes training faster and changes settings of the whole
            process.

    Attributes:
        net: the train net.
        test_nets: the test nets, which have the train net's parameters.
        param: the solver's settings.

    Raises:
        CaffejaxError: for invalid settings or nets.
    """

    _type = ""  # the type of the update rule; "" for the type in the file

    @_global_state.write_caffe_log()
    def __init__(self, solver_file: AnyPath, *, tune: bool = False) -> None:
        param = read_solver(as_path(solver_file, "a solver's file"))
        if self._type:
            param.type = self._type
        if param.random_seed >= 0:
            _global_state.set_random_seed(param.random_seed)
        if tune:
            tune_process()
        parts, start_state = build_trainer(
            param,
            source_file(solver_file),
            TrainConfig(
                device=_global_state.get_device(),
                seed=_global_state.next_seed(),
                net_config=_global_state.make_config(),
            ),
            open_loader=lambda net: Loader(net.graph, read_caller_inputs=dict),
        )
        variables = Variables(start_state.params, start_state.state)
        executor = Executor(parts.net, variables, parts.loader)
        parts, self._param, self._first_param = replace(parts, net=executor.net), parts.param, SolverParameter()
        self._first_param.CopyFrom(parts.param)
        net = Net._from_executor(executor)
        test_nets = [_make_test_net(parts, i, variables) for i in range(len(parts.tests.evaluators))]
        remedy = "the solver's prototxt names its test nets"
        self.net: Net
        self.test_nets: list[Net]
        self.__dict__.update(net=net, test_nets=ReadOnlyList(test_nets, "solver.test_nets", remedy))
        for i, test_net in enumerate(test_nets):
            test_net.share_with(net)
            parts.tests.evaluators[i] = NetEvaluator(parts.tests.evaluators[i], test_net, net)
        self._updater = BlobUpdater(parts, start_state, executor)
        self._trainer = Trainer(parts, self._updater, FiniteCheck(parts.net, param.iter_size))

    def __repr__(self) -> str:
        return f"{self.param.type} solver of {self.net!r}, iteration {self.iter} of {self.param.max_iter}"

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _READ_ONLY:
            raise ReadOnlyError(f"solver.{name} cannot be assigned to; {_READ_ONLY[name]}")
        super().__setattr__(name, value)

    @property
    def param(self) -> SolverParameter:
        """The solver's settings.

        Training follows changes of `base_lr`, `max_iter`, `display`, `snapshot`, `average_loss` and `test_interval`,
        and raises an error if another setting was changed.
        """
        return self._param

    @property
    def type(self) -> str:
        """Caffe's name of the update rule."""
        return str(self.param.type)

    @property
    def iter(self) -> int:
        """The number of updates so far."""
        return self._trainer.iteration

    @property
    def max_iter(self) -> int:
        """The number of updates at which `solve` ends."""
        return int(self.param.max_iter)

    @property
    def lr(self) -> float:
        """The learning rate of the next update."""
        return self._trainer.rate

    @_global_state.write_caffe_log()
    def step(self, iterations: int) -> None:
        """Train for `iterations` iterations; test, display and write snapshots at the solver's intervals.

        The call returns when all snapshots are written.

        Raises:
            SolverError: if a loss is not finite.
            WeightsError: if a snapshot could not be written.
        """
        self._check_param()
        self._trainer.step(max(0, as_integer(iterations, "iterations")))  # as in Caffe, a negative number does nothing
        self._trainer.snapshots.wait()

    @_global_state.write_caffe_log()
    def solve(self, resume_file: AnyPath | None = None) -> None:
        """Train to iteration `max_iter`, from the current state or from a snapshot."""
        self._check_param()
        if resume_file is not None:
            as_path(resume_file, "a snapshot")
        self._trainer.solve(resume_file)

    @_global_state.write_caffe_log()
    def snapshot(self) -> None:
        """Write a snapshot: Caffe's two files and a checkpoint.

        Raises:
            WeightsError: if the snapshot cannot be written.
        """
        self._trainer.snapshot()

    @_global_state.write_caffe_log()
    def restore(self, state_file: AnyPath) -> None:
        """Restore the state of a snapshot: a .solverstate, a .solverstate.h5 or a checkpoint.

        Raises:
            WeightsError: if the snapshot cannot be read, or belongs to a different net.
        """
        self._trainer.restore(as_path(state_file, "a snapshot"))

    @_global_state.write_caffe_log()
    def apply_update(self) -> None:
        """Make one update from the current diffs of the parameters, and increase `iter` by one."""
        self._check_param()
        norm = self._updater.apply_update(self._trainer.rate_schedule(self._trainer.iteration))
        if norm is not None:
            clipping = ClippingLog(self.param.clip_gradients)
            clipping.record_norms(norm)
            clipping.write(wait=True)
        self._trainer.iteration += 1

    def share_weights(self, net: Net) -> None:
        """Make `net` use the parameters of this solver's train net."""
        as_instance(net, Net, "net").share_with(self.net)

    def add_callback(self, on_start: Callable[[], object], on_gradients: Callable[[], object]) -> None:
        """Register functions for every iteration: before the first pass, and after the gradients are computed.

        `on_gradients` may change the diffs of the parameters before the update uses them.
        """
        as_callable(on_start, "on_start")
        self._updater.on_gradients.append(as_callable(on_gradients, "on_gradients"))
        self._updater.on_start.append(on_start)

    def _check_param(self) -> None:
        """Raise an error if settings were changed whose changes have no effect."""
        if self._param == self._first_param:
            return
        names = [field.name for field in self._param.DESCRIPTOR.fields if field.name not in _SETTINGS]
        raise_if_any(
            SolverError,
            [
                f"solver.param.{name} was changed after the solver was made, which has no effect; change it in the "
                "solver's prototxt, and make a solver with it"
                for name in names
                if getattr(self._param, name) != getattr(self._first_param, name)
            ],
        )


# settings that are read in each iteration
_SETTINGS = frozenset(("base_lr", "max_iter", "display", "snapshot", "average_loss", "test_interval"))
_READ_ONLY = {  # attributes that cannot be assigned to, with the remedies
    **dict.fromkeys(("net", "test_nets"), "the solver's prototxt names its nets; net.copy_from(file) loads weights"),
    "iter": "solver.restore(file) restores the iteration of a snapshot",
    "lr": "set solver.param.base_lr",
    "param": "assign to a setting, as in solver.param.base_lr = 0.01",
    "max_iter": "set solver.param.max_iter",
    "type": "choose a class, such as caffe.AdamSolver, or set the type in the solver's prototxt",
}


def _make_test_net(parts: TrainerParts, i: int, trained: Variables) -> Net:
    """Return test net `i` with the trained variables, and initial values of what only the test net has."""
    net, loader = parts.tests.evaluators[i].net, parts.tests.evaluators[i].loader
    variables = copy_trained_params(net.graph, parts.tests.net_variables[i], parts.net.graph, trained)
    return Net._from_executor(Executor(net, variables, loader))


class SGDSolver(Solver):
    """Solver with stochastic gradient descent, regardless of the type in its file."""

    _type = "SGD"


class NesterovSolver(SGDSolver):
    """Solver with Nesterov's accelerated gradient, regardless of the type in its file."""

    _type = "Nesterov"


class AdaGradSolver(SGDSolver):
    """Solver with AdaGrad, regardless of the type in its file."""

    _type = "AdaGrad"


class RMSPropSolver(SGDSolver):
    """Solver with RMSProp, regardless of the type in its file."""

    _type = "RMSProp"


class AdaDeltaSolver(SGDSolver):
    """Solver with AdaDelta, regardless of the type in its file."""

    _type = "AdaDelta"


class AdamSolver(SGDSolver):
    """Solver with Adam, regardless of the type in its file."""

    _type = "Adam"


_CLASSES: Mapping[str, type[Solver]] = {
    cls._type: cls for cls in (SGDSolver, NesterovSolver, AdaGradSolver, RMSPropSolver, AdaDeltaSolver, AdamSolver)
}


def get_solver(solver_file: AnyPath) -> Solver:
    """Return a solver of the type that its file names.

    Raises:
        CaffejaxError: for invalid settings or nets.
    """
    return _CLASSES.get(read_solver(as_path(solver_file, "a solver's file")).type, Solver)(solver_file)
