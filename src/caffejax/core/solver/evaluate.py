"""Test scores of a net: the mean outputs over batches, and the average precision of detections."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from ...base.errors import DataError, GraphError, Problem
from ...base.variables import Params, Variables
from ..data.loader import Loader
from ..graph import Graph, Param
from ..graph.inference_graph import output_and_loss_names
from ..graph.trained_layers import find_source_params, match_layers
from ..layers.position_values import decode_array, encode_array
from ..parallel import (
    DATA,
    all_gather,
    check_shapes,
    join_batches,
    local_shard,
    note_progress,
    put_global,
    replicated_sharding,
)
from ..program.frozen import freeze_passes
from ..program.net import Net
from .average_precision import average_precision
from .index_check import IndexCheck
from .reporting import log


class Scores(NamedTuple):
    """The scores of a test.

    Attributes:
        loss: the mean of the total loss over the batches.
        outputs: for each output blob, its mean over the batches, in the blob's shape. For detections, it is the mean
            average precision, a scalar.
        precisions: for detections, the average precision of each class, `{output: {class: precision}}`. It is empty for
            other outputs.
    """

    loss: float
    outputs: dict[str, np.ndarray]
    precisions: Mapping[str, Precisions] = MappingProxyType({})


class StoppedError(Exception):
    """Raised if the `should_stop` function of a test ended the test early."""


class Evaluator:
    """Tests a net on a mesh of devices. Each test reads the data from where the previous test ended.

    Each row of the mesh processes a different batch. All processes must call it together.

    Args:
        net: the test net. For a mesh of several rows, `supports_parallel_eval(net)` must be true, and
            `net.config.shard` must be `local_shard(mesh)`.
        mesh: the devices to run on.
        loader: an iterator that yields the net's batches. By default, it reads the net's data layers.
        ap_version: the version of average precision if the net's outputs are detections, otherwise None; see
            `average_precision`.
        freeze: whether each test compiles the net for inference, if the net allows it. Compilation takes about as long
            as a few passes.

    Attributes:
        net, mesh, loader, ap_version: the arguments.

    Raises:
        GraphError: if the outputs are not detections and `ap_version` is set, or are detections and it is None.
    """

    def __init__(
        self,
        net: Net,
        mesh: Mesh,
        loader: Loader | None = None,
        ap_version: str | None = None,
        *,
        freeze: bool = False,
    ) -> None:
        check_eval_type(net, ap_version)
        self.ap_version = ap_version
        self.net = net
        self.loader = Loader(net.graph) if loader is None else loader
        self.mesh = mesh
        self._rows = local_shard(mesh)
        self._freeze = freeze
        self._last_state: Params = {}
        self._index_check = IndexCheck(net)
        score = make_score_function(net)
        if self._rows.total > 1:
            self._forward = net.jit(_score_rows(score, mesh))
        else:
            self._forward = net.jit(score, stored_as="scores")

    def __call__(
        self,
        variables: Variables,
        num_batches: int,
        key: jax.Array,
        on_pass: Callable[[int, Scores], object] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Scores:
        """Average the scores of several forward passes.

        Args:
            variables: the net's parameters and state.
            num_batches: the number of passes.
            key: the random key of the test.
            on_pass: a function `on_pass(number, scores)` that is called after each pass, or None. Passes are numbered
                from 0.
            should_stop: a function that is called before each pass. The test ends when it returns True. It must return
                the same value in all processes.

        Raises:
            DataError: if a batch cannot be read or, with several devices, if its shape differs from the net's.
            GraphError: if an output has another shape in each batch, and is not detections.
            StoppedError: if `should_stop` returned True. The position in the data is then undefined.
        """
        results: list[Any] = []
        with closing(self._run_passes(variables, num_batches, key)) as passes:
            for i in range(num_batches):
                if should_stop():
                    raise StoppedError
                results.append(next(passes))
                if on_pass is not None:
                    on_pass(i, Scores(float(results[i][0]), jax.tree.map(np.asarray, results[i][1])))
        return average_scores(results, self.net.graph, self.ap_version)

    def _run_passes(self, variables: Variables, num_batches: int, key: jax.Array) -> Generator[Any, None, None]:
        """Yield `(loss, outputs)` of each batch, in the order of the data."""
        num_rows = self._rows.total
        params, state = self._place(variables)
        state = self._add_recurrent_state(state)
        forward = (self._freeze and self._compile_inference(variables)) or self._forward
        for first in range(0, num_batches, num_rows):
            rows, batch = self._read_batches(min(num_rows, num_batches - first))
            keys = [jax.random.fold_in(key, first + i) for i in range(len(rows))]
            arguments = params, state, batch, keys[0] if num_rows == 1 else self._put_keys(rows, keys)
            self._index_check(*arguments)
            result, state = forward(*arguments)
            self._last_state = state
            if num_rows == 1:
                yield result
                continue
            loss, outputs = jax.tree.map(np.asarray, all_gather(result))
            for row in rows:
                yield loss[row], {name: blob[row] for name, blob in outputs.items()}

    def _place(self, variables: Variables) -> Variables:
        """Return the variables, with arrays that only the test net has copied to all devices of the mesh."""

        def replicate(array: Any) -> jax.Array:
            is_placed = isinstance(array, jax.Array) and len(array.sharding.device_set) == self.mesh.size
            result: jax.Array = array if is_placed else put_global(np.asarray(array), replicated_sharding(self.mesh))
            return result

        return variables if self.mesh.size == 1 else jax.tree.map(replicate, variables)

    def _read_batches(self, n: int) -> tuple[list[int], dict[str, jax.Array]]:
        """Read the next n batches; return the row of the mesh that takes each of them, and the joined batches."""
        if self.mesh.size == 1:  # batches may differ in shape
            return [0], jax.device_put(next(self.loader), self.mesh.devices.item())
        note_progress("reads the data of a test")
        # a batch's number in the data set determines the row of the mesh that takes it
        rows = [(self.loader.next_index + i) % self._rows.total for i in range(n)]
        batches = self.loader.take(n)
        blobs = {name: self.net.graph.blobs[name] for name in self.net.input_names}
        note_progress("runs a test")
        for batch in batches:
            check_shapes(batch, {name: blob.shape for name, blob in blobs.items()})
        batches_by_row = dict(zip((row for row in rows if self._rows.owns(row)), batches, strict=True))
        # for rows without a batch, whose results are dropped
        unused = batches[0] if batches else {name: np.zeros(blob.shape, blob.dtype) for name, blob in blobs.items()}
        local_rows = range(self._rows.first, self._rows.first + self._rows.count)
        return rows, join_batches(self.mesh, [batches_by_row.get(row, unused) for row in local_rows], 0)

    def _put_keys(self, rows: list[int], keys: list[jax.Array]) -> jax.Array:
        key_of = dict(zip(rows, keys, strict=True))
        data = np.stack([jax.random.key_data(key_of.get(row, keys[0])) for row in range(self._rows.total)])
        return jax.random.wrap_key_data(put_global(data, jax.sharding.NamedSharding(self.mesh, _ROW_SPEC)))

    def get_state(self) -> dict[str, Any]:
        """Return the position in the data and the recurrent state after the last batch, as `{layer: JSON values}`.

        The recurrent state is the state that recurrent layers carry from one batch to the next.
        """
        return {**self.loader.get_state(), **encode_recurrent_state(self.net.graph, self._last_state)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `get_state` returned, or raise `DataError` if it is not such a state."""
        self._last_state = decode_recurrent_state(self.net.graph, state)
        self.loader.set_state(state)

    def _compile_inference(self, variables: Variables) -> Callable[..., Any] | None:
        """Return `make_score_function(net)` compiled for inference, or None if the net forbids it."""
        names = output_and_loss_names(self.net.graph)
        passes = freeze_passes(self.net.graph, self.net.config, variables, names)
        if passes is None:
            return None

        def scores(_: Params, state: Params, batch: Any, key: jax.Array) -> Any:
            blobs = passes(batch, key)
            return (passes.loss(blobs), {name: blobs[name] for name in self.net.outputs}), state

        return scores

    def _add_recurrent_state(self, state: Params) -> Params:
        """Return `state` with its recurrent state replaced by the recurrent state from the end of the previous test."""
        merged_state = dict(state)
        for layer in self.net.graph.layers:
            if layer.recurrent_state and layer.key in self._last_state:
                last_blobs = self._last_state[layer.key]
                recurrent_blobs = {p.slot.name: last_blobs[p.slot.name] for p in layer.recurrent_state}
                merged_state[layer.key] = {**state[layer.key], **recurrent_blobs}
        return merged_state


