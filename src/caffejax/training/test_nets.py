"""A solver's test nets: when they are due, what they scored, which checkpoint was the best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from ..checkpoints.orbax import Keep
from ..data.loader import Loader
from ..errors import DataError, GraphError, Problem, SolverError, did_you_mean
from ..execution.memory_check import check_room
from ..graph import Param
from ..layers.context import name_key
from ..net import Net, Variables
from ..parallel import all_gather, to_first_device
from ..schema.caffe_pb2 import SolverParameter
from .evaluate import Evaluator, MeshEvaluator, Scores, Stopped, share_trained, sharing_problems, supports_parallel_eval
from .reporting import log, output_lines, precision_lines


class Tests:
    """The test nets of a solver.

    Args:
        param: the solver's settings.
        nets: the test nets.
        train: the net that is trained.
        key: for params that only a test net has, and what is random in tests.
        device: where to run.
        open_loader: what opens a net's data.
        mesh: several devices, for nets that `supports_parallel_eval`.

    Attributes:
        evaluators: one for each net.
        own: for each net, what gives its variables, of which those count that the train net does not have.
        scores: the mean of each output in the last test; of nets with the same output the first counts.

    Raises:
        GraphError: if layers of one name have other blobs than in the train net, or eval_type is "detection" and a
            net has other outputs.
        DataError: if a test net's data cannot be opened.
    """

    def __init__(
        self,
        param: SolverParameter,
        nets: Sequence[Net],
        train: Net,
        key: jax.Array,
        device: jax.Device,
        open_loader: Callable[[Net], Loader],
        mesh: Mesh | None = None,
    ) -> None:
        problems = [
            Problem(message, file=net.graph.file)
            for net in nets
            for message in sharing_problems(net.graph, train.graph)
        ]
        if problems:
            raise GraphError(problems)
        self._param, self._train, self._key = param, train, key
        ap_version = param.ap_version if param.eval_type == "detection" else None

        def evaluator(net: Net) -> Evaluator | MeshEvaluator:
            if mesh is not None and supports_parallel_eval(net):
                return MeshEvaluator(net, mesh, open_loader(net), ap_version)
            return Evaluator(net, device, open_loader(net), ap_version)

        self.evaluators = [evaluator(net) for net in nets]
        self.own = [_own(net, jax.random.fold_in(key, 1 + i), train) for i, net in enumerate(nets)]
        self._tested_ahead: int | None = None
        self.scores: dict[str, float] = {}

    def due(self, iteration: int) -> bool:
        """Return whether a test is due at this iteration, and has not been made ahead."""
        interval = self._param.test_interval
        return bool(interval) and iteration % interval == 0 and self._tested_ahead != iteration

    def run(
        self,
        iteration: int,
        variables: Variables,
        *,
        ahead: bool = False,
        stopping: Callable[[], bool] = lambda: False,
    ) -> list[Scores] | None:
        """Test every net with the train net's variables; log and return the scores.

        Args:
            iteration: for messages and keys.
            variables: the train net's.
            ahead: in place of the test that is due at this iteration; else that is made as well, as in Caffe.
            stopping: asked before each batch; if it says so the test ends, without scores, and the nets go back to
                where they were in their data. None is returned then.
        """
        before = self.get_state()
        try:
            results = [self._run(i, iteration, variables, stopping) for i in range(len(self.evaluators))]
        except Stopped:
            log.info("Test interrupted.")
            try:
                self.set_state(before)
            except DataError as error:  # an iterator of the user's cannot go back
                log.warning("%s", error)
            return None
        self.scores = {name: float(np.mean(v)) for scores in reversed(results) for name, v in scores.outputs.items()}
        self._tested_ahead = iteration if ahead else None
        return results

    def keep(self, last: int | None, best: str | None) -> Keep:
        """Return which checkpoints stay, given how many of the newest and an output to rank by.

        Raises:
            SolverError: if there is no such output.
        """
        nets = [evaluator.net for evaluator in reversed(self.evaluators)]
        outputs = {name: net.graph.losses.get(name, 0) for net in nets for name in net.outputs}
        if best is not None and best not in outputs:
            raise SolverError(f"keep_best: no test net has an output '{best}'{did_you_mean(best, outputs)}")
        return Keep(last, best, lowest=bool(best and outputs[best]))

    def get_state(self) -> list[Any]:
        """Return every net's place in its data, and what its recurrent layers carry over."""
        return [evaluator.get_state() for evaluator in self.evaluators]

    def set_state(self, states: Sequence[Any]) -> None:
        """Go to places that `get_state` gave."""
        for evaluator, state in zip(self.evaluators, states, strict=False):
            evaluator.set_state(state)

    def close(self) -> None:
        """Close the nets' data."""
        for evaluator in self.evaluators:
            evaluator.loader.close()

    def _run(self, i: int, iteration: int, variables: Variables, stopping: Callable[[], bool]) -> Scores:
        evaluator, graph = self.evaluators[i], self.evaluators[i].net.graph
        log.info(f"Iteration {iteration}, Testing net (#{i})")
        if isinstance(evaluator, Evaluator):
            variables = to_first_device(all_gather(variables))
        own = share_trained(graph, self.own[i](), self._train.graph, variables)
        key = jax.random.fold_in(name_key(self._key, f"test {i}"), iteration)
        scores = evaluator(own, self._param.test_iter[i], key, stopping=stopping)
        if self._param.test_compute_loss:
            log.info(f"Test loss: {scores.loss:g}")
        for line in precision_lines(scores.precisions) if self._param.show_per_class_result else ():
            log.info(line)
        for line in output_lines("Test", scores.outputs, graph.losses):
            log.info(line)
        return scores


def _own(net: Net, key: jax.Array, train: Net) -> Callable[[], Variables]:
    """Return a function that gives a net's first variables; numbers hold the place of the train net's arrays."""
    in_their_place = Variables(*train.graph.trees(lambda _: 0.0))  # type: ignore[arg-type]
    check_room(net.graph)
    variables = share_trained(net.graph, _shapes(net), train.graph, in_their_place)
    if any(isinstance(x, jax.ShapeDtypeStruct) for x in jax.tree.leaves(variables)):  # it has some of its own
        variables = share_trained(net.graph, net.init(key), train.graph, in_their_place)
    return lambda: variables


def _shapes(net: Net) -> Variables:
    """Return the shapes of what `net.init` makes, for which nothing is traced."""

    def shape(param: Param) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(param.spec.shape, np.float32)

    params, state = net.graph.trees(shape)
    return Variables(params, state)  # type: ignore[arg-type]
