"""Test scores: means of a net's outputs over batches, on one device or a mesh, and average precisions of detections."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from ..data.loader import Loader
from ..debugging import IndexCheck
from ..debugging.average_precision import average_precision
from ..errors import DataError, GraphError, Problem
from ..graph import Graph
from ..inference.policy import freeze_passes, scored_blobs
from ..net import Net, Params, Variables
from ..parallel import DATA, all_gather, check_shapes, join_batches, local_share, place, replicated
from .program_keys import net_function
from .reporting import log


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
        return {**self.loader.get_state(), **encode_carried(self.net.graph, self._last)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to a place that `get_state` gave; raises `DataError` if it is none."""
        self._last = decode_carried(self.net.graph, state)
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


_WIDTH = 5  # of the rows of DetectionEvaluate

Precisions = dict[int, float]
"""The average precision of each class."""


def output_problems(graph: Graph, outputs: Sequence[str]) -> list[str]:
    """Return what is wrong with the outputs of a test net that is to be scored by detection."""
    shapes = {name: graph.blobs[name].shape for name in outputs}
    return [
        f"output '{name}' has shape {shape}, but eval_type \"detection\" takes rows of {_WIDTH} numbers, as "
        "DetectionEvaluate gives them; a Silence layer can hide it"
        for name, shape in shapes.items()
        if len(shape) < 2 or shape[-1] != _WIDTH
    ]


def average_precisions(batches: Sequence[Mapping[str, Any]], version: str) -> dict[str, Precisions]:
    """Return the average precision of each class that occurs, by output and by the class's number.

    Args:
        batches: the outputs of each batch. Rows are [-1, class, number of objects, -1, -1] or, for a detection,
            [image, class, score, true positive, false positive]; those of a negative class are padding.
        version: how it is computed, see `average_precision`.
    """
    rows = {
        name: np.concatenate([np.asarray(batch[name]).reshape(-1, _WIDTH) for batch in batches]) for name in batches[0]
    }
    return {name: _by_class(of_output, version) for name, of_output in rows.items()}


def mean_precision(precisions: Precisions) -> np.ndarray:
    """Return the mean over the classes: mAP. A class that is never found counts as 0."""
    return np.array(np.mean(list(precisions.values())) if precisions else 0, np.float32)


def _by_class(rows: np.ndarray, version: str) -> Precisions:
    counts, detections = rows[rows[:, 0] < 0], rows[rows[:, 0] >= 0]
    found: Precisions = {}
    for label in np.unique(counts[counts[:, 1] >= 0, 1]).astype(int).tolist():
        of_class = detections[detections[:, 1] == label, 2:]
        if not of_class[:, 1:].any():
            log.warning("Missing true_pos for label: %d", label)
        positives = int(counts[counts[:, 1] == label, 2].sum())
        found[label] = average_precision(of_class, positives, version)  # type: ignore[arg-type]
    return found


_FIELD = "carried"


def encode_carried(graph: Graph, state: Params) -> dict[str, Any]:
    """Return the carried arrays of a state by layer: of each its shape, and its numbers as float32 in base64."""
    return {
        layer.key: {_FIELD: [_encode(state[layer.key][p.slot.index]) for p in layer.carried]}
        for layer in graph.layers
        if layer.carried and layer.key in state
    }


def decode_carried(graph: Graph, record: Mapping[str, Any]) -> Params:
    """Return a state that holds only the arrays that `encode_carried` was given.

    What was carried from batches of another size is left out, so that it starts at zero again.

    Raises:
        DataError: if it is not of that form.
    """
    found: Params = {}
    for layer in graph.layers:
        stored = record.get(layer.key)
        if not (layer.carried and isinstance(stored, Mapping) and _FIELD in stored):
            continue
        try:
            arrays = [_decode(one) for one in stored[_FIELD]]
        except (TypeError, ValueError, KeyError) as error:
            raise DataError(layer.problem(f"what it carries is damaged in the snapshot: {error}")) from error
        if [a.shape for a in arrays] == [param.spec.shape for param in layer.carried]:
            found[layer.key] = {p.slot.index: jnp.asarray(a) for p, a in zip(layer.carried, arrays, strict=True)}
        else:
            log.warning("layer '%s' of the test net carried other shapes, and starts at zero again", layer.name)
    return found


def _encode(array: Any) -> dict[str, Any]:
    values = np.ascontiguousarray(array, "<f4")
    return {"shape": list(values.shape), "float32": base64.b64encode(values.tobytes()).decode()}


def _decode(stored: Any) -> np.ndarray:
    data, shape = base64.b64decode(stored["float32"], validate=True), [int(n) for n in stored["shape"]]
    if min(shape, default=0) < 0 or len(data) != 4 * prod(shape):
        raise ValueError(f"shape {shape} for {len(data)} bytes")
    return np.frombuffer(data, "<f4").reshape(shape).astype(np.float32)