def check_eval_type(net: Net, ap_version: str | None) -> None:
    """Check that a net's outputs are detections if and only if `ap_version` is set.

    Raises:
        GraphError: if they are not. The message names each output.
    """
    find_problems = _find_marked_detections if ap_version is None else find_output_problems
    if problems := find_problems(net.graph, net.outputs):
        raise GraphError(Problem(problem, file=net.graph.file) for problem in problems)


def _find_marked_detections(graph: Graph, outputs: Sequence[str]) -> list[str]:
    return [
        f"output '{name}' of layer '{layer.name}' ({layer.type.name}) has a row for each detection, which has no mean: "
        'for the mean average precision set eval_type: "detection" in the solver, or in `caffejax test` the flag '
        "--eval_type=detection"
        for layer in graph.layers
        for name in layer.tops
        if layer.type.traits.marks_detections and name in outputs
    ]


def average_scores(results: Sequence[Any], graph: Graph, ap_version: str | None) -> Scores:
    """Return the scores of a test, computed from the results of its batches.

    Args:
        results: `(loss, outputs)` of each batch. `outputs` is a dict of arrays by blob name.
        graph: the test net's graph.
        ap_version: the version of average precision, or None if the outputs are not detections.
    """
    if not results:
        return Scores(0.0, {})
    if ap_version is not None:
        losses, outputs = zip(*results, strict=True)
        precisions = compute_average_precisions(outputs, ap_version)
        means = {name: compute_mean_precision(class_precisions) for name, class_precisions in precisions.items()}
        return Scores(float(np.mean(losses)), means, precisions)
    _check_shapes([outputs for _, outputs in results], graph)
    loss, outputs = jax.tree.map(lambda *xs: np.mean(np.stack(xs), axis=0), *results)
    return Scores(float(loss), outputs)


