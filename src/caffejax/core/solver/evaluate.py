"""Test scores of a net: the mean outputs over batches, and the average precision of detections."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from ...base.config import EVAL_TYPES
from ...base.errors import DataError, GraphError, raise_if_any
from ...base.variables import Params, Variables
from ..data.loader import Loader
from ..graph import Graph, Param
from ..graph.inference_graph import output_and_loss_names
from ..graph.trained_layers import find_source_params, match_layers
from ..layers.position_values import decode_array, encode_array
from ..parallel.coordination import note_progress
from ..parallel.global_arrays import all_gather, check_shapes, join_batches, put_global, replicated_sharding
from ..parallel.mesh import DATA, local_shard
from ..program.frozen import freeze_passes
from ..program.net import Net
from .detection_scores import check_eval_type, score_detections
from .index_check import IndexCheck
from .reporting import Scores, log


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
        eval_type: how the outputs are scored, one of `EVAL_TYPES`; see `Scores`.
        ap_version: the version of the average precision of detections; see `average_precision`.
        freeze: whether each test compiles the net for inference, if the net allows it. Compilation takes about as long
            as a few passes.

    Attributes:
        net, mesh, loader, eval_type, ap_version: the arguments.

    Raises:
        GraphError: if the outputs do not fit `eval_type`.
    """

    def __init__(
        self,
        net: Net,
        mesh: Mesh,
        loader: Loader | None = None,
        eval_type: str = EVAL_TYPES[0],
        ap_version: str = "Integral",
        *,
        freeze: bool = False,
    ) -> None:
        check_eval_type(net, eval_type)
        self.eval_type, self.ap_version = eval_type, ap_version
        self.net = net
        self.loader = Loader(net.graph) if loader is None else loader
        self.mesh = mesh
        self._rows = local_shard(mesh)
        self._freeze = freeze
        self._last_state: Params = {}
        self._index_check = IndexCheck(net)

        # the key of a pass is computed in the program: outside, folding took as long as a very small net's pass
        def score(params: Params, state: Params, batch: Any, key: jax.Array, number: Any) -> Any:
            loss, outputs = net.loss(params, state, batch, jax.random.fold_in(key, number), required=False)
            return (loss, outputs.blobs), outputs.state

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
        return self._average(results)

    def _average(self, results: Sequence[Any]) -> Scores:
        if not results:
            return Scores(0.0, {})
        if self.eval_type != EVAL_TYPES[0]:
            return score_detections(results, self.net.outputs, self.eval_type, self.ap_version)
        shapes = {name: {outputs[name].shape for _, outputs in results} for name in results[0][1]}
        message = "output '{}' changes its shape from batch to batch, so it has no mean; a Silence layer can hide it"
        changing_names = [name for name, shapes_of_output in shapes.items() if len(shapes_of_output) > 1]
        raise_if_any(GraphError, map(message.format, changing_names), self.net.graph.file)
        loss, means = jax.tree.map(lambda *xs: np.mean(np.stack(xs), axis=0), *results)
        return Scores(float(loss), means)

    def _run_passes(self, variables: Variables, num_batches: int, key: jax.Array) -> Generator[Any, None, None]:
        num_rows = self._rows.total
        params, state = self._place(variables)
        state = self._add_recurrent_state(state)
        if self.mesh.size == 1:
            key = jax.device_put(key, self.mesh.devices.item())
        else:
            key = put_global(key, replicated_sharding(self.mesh))
        forward = (self._freeze and self._compile_inference(variables)) or self._forward
        for first in range(0, num_batches, num_rows):
            rows, batch = self._read_batches(min(num_rows, num_batches - first))
            number = np.uint32(first) if num_rows == 1 else self._number_passes(rows, first)
            if self._index_check.is_needed:
                self._index_check(params, state, batch, jax.random.fold_in(key, number))
            result, state = forward(params, state, batch, key, number)
            self._last_state = state
            if num_rows == 1:
                yield result
                continue
            loss, outputs = jax.tree.map(np.asarray, all_gather(result))
            for row in rows:
                yield loss[row], {name: blob[row] for name, blob in outputs.items()}

    def _place(self, variables: Variables) -> Variables:
        """Return the variables, with arrays that only the test net has copied to all devices of the mesh."""

        def replicate(array: Any) -> Any:
            is_placed = isinstance(array, jax.Array) and len(array.sharding.device_set) == self.mesh.size
            return array if is_placed else put_global(np.asarray(array), replicated_sharding(self.mesh))

        return variables if self.mesh.size == 1 else jax.tree.map(replicate, variables)

    def _read_batches(self, n: int) -> tuple[list[int], dict[str, Any]]:
        """Read the next n batches; return the row of the mesh that takes each of them, and the joined batches."""
        if self.mesh.size == 1:  # batches may differ in shape; the key has the device, so they stay NumPy arrays
            return [0], next(self.loader)
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

    def _number_passes(self, rows: list[int], first: int) -> Any:
        numbers = np.full(self._rows.total, first, np.uint32)
        numbers[rows] = first + np.arange(len(rows))
        return put_global(numbers, jax.sharding.NamedSharding(self.mesh, _ROW_SPEC))

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
        names = output_and_loss_names(self.net.graph)
        passes = freeze_passes(self.net.graph, self.net.config, variables, names)
        if passes is None:
            return None

        def scores(_: Params, state: Params, batch: Any, key: jax.Array, number: Any) -> Any:
            blobs = passes(batch, jax.random.fold_in(key, number))
            return (passes.loss(blobs), {name: blobs[name] for name in self.net.outputs}), state

        return scores

    def _add_recurrent_state(self, state: Params) -> Params:
        merged_state = dict(state)
        for layer in self.net.graph.layers:
            if layer.recurrent_state and layer.key in self._last_state:
                last_blobs = self._last_state[layer.key]
                recurrent_blobs = {p.slot.name: last_blobs[p.slot.name] for p in layer.recurrent_state}
                merged_state[layer.key] = {**state[layer.key], **recurrent_blobs}
        return merged_state


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
    shapes = (graph.blobs[layer.tops[0]].shape for layer in graph.layers if layer.source_spec and layer.tops)
    return next((shape[1] for shape in shapes if len(shape) == 4), None)


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
    """Return `score` for batches and numbers with a first axis, the rows of a mesh, which its results have, too."""

    def score_row(params: Params, state: Params, batch: Any, key: jax.Array, number: jax.Array) -> Any:
        result, _ = score(params, state, {name: x[0] for name, x in batch.items()}, key, number[0])
        return jax.tree.map(lambda x: x[None], result)

    specs = (_REPLICATED_SPEC, _REPLICATED_SPEC, _ROW_SPEC, _REPLICATED_SPEC, _ROW_SPEC)
    run = jax.shard_map(score_row, mesh=mesh, in_specs=specs, out_specs=_ROW_SPEC, axis_names={DATA}, check_vma=False)
    return lambda params, state, *inputs: (run(params, state, *inputs), state)
