"""Solvers as Caffe's Python interface shows them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from ..data.loader import Loader
from ..graph import AUTOMATIC
from ..net import Net as PureNet
from ..net import Variables
from ..schema import read_solver, source_file
from ..schema.caffe_pb2 import SolverParameter
from ..solvers import Solver as PureSolver
from ..solvers.evaluate import Scores, share_trained
from ..solvers.state import Report, TrainState, make_update, pass_key
from . import _modes
from ._net import Net
from ._running import Running

AnyPath = str | os.PathLike[str]


class _Core(PureSolver):
    """The solver proper, on nets whose numbers others see and change between and within its steps.

    Params and running statistics are where the train net has them; `train_state` is made of that and the rest.

    Attributes:
        running, running_tests: the train net and the test nets at work.
        on_start, on_gradients: called before an iteration's first pass, and before its update.
    """

    running: Running

    def __init__(self, param: SolverParameter, file: AnyPath | None, tune: bool) -> None:
        self.on_start: list[Callable[[], object]] = []
        self.on_gradients: list[Callable[[], object]] = []
        self._fed_by_hand: dict[int, Running] = {}
        super().__init__(param, file=file, device=_modes.device(), seed=_modes.next_seed(), tune=tune)
        self._fed_by_hand[id(self.net)] = self.running
        self.running_tests = []
        for evaluator, own in zip(self.tests.evaluators, self.tests.own, strict=True):
            variables = share_trained(evaluator.net.graph, own, self.net.graph, self.variables)
            running = Running(evaluator.net, variables, evaluator.loader)
            self._fed_by_hand[id(evaluator.net)] = running
            self.running_tests.append(running)
        self._apply = make_update(self._optimizer, keep_update=True)

    @property
    def train_state(self) -> TrainState:
        """Params and running statistics as they are now, and the rest."""
        variables = self.running.variables
        return self._rest.replace(params=variables.params, state=variables.state)

    @train_state.setter
    def train_state(self, new: TrainState) -> None:
        self._rest = new.replace(params={}, state={})  # type: ignore[attr-defined]
        variables = Variables(new.params, new.state)
        if hasattr(self, "running"):
            self.running.variables = variables
        else:
            self.running = Running(self.net, variables, self.loader)

    def test(self) -> list[Scores]:
        """Tests every test net with what its blobs hold now."""
        self._follow()
        self.tests.own = [running.variables for running in self.running_tests]
        return super().test()

    def apply_update(self) -> None:
        """Turns the diffs of the train net's params into updates, which the diffs then are, and subtracts them."""
        self._follow()
        before = self._rest.replace(params=self.running.params)
        after, update = self._apply(self.running.param_diffs, before, self.schedule(self.iteration))
        self.running.params = after.params
        assert update is not None
        self.running.param_diffs = self._last_update = update
        self._rest = after.replace(params={})  # type: ignore[attr-defined]

    def _open_loader(self, net: PureNet) -> Loader:
        return Loader(net, by_hand=lambda: self._fed_by_hand[id(net)].feed_by_hand())

    def _update(self) -> Report:
        for call in self.on_start:
            call()
        self._follow()
        self.running.clear_param_diffs()
        losses = [self._pass(i) for i in range(self.param.iter_size)]
        loss = jnp.mean(jnp.stack(losses)) if len(losses) > 1 else losses[0]
        for call in self.on_gradients:
            call()
        self.apply_update()
        self._note(loss)
        self._finite_check.step(self.iteration, self._rest, {}, self._rest, loss)
        return Report(loss, self.running.values(n for n in self.net.outputs if n != AUTOMATIC))

    def _pass(self, number: int) -> jax.Array:
        first, *others = self.running.forward_backward((self._rest.key, self._rest.iteration, number))
        if self._debug_info is not None and self._due(self.param.display):
            batch = self.running.values(self.net.fed)
            for line in self._debug_info.lines(*self.variables, batch, pass_key(self._rest, number)):
                _modes.log(line)
        return sum(others, start=first)

    def _final_display(self) -> None:
        self._note(sum(self.running.forward(0, len(self.net.graph.layers) - 1), start=jnp.zeros(())))
        self._log_loss()

    def _follow(self) -> None:
        """Goes to the device of the moment."""
        device = _modes.device()
        if device is not self.device:
            self.device = device
            self._rest = jax.device_put(self._rest, device)
            for evaluator in self.tests.evaluators:
                evaluator.device = device
            for running in (self.running, *self.running_tests):
                running.follow()