def make_score_function(net: Net) -> Callable[..., Any]:
    """Return a function that runs a pass, `compute_scores(params, state, batch, key)`.

    It returns `((loss, outputs), state)`.
    """

    def compute_scores(params: Params, state: Params, batch: Any, key: jax.Array) -> Any:
        total, outputs = net.loss(params, state, batch, key, required=False)
        return (total, outputs.blobs), outputs.state

    return compute_scores


def _check_shapes(outputs: Sequence[Mapping[str, Any]], graph: Graph) -> None:
    changing_names = [name for name in outputs[0] if len({o[name].shape for o in outputs}) > 1]
    if changing_names:
        message = "output '{}' changes its shape from batch to batch, so it has no mean; a Silence layer can hide it"
        raise GraphError(Problem(message.format(name), file=graph.file) for name in changing_names)


def copy_trained_params(test_graph: Graph, initial: Variables, train_graph: Graph, trained: Variables) -> Variables:
    """Return a test net's variables: trained arrays for layers that the train net also has, else initial arrays.

    Args:
        test_graph: the test net.
        initial: the initial variables of the test net.
        train_graph: the train net.
        trained: the variables of the train net.
    """
    sources = find_source_params(test_graph, train_graph)

    def choose_value(param: Param) -> Any:
        if (source := sources.get(param.slot)) is None:  # recurrent state is not shared, either
            return (initial.params if param.spec.learnable else initial.state)[param.slot.layer][param.slot.name]
        tree = trained.params if source.spec.learnable else trained.state
        value = tree[source.owner.layer][source.owner.name]
        is_reshaped = np.shape(value) not in ((), param.spec.shape)  # with share_mode PERMISSIVE; () is a placeholder
        return value.reshape(param.spec.shape) if is_reshaped else value

    return Variables(*test_graph.map_variables(choose_value))


def find_shape_mismatches(test_graph: Graph, train_graph: Graph) -> Sequence[str]:
    """Return a message for each layer whose parameters have different shapes in the test net and the train net."""
    matches = match_layers(test_graph, train_graph)
    problems = []
    for layer in test_graph.layers:
        if (source := matches.get(layer.key)) is None:
            continue
        test_shapes, train_shapes = ([p.spec.shape for p in side.params] for side in (layer, source))
        if test_shapes != train_shapes:
            problems.append(
                f"layer '{layer.name}' has blobs {test_shapes} in the test net, but {train_shapes} in the train net"
            )
    channels = [_count_image_channels(graph) for graph in (test_graph, train_graph)]
    if problems and None not in channels and channels[0] != channels[1]:
        problems[0] += (
            f"; the data layers read images with {channels[0]} and {channels[1]} channels: convert both databases with "
            "-gray, or both without it; if they contain compressed images, transform_param.force_gray converts them"
        )
    return problems


def _count_image_channels(graph: Graph) -> int | None:
    """Return the number of channels of the images that the first data layer reads, or None without such a layer."""
    shapes = (graph.blobs[layer.tops[0]].shape for layer in graph.layers if layer.source_spec and layer.tops)
    return next((shape[1] for shape in shapes if len(shape) == 4), None)


_ROW_LENGTH = 5  # the length of the rows that DetectionEvaluate outputs

Precisions = dict[int, float]
"""The average precision of each class."""


def find_output_problems(graph: Graph, outputs: Sequence[str]) -> list[str]:
    """Return a message for each output of a test net whose shape is not (..., 5), the shape of detections."""
    shapes = {name: graph.blobs[name].shape for name in outputs}
    return [
        f"output '{name}' has shape {shape}, but eval_type \"detection\" takes rows of {_ROW_LENGTH} numbers, such as "
        "the output of DetectionEvaluate; a Silence layer can hide it"
        for name, shape in shapes.items()
        if len(shape) < 2 or shape[-1] != _ROW_LENGTH
    ]


