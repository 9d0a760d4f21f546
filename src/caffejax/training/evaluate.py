"""Test scores: the mean of a net's outputs over some batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

from ..data.loader import Loader
from ..debugging import IndexCheck
from ..errors import GraphError, Problem
from ..graph import Graph
from ..inference.policy import freeze_passes, scored_blobs
from ..net import Net, Params, Variables
from .carried import decode, encode
from .detection import Precisions, average_precisions, mean_precision, output_problems
from .kept import net_function


class Scores(NamedTuple):
    """Means over the batches.

    Attributes:
        loss: the mean of the total loss.
        outputs: the mean of each output blob, in the blob's shape; of detections the mean average precision.
        precisions: of detections, the average precision of each class, by output.
    """

    loss: float
    outputs: dict[str, np.ndarray]
    precisions: Mapping[str, Precisions] = MappingProxyType({})


class Stopped(Exception):  # noqa: N818  it is no error
    """A test was stopped before its end."""


class Evaluator:
    """A test net with its own place in the data, which goes on from one test to the next.

    Args:
        net: the test net.
        device: where to run.
        loader: where its batches come from; its data layers unless given.
        ap_version: how the average precision of detections is computed, if the net's outputs are that; see
            `average_precision`.
        freeze: freeze the net for each test, where it can be. That takes as long as some passes.

    Raises:
        GraphError: if outputs are to be detections and are not.
    """

    def __init__(
        self,
        net: Net,
        device: jax.Device,
        loader: Loader | None = None,
        ap_version: str | None = None,
        *,
        freeze: bool = False,
    ) -> None:
        check_outputs(net, ap_version)
        self._ap_version = ap_version
        self.net = net
        self.loader = Loader(net.graph) if loader is None else loader
        self.device = device
        self._freeze = freeze
        self._last: Params = {}
        self._check_indices = IndexCheck(net)
        self._forward = net.jit(output_scores(net), kept_as=net_function("scores", net))

    def __call__(
        self,
        variables: Variables,
        batches: int,
        key: jax.Array,
        each: Callable[[int, Scores], object] | None = None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> Scores:
        """Average over `batches` forward passes; `each(number, scores)` is called after every one.

        Raises:
            Stopped: if `stopping` says so before one of them; nothing is known of how far the data was read.
        """
        results: list[Any] = []
        state = self._continued(variables.state)
        forward = (self._freeze and self._frozen(variables)) or self._forward
        for i in range(batches):
            if stopping():
                raise Stopped
            batch = jax.device_put(next(self.loader), self.device)
            given = variables.params, state, batch, jax.random.fold_in(key, i)
            self._check_indices(*given)
            result, state = forward(*given)
            results.append(result)
            if each is not None:
                each(i, Scores(float(result[0]), jax.tree.map(np.asarray, result[1])))
        self._last = state
        return mean_scores(results, self.net.graph, self._ap_version)

    def get_state(self) -> dict[str, Any]:
        """Return the place in the data, and what recurrent layers carry over from the last batch, by layer."""
        return {**self.loader.get_state(), **encode(self.net.graph, self._last)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to a place that `get_state` gave; raises `DataError` if it is none."""
        self._last = decode(self.net.graph, state)
        self.loader.set_state(state)

    def _frozen(self, variables: Variables) -> Callable[..., Any] | None:
        """Return what `output_scores` makes, by the net frozen, if it can be."""
        passes = freeze_passes(self.net.graph, self.net.run, variables, scored_blobs(self.net.graph))
        if passes is None:
            return None

        def scores(_: Params, state: Params, batch: Any, key: jax.Array) -> Any:
            blobs = passes(batch, key)
            return (passes.loss(blobs), {name: blobs[name] for name in self.net.outputs}), state

        return scores

    def _continued(self, state: Params) -> Params:
        """Return the state with what recurrent layers carry over from the last batch."""
        continued = dict(state)
        for layer in self.net.graph.layers:
            if layer.carried and layer.key in self._last:
                last = self._last[layer.key]
                continued[layer.key] = {**state[layer.key], **{p.slot.index: last[p.slot.index] for p in layer.carried}}
        return continued


def check_outputs(net: Net, ap_version: str | None) -> None:
    """Raise `GraphError` if a net's outputs are to be detections, as an `ap_version` says, and are not."""
    if ap_version is not None and (problems := output_problems(net.graph, net.outputs)):
        raise GraphError(Problem(problem, file=net.graph.file) for problem in problems)


def mean_scores(results: Sequence[Any], graph: Graph, ap_version: str | None) -> Scores:
    """Return the scores of batches: of each the loss and the outputs."""
    if not results:
        return Scores(0.0, {})
    if ap_version is not None:
        losses, outputs = zip(*results, strict=True)
        precisions = average_precisions(outputs, ap_version)
        means = {name: mean_precision(of_output) for name, of_output in precisions.items()}
        return Scores(float(np.mean(losses)), means, precisions)
    _check_shapes([outputs for _, outputs in results], graph)
    loss, outputs = jax.tree.map(lambda *xs: np.mean(np.stack(xs), axis=0), *results)
    return Scores(float(loss), outputs)


def output_scores(net: Net) -> Callable[..., Any]:
    """Make `scores(params, state, batch, key)`, which gives the loss and the output blobs, and the new state."""

    def scores(params: Params, state: Params, batch: Any, key: jax.Array) -> Any:
        total, outputs = net.loss(params, state, batch, key)
        return (total, outputs.blobs), outputs.state

    return scores


def _check_shapes(outputs: Sequence[Mapping[str, Any]], graph: Graph) -> None:
    changing = [name for name in outputs[0] if len({o[name].shape for o in outputs}) > 1]
    if changing:
        message = "output '{}' has another shape from batch to batch, so it has no mean; a Silence layer can hide it"
        raise GraphError(Problem(message.format(name), file=graph.file) for name in changing)


def share_trained(test: Graph, own: Variables, train: Graph, trained: Variables) -> Variables:
    """Return a test net's variables: those of the train net's layers of the same names, else its own."""
    return Variables(_shared(test, own.params, train, trained.params), _shared(test, own.state, train, trained.state))


def _shared(test: Graph, own: Params, train: Graph, trained: Params) -> Params:
    by_name = {layer.name: layer for layer in reversed(train.layers)}

    def pick(key: str, index: int, value: Any) -> Any:
        source = by_name.get(test.layer(key).name)
        if source is None or index >= len(source.params):  # what a net carries is its own
            return value
        owner = source.params[index].owner
        return trained[owner.layer][owner.index]

    return {key: {i: pick(key, i, value) for i, value in blobs.items()} for key, blobs in own.items()}


def sharing_problems(test: Graph, train: Graph) -> Sequence[str]:
    """Return what is wrong with layers whose params differ between test and train net."""
    by_name = {layer.name: layer for layer in train.layers}
    found = []
    for layer in test.layers:
        if (source := by_name.get(layer.name)) is None:
            continue
        here, there = ([p.spec.shape for p in side.params] for side in (layer, source))
        if here != there:
            found.append(f"layer '{layer.name}' has blobs {here} in the test net, {there} in the train net")
    return found