_EACH, _ALL = PartitionSpec(DATA), PartitionSpec()


def supports_parallel_eval(net: Net) -> bool:
    """Return whether a net's batches can be tested in any order, compiled, with no look at indices."""
    carries = any(layer.carried for layer in net.graph.layers)
    return not (net.graph.has_host_layers or carries or IndexCheck(net).needed)


class MeshEvaluator:
    """A test net with its own place in the data, as `Evaluator`, on the devices of a mesh.

    Args:
        net: the test net, one that `supports_parallel_eval`; its reading has the mesh's share.
        mesh: the devices; each row takes a batch.
        loader: where its batches come from.
        ap_version: as for `Evaluator`.

    Raises:
        GraphError: if outputs are to be detections and are not.
    """

    def __init__(self, net: Net, mesh: Mesh, loader: Loader, ap_version: str | None = None) -> None:
        self.net, self.loader = net, loader
        self._mesh, self._share, self._ap_version = mesh, local_share(mesh), ap_version
        check_outputs(net, ap_version)
        self._shapes = {name: net.graph.blobs[name].shape for name in net.input_names}
        scores = output_scores(net)

        def of_one(params: Params, state: Params, batch: Any, key: jax.Array) -> Any:
            found, _ = scores(params, state, {name: x[0] for name, x in batch.items()}, key[0])
            return jax.tree.map(lambda x: x[None], found)

        specs = (_ALL, _ALL, _EACH, _EACH)
        run = jax.shard_map(of_one, mesh=mesh, in_specs=specs, out_specs=_EACH, axis_names={DATA}, check_vma=False)
        self._forward = net.jit(run)

    def __call__(
        self,
        variables: Variables,
        batches: int,
        key: jax.Array,
        each: Callable[[int, Scores], object] | None = None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> Scores:
        """Average over `batches` forward passes; all processes must call it together. `each` as for `Evaluator`.

        So is `stopping`, which must say the same in all processes.

        Raises:
            DataError: if a batch cannot be read, or is of another shape than the net's.
            Stopped: if it is stopped.
        """
        params, state = self._everywhere(variables)
        results: list[Any] = []
        for result in self._rounds(params, state, batches, key):
            if stopping():
                raise Stopped
            if each is not None:
                each(len(results), Scores(float(result[0]), result[1]))
            results.append(result)
        return mean_scores(results, self.net.graph, self._ap_version)

    def get_state(self) -> dict[str, Any]:
        """Return the place in the data, by layer."""
        return self.loader.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to a place that `get_state` gave; raises `DataError` if it is none."""
        self.loader.set_state(state)

    def _rounds(self, params: Params, state: Params, batches: int, key: jax.Array) -> Iterator[Any]:
        """Yield the loss and outputs of each batch, in order."""
        n, done = self._share.of, 0
        spare: dict[str, np.ndarray] | None = None
        while done < batches:
            count = min(n, batches - done)
            # the device that takes a batch is settled by its number in the whole of the data
            rows = [(self.loader.number + i) % n for i in range(count)]
            own = self.loader.take(count)
            for batch in own:
                check_shapes(batch, self._shapes)
            by_row = dict(zip((row for row in rows if self._share.owns(row)), own, strict=True))
            spare = own[0] if own else spare or self._zeros()  # for devices that no batch is left for
            here = range(self._share.first, self._share.first + self._share.count)
            placed = join_batches(self._mesh, [by_row.get(row, spare) for row in here], 0)
            keys = [jax.random.fold_in(key, done + rows.index(row)) if row in rows else key for row in range(n)]
            found = all_gather(self._forward(params, state, placed, self._keys(keys)))
            loss, outputs = jax.tree.map(np.asarray, found)
            for row in rows:
                yield loss[row], {name: blob[row] for name, blob in outputs.items()}
            done += count

    def _keys(self, keys: list[jax.Array]) -> jax.Array:
        """Place a key for each row of the mesh; every process has them all."""
        data = np.stack([np.asarray(jax.random.key_data(key)) for key in keys])
        sharding = jax.sharding.NamedSharding(self._mesh, _EACH)
        return jax.random.wrap_key_data(place(data, sharding))

    def _zeros(self) -> dict[str, np.ndarray]:
        blobs = self.net.graph.blobs
        return {name: np.zeros(blobs[name].shape, blobs[name].dtype) for name in self.net.input_names}

    def _everywhere(self, variables: Variables) -> Variables:
        """Place what only the test net has on all devices; what is trained lies there."""

        def placed(array: Any) -> jax.Array:
            lies_there = isinstance(array, jax.Array) and len(array.sharding.device_set) == self._mesh.size
            found: jax.Array = array if lies_there else place(np.asarray(array), replicated(self._mesh))
            return found

        return jax.tree.map(placed, variables)