def compute_average_precisions(batches: Sequence[Mapping[str, Any]], version: str) -> dict[str, Precisions]:
    """Return the average precision of each class that occurs, `{output: {class: precision}}`.

    Args:
        batches: the outputs of each batch, of shape (..., 5), as the layer DetectionEvaluate returns them. A row is
            either [-1, class, number of objects, -1, -1] for a class, or [image, class, score, true positive, false
            positive] for a detection. Rows of a negative class are padding.
        version: the version of average precision; see `average_precision`.
    """
    rows = {
        name: np.concatenate([np.asarray(batch[name]).reshape(-1, _ROW_LENGTH) for batch in batches])
        for name in batches[0]
    }
    return {name: _compute_precisions(output_rows, version) for name, output_rows in rows.items()}


def compute_mean_precision(precisions: Precisions) -> np.ndarray:
    """Return the mean average precision (mAP) over the classes as float32; undetected classes count as 0."""
    return np.array(np.mean(list(precisions.values())) if precisions else 0, np.float32)


def _compute_precisions(rows: np.ndarray, version: str) -> Precisions:
    counts, detections = rows[rows[:, 0] < 0], rows[rows[:, 0] >= 0]
    precisions: Precisions = {}
    for label in np.unique(counts[counts[:, 1] >= 0, 1]).astype(int).tolist():
        class_rows = detections[detections[:, 1] == label, 2:]
        if not class_rows[:, 1:].any():
            log.warning("Missing true_pos for label: %d", label)
        num_positives = int(counts[counts[:, 1] == label, 2].sum())
        precisions[label] = average_precision(class_rows, num_positives, version)  # type: ignore[arg-type]
    return precisions


_RECORD_KEY = "carried"


def encode_recurrent_state(graph: Graph, state: Params) -> dict[str, Any]:
    """Return the state that recurrent layers carry between passes as JSON values, by layer.

    The value of an array has its shape and its float32 numbers in base64.
    """
    return {
        layer.key: {_RECORD_KEY: [encode_array(state[layer.key][p.slot.name]) for p in layer.recurrent_state]}
        for layer in graph.layers
        if layer.recurrent_state and layer.key in state
    }


def decode_recurrent_state(graph: Graph, record: Mapping[str, Any]) -> Params:
    """Return the recurrent state that `encode_recurrent_state` encoded, as `{layer: {name: array}}`.

    A layer is omitted, so that its state starts at zero, if its stored state does not have the shapes that the net
    needs. This happens if the batch size has changed.

    Raises:
        DataError: if the record is damaged.
    """
    state: Params = {}
    for layer in graph.layers:
        stored = record.get(layer.key)
        if not (layer.recurrent_state and isinstance(stored, Mapping) and _RECORD_KEY in stored):
            continue
        try:
            arrays = [decode_array(value) for value in stored[_RECORD_KEY]]
        except (TypeError, ValueError, KeyError) as error:
            raise DataError(layer.make_problem(f"its recurrent state is damaged in the snapshot: {error}")) from error
        if [a.shape for a in arrays] == [param.spec.shape for param in layer.recurrent_state]:
            state[layer.key] = {p.slot.name: jnp.asarray(a) for p, a in zip(layer.recurrent_state, arrays, strict=True)}
        else:
            log.warning(
                "the recurrent state of layer '%s' has shapes %s in the snapshot, but %s in the net; it starts at 0",
                layer.name,
                [a.shape for a in arrays],
                [param.spec.shape for param in layer.recurrent_state],
            )
    return state


_ROW_SPEC, _REPLICATED_SPEC = PartitionSpec(DATA), PartitionSpec()


def supports_parallel_eval(net: Net) -> bool:
    """Return whether several devices can test a net at the same time, each with a different batch.

    This requires that the net has no layers on the host, no recurrent state, and no indices that are checked on the
    host.
    """
    has_recurrent_state = any(layer.recurrent_state for layer in net.graph.layers)
    return not (net.graph.has_host_layers or has_recurrent_state or IndexCheck(net).is_needed)


def _score_rows(score: Callable[..., Any], mesh: Mesh) -> Callable[..., Any]:
    """Return `score` for batches and keys with a first axis, the rows of a mesh; its results have this axis, too."""

    def score_row(params: Params, state: Params, batch: Any, key: jax.Array) -> Any:
        result, _ = score(params, state, {name: x[0] for name, x in batch.items()}, key[0])
        return jax.tree.map(lambda x: x[None], result)

    specs = (_REPLICATED_SPEC, _REPLICATED_SPEC, _ROW_SPEC, _ROW_SPEC)
    run = jax.shard_map(score_row, mesh=mesh, in_specs=specs, out_specs=_ROW_SPEC, axis_names={DATA}, check_vma=False)
    return lambda params, state, batch, key: (run(params, state, batch, key), state)
