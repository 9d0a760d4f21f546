"""Test nets of a solver: when they are tested, their scores, and the rule for the best checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from ...base.errors import DataError, GraphError, Problem, SolverError, did_you_mean, raise_if_any
from ...base.variables import Variables
from ..checkpoints.orbax import KeepRule, make_preservation_policy
from ..data.loader import Loader
from ..layers.context import fold_in_name
from ..parallel.global_arrays import all_gather
from ..parallel.mesh import first_local_device, one_device_mesh
from ..program.memory_check import check_layers_fit
from ..program.net import Net
from ..schema.caffe_pb2 import SolverParameter
from .evaluate import (
    Evaluator,
    StoppedError,
    copy_trained_params,
    find_shape_mismatches,
    supports_parallel_eval,
)
from .reporting import Scores, format_class_lines, format_output_lines, log


class PeriodicEvaluation:
    """The test nets of a solver.

    Args:
        param: the solver's settings.
        nets: the test nets.
        train: the train net.
        key: the random key of tests, and of the initial values of parameters that only a test net has.
        mesh: the devices that train. Nets for which `supports_parallel_eval` is true are tested on all of them, others
            on the first.
        open_loader: a function that returns the loader of a net, which yields its batches.

    Attributes:
        evaluators: the evaluator of each net.
        net_variables: the initial parameters and state of each net. Arrays that the train net also has are replaced by
            the number 0.0.
        scores: the mean of each output in the last test, by name. If several nets have an output of the same name, the
            score is from the first of these nets.

    Raises:
        GraphError: if the shapes of a layer's blobs differ from the shapes in the train net, or if the outputs
            of a net do not fit eval_type; see `evaluate.check_eval_type`.
        DataError: if a test net's data cannot be opened.
    """

    def __init__(
        self,
        param: SolverParameter,
        nets: Sequence[Net],
        train_net: Net,
        key: jax.Array,
        mesh: Mesh,
        open_loader: Callable[[Net], Loader],
    ) -> None:
        mismatches = ((net.graph.file, find_shape_mismatches(net.graph, train_net.graph)) for net in nets)
        raise_if_any(GraphError, [Problem(message, file) for file, messages in mismatches for message in messages])
        self._param, self._train_net, self._key = param, train_net, key
        first_device = one_device_mesh(first_local_device(mesh))
        scoring = param.eval_type, param.ap_version
        self.evaluators = [
            Evaluator(net, mesh if supports_parallel_eval(net) else first_device, open_loader(net), *scoring)
            for net in nets
        ]
        self.net_variables = [
            _make_initial_variables(net, jax.random.fold_in(key, 1 + i), train_net) for i, net in enumerate(nets)
        ]
        self._early_test_iteration: int | None = None  # the iteration of a test that replaces the test that is due
        self.scores: dict[str, float] = {}

    def is_due(self, iteration: int) -> bool:
        """Return whether a test is due at an iteration, and no test with `is_early` has been run at this iteration."""
        interval, offset = self._param.test_interval, self._param.test_offset
        return bool(interval) and (iteration - offset) % interval == 0 and self._early_test_iteration != iteration

    def run(
        self,
        iteration: int,
        variables: Variables,
        *,
        is_early: bool = False,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> list[Scores] | None:
        """Test all nets with the train net's variables, and log and return the scores.

        Args:
            iteration: the number of updates so far, for messages and random keys.
            variables: the train net's variables.
            is_early: whether this test replaces the test that is due at this iteration, so that `is_due` returns False.
            should_stop: a function that is called before each batch. If it returns True, the test ends and the nets
                return to their previous positions in the data.

        Returns:
            The scores of each net, or None if `should_stop` returned True.
        """
        previous_state = self.get_state()
        try:
            results = [self._run_net(i, iteration, variables, should_stop) for i in range(len(self.evaluators))]
        except StoppedError:
            log.info("Test interrupted.")
            try:
                self.set_state(previous_state)
            except DataError as error:  # a user's iterator cannot go back
                log.warning("%s", error)
            return None
        self.scores = {name: float(np.mean(v)) for scores in reversed(results) for name, v in scores.outputs.items()}
        self._early_test_iteration = iteration if is_early else None
        return results

    def accuracy(self, results: Sequence[Scores]) -> float | None:
        """Return the mean of the first test net's first output that is not a loss, or None if all are losses."""
        loss_weights = self.evaluators[0].net.graph.loss_weights
        return next((float(np.mean(v)) for name, v in results[0].outputs.items() if not loss_weights.get(name)), None)

    def keep_rule(self, last: int | None, best: str | None) -> KeepRule:
        """Return the rule for which checkpoints are kept.

        Args:
            last: the number of newest checkpoints to keep, or None to keep all checkpoints.
            best: the name of an output, or None. The checkpoint with the best value of this output is also kept. The
                best value of a loss is the lowest value, and the best value of another output is the highest value.

        Raises:
            SolverError: if no test net has the output `best`.
        """
        nets = [evaluator.net for evaluator in reversed(self.evaluators)]
        outputs = {name: net.graph.loss_weights.get(name, 0) for net in nets for name in net.outputs}
        if best is not None and best not in outputs:
            raise SolverError(f"keep_best: no test net has an output '{best}'{did_you_mean(best, outputs)}")
        return partial(make_preservation_policy, last, best, bool(best and outputs[best]))

    def get_state(self) -> list[Any]:
        """Return the position in the data and the recurrent state of each net, as JSON values."""
        return [evaluator.get_state() for evaluator in self.evaluators]

    def set_state(self, states: Sequence[Any]) -> None:
        """Restore the states that `get_state` returned."""
        for evaluator, state in zip(self.evaluators, states, strict=False):
            evaluator.set_state(state)

    def close(self) -> None:
        """Close the loaders of all nets."""
        for evaluator in self.evaluators:
            evaluator.loader.close()

    def _run_net(self, i: int, iteration: int, variables: Variables, should_stop: Callable[[], bool]) -> Scores:
        evaluator, graph = self.evaluators[i], self.evaluators[i].net.graph
        log.info(f"Iteration {iteration}, Testing net (#{i})")
        if evaluator.mesh.size == 1:
            gathered = all_gather(variables)
            variables = jax.tree.map(lambda x: x.addressable_data(0) if isinstance(x, jax.Array) else x, gathered)
        test_variables = copy_trained_params(graph, self.net_variables[i], self._train_net.graph, variables)
        key = jax.random.fold_in(fold_in_name(self._key, f"test {i}"), iteration)
        scores = evaluator(test_variables, self._param.test_iter[i], key, should_stop=should_stop)
        if self._param.test_compute_loss:
            log.info(f"Test loss: {scores.loss:g}")
        for line in format_class_lines(scores, self._param.show_per_class_result):
            log.info(line)
        for line in format_output_lines("Test", scores.outputs, graph.loss_weights):
            log.info(line)
        return scores


def _make_initial_variables(net: Net, key: jax.Array, train_net: Net) -> Variables:
    placeholders = Variables(*train_net.graph.map_variables(lambda _: 0.0))  # type: ignore[arg-type]
    check_layers_fit(net.graph)
    shapes: Any = net.graph.map_variables(lambda param: jax.ShapeDtypeStruct(param.spec.shape, np.float32))
    variables = copy_trained_params(net.graph, Variables(*shapes), train_net.graph, placeholders)
    if any(isinstance(x, jax.ShapeDtypeStruct) for x in jax.tree.leaves(variables)):  # the train net lacks an array
        variables = copy_trained_params(net.graph, net.init(key), train_net.graph, placeholders)
    return variables