class Solver:
    """A solver with its nets.

    Args:
        solver_file: a solver prototxt.
        tune: call `caffejax.tune_process`, which makes nets faster and concerns the whole process.

    Attributes:
        net: the train net.
        test_nets: the test nets; they have the train net's params.
        param: the settings.

    Raises:
        CaffejaxError: for settings or nets that cannot work.
    """

    _type = ""  # the type in the file unless this says another

    def __init__(self, solver_file: AnyPath, *, tune: bool = True) -> None:
        param = read_solver(solver_file)
        if self._type:
            param.type = self._type
        if param.random_seed >= 0:
            _modes.set_random_seed(param.random_seed)
        self._core = _Core(param, source_file(solver_file), tune)
        self.net = Net._of(self._core.running)
        self.test_nets = [Net._of(running) for running in self._core.running_tests]
        for net in self.test_nets:
            net.share_with(self.net)

    @property
    def param(self) -> SolverParameter:
        """The settings."""
        return self._core.param

    @property
    def type(self) -> str:
        """Caffe's name of the update rule."""
        return str(self.param.type)

    @property
    def iter(self) -> int:
        """How many updates there have been."""
        return self._core.iteration

    @property
    def max_iter(self) -> int:
        """At how many updates `solve` ends."""
        return int(self.param.max_iter)

    @property
    def lr(self) -> float:
        """The learning rate of the next update."""
        return self._core.rate

    def step(self, iterations: int) -> None:
        """Trains for some iterations, testing, displaying and snapshotting when due; then snapshots are complete.

        Raises:
            SolverError: if a loss is found not to be finite.
            WeightsError: if a snapshot could not be written.
        """
        self._core.step(iterations)
        self._core.snapshots.wait()

    def solve(self, resume_file: AnyPath | None = None) -> None:
        """Trains to `max_iter`, from now or from a snapshot."""
        self._core.solve(resume_file)

    def snapshot(self) -> None:
        """Writes a snapshot: Caffe's two files and a checkpoint.

        Raises:
            WeightsError: if it cannot be written.
        """
        self._core.snapshot()

    def restore(self, state_file: AnyPath) -> None:
        """Goes back to a snapshot: a .solverstate[.h5] or a checkpoint.

        Raises:
            WeightsError: if it cannot be read, or is of another net.
        """
        self._core.restore(state_file)

    def apply_update(self) -> None:
        """One update from what stands in the params' diffs; `iter` advances."""
        self._core.apply_update()
        self._core.iteration += 1

    def share_weights(self, net: Net) -> None:
        """Has another net share the params of this solver's."""
        net.share_with(self.net)

    def add_callback(self, on_start: Callable[[], object], on_gradients: Callable[[], object]) -> None:
        """Has functions called in every iteration: before its first pass, and when the gradients are there.

        `on_gradients` may change the params' diffs: the update is made of what it leaves.
        """
        self._core.on_start.append(on_start)
        self._core.on_gradients.append(on_gradients)


class SGDSolver(Solver):
    """Stochastic gradient descent, whatever type the file names; so with the others below."""

    _type = "SGD"


class NesterovSolver(Solver):
    """Nesterov's accelerated gradient."""

    _type = "Nesterov"


class AdaGradSolver(Solver):
    """AdaGrad."""

    _type = "AdaGrad"


class RMSPropSolver(Solver):
    """RMSProp."""

    _type = "RMSProp"


class AdaDeltaSolver(Solver):
    """AdaDelta."""

    _type = "AdaDelta"


class AdamSolver(Solver):
    """Adam."""

    _type = "Adam"


_CLASSES: Mapping[str, type[Solver]] = {
    kind._type: kind for kind in (SGDSolver, NesterovSolver, AdaGradSolver, RMSPropSolver, AdaDeltaSolver, AdamSolver)
}


def get_solver(solver_file: AnyPath) -> Solver:
    """A solver of the type that its file names.

    Raises:
        CaffejaxError: for settings or nets that cannot work.
    """
    return _CLASSES.get(read_solver(solver_file).type, Solver)(solver_file)
