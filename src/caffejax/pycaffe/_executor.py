"""A pycaffe net with its arrays, and forward and backward passes over ranges of its layers."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax

from ..base.variables import Variables
from ..core.checkpoints.load_save import load_weights
from ..core.data.loader import Loader
from ..core.graph import Graph
from ..core.graph.caffe_log import log_creation
from ..core.graph.reshape import reshape_graph
from ..core.layers.bucketed_random import fold_in
from ..core.layers.context import Phase, hash_name
from ..core.ops.program_cache import ProgramCache
from ..core.program import net as pure
from ..core.program.backward import has_backward
from ..core.program.memory_check import check_layers_fit
from . import _global_state
from ._batch_reader import BatchReader, make_filled_tops_inputs
from ._blob_store import Memories
from ._layer_range import BackwardRange, Key, LayerRange, LayerRanges
from ._passes import BackwardPass, FrozenForward, History, Pass, make_pass

Callback = Callable[[int], object]

_BYTES_PER_LAYER = 8 * 2**10  # of a graph that is kept for its shapes, without its programs


class Executor:
    """A net with its arrays (`Memories`), and methods that run forward and backward passes over ranges of its layers.

    A pass returns the net's outputs and the blobs that users have read repeatedly. When a user reads a different blob,
    the same pass runs a second time and returns all blobs.

    Args:
        net: the net. Layers that fill their tops become inputs; see `make_filled_tops_inputs`.
        variables: initial parameters and state.
        loader: the loader of the net's data layers.

    Attributes:
        net: the net, with layers that fill their tops as inputs.
        memories: blobs, parameters and state.
        batch_reader: the reader of data layers and MemoryData layers.
        callbacks: functions that are called with a layer's index, by event such as "before_forward". If there are any,
            layers run one at a time.
        logs_shapes: whether the log gets a line when layers are compiled for further shapes; default: False.
    """

    def __init__(self, net: pure.Net, variables: Variables, loader: Loader) -> None:
        graph = make_filled_tops_inputs(net.graph)
        self.net = net = net if graph is net.graph else net.with_graph(graph)
        self.memories = Memories(graph, variables, _global_state.get_device())
        self.batch_reader = BatchReader(loader, self.memories, graph.layers)
        self.callbacks: dict[str, list[Callback]] = {
            f"{when}_{direction}": [] for when in ("before", "after") for direction in ("forward", "backward")
        }
        self.logs_shapes = False
        self._compiled_shapes: dict[tuple[int, int], set[Any]] = {}  # by the first and last layer
        self._frozen: dict[tuple[int, int], FrozenForward] = {}  # by the first and last layer
        self._caller_inputs = net.graph.caller_inputs
        self._program_caches: defaultdict[Any, ProgramCache] = defaultdict(ProgramCache)
        self._ranges_by_shapes = ProgramCache()
        shapes = {name: net.graph.blobs[name].shape for name in self._caller_inputs}
        self._set_ranges(self._make_ranges(_make_shape_key(net.graph, range(len(net.graph.layers)), shapes), net.graph))
        self._stale_layers: set[int] = set()  # layers that were not reshaped since their bottoms' shapes changed

    @property
    def graph(self) -> Graph:
        """The net's graph for the current shapes of the inputs."""
        return self._ranges.graph

    def reshape(self, first: int = 0, last: int | None = None) -> None:
        """Reshape layers `first` to `last` for the current shapes of their inputs.

        The other layers keep their shapes, and are reshaped before they run.

        Raises:
            GraphError: if one of these layers does not support the shapes, or does not fit into memory.
        """
        last = len(self.graph.layers) - 1 if last is None else last
        old_graph, layers = self.graph, range(first, last + 1)
        inputs = {name: self.memories.blobs[root].shape for name, root in self._ranges.get(first, last).inputs}
        if self._stale_layers.isdisjoint(layers) and all(
            old_graph.blobs[name].shape == s for name, s in inputs.items()
        ):
            return
        key = _make_shape_key(old_graph, layers, inputs)
        if (entry := self._ranges_by_shapes.find(key)) is not None:
            self._set_ranges(entry.program)
        else:
            new_graph = reshape_graph(old_graph, inputs, layers)
            check_layers_fit(new_graph)
            self._set_ranges(self._make_ranges(key, new_graph))
        self.memories.reshape(self.graph, layers)
        self._stale_layers = {
            i
            for i, layer in enumerate(old_graph.layers)
            if i not in layers
            and (
                i in self._stale_layers
                or any(old_graph.blobs[b].shape != self.graph.blobs[b].shape for b in layer.bottoms)
            )
        }

    def move_to_current_device(self) -> None:
        """Move the net's memories to the process's current device."""
        if (device := _global_state.get_device()) is not self.memories.device:
            self.memories.move(device)
            self.forget_passes()

    def forget_passes(self) -> None:
        """Forget all forward passes. The next backward pass uses the current values of blobs and parameters."""
        self._history.forget()

    def forward(self, first: int, last: int, key: Key | None = None, *, is_test: bool = False) -> list[jax.Array]:
        """Run layers `first` to `last` on the current blobs.

        The layers run in ranges (`LayerRange`). The result is the weighted loss of each range.

        Args:
            first, last: indices of the first and the last layer.
            key: the random key of the pass; default: a new key.
            is_test: whether this is one of many passes in a test of a solver, which computes no more than the outputs.

        Raises:
            GraphError: if a MemoryData layer has no arrays.
        """
        self.memories.bind_lists()
        self.batch_reader.check(self.graph.layers[first : last + 1])
        self.move_to_current_device()
        self.reshape(first, last)
        key = key or _global_state.next_key()
        losses = []
        for layers in self._ranges.split(first, last, by_layer=self.has_callbacks):
            self._call_callbacks("before_forward", layers.first)
            if self.has_callbacks:  # which may change the lists of blobs
                self.memories.bind_lists()
            losses.append(self._forward(layers, key, is_test))
            self._call_callbacks("after_forward", layers.last)
        return losses

    def backward(
        self, high: int, low: int, diffs: Iterable[str] = (), deconv: bool = False, *, adds_passes: bool = False
    ) -> None:
        """Run layers `high` down to `low` backward.

        Args:
            high, low: indices of the last and the first layer.
            diffs: the names of blobs whose diffs the pass must return.
            deconv: if True, run a deconvolution pass; see `Net.deconv`.
            adds_passes: see `BackwardPass`.

        Raises:
            GraphError: if a gradient does not exist.
        """
        self.graph.check_backward(slice(low, high + 1))
        self.memories.bind_lists()
        self.move_to_current_device()
        output_names = frozenset(diffs)
        if not self.has_callbacks:
            for forward_pass, layers in self._group_by_pass(high, low, deconv):
                self._backward(forward_pass, layers, output_names, adds_passes)
            return
        for i in range(high, low - 1, -1):
            self._call_callbacks("before_backward", i)
            self.memories.bind_lists()
            # after the callback, which may write to blobs
            for forward_pass, layers in self._group_by_pass(i, i, deconv):
                self._backward(forward_pass, layers, output_names, adds_passes)
            self._call_callbacks("after_backward", i)

    def forward_backward(self, key: Key | None = None) -> list[jax.Array]:
        """Run all layers forward and backward, in one compiled call where possible.

        Returns:
            The weighted loss of each range of layers (`LayerRange`); the sum is the net's loss.

        Raises:
            GraphError: if a MemoryData layer has no arrays.
        """
        last = len(self.graph.layers) - 1
        self.memories.bind_lists()
        self.batch_reader.check(self.graph.layers)
        self.move_to_current_device()
        self.reshape()
        key = key or _global_state.next_key()
        indices = [i for i, layer in enumerate(self.graph.layers) if has_backward(layer)]
        if self.graph.has_varying_rows or self.has_callbacks or not indices:
            losses = self.forward(0, last, key)
            self.backward(last, 0, adds_passes=True)
            return losses
        self.graph.check_backward()
        full_range = self._ranges.get(0, last)
        layers = full_range.backward_range(indices[0], indices[-1])
        forward_pass = self._prepare_pass(full_range, key)
        backward_pass = BackwardPass(forward_pass, layers, self.memories)
        blobs, diffs = self._blobs_to_return(forward_pass), self._diffs_to_return(layers, frozenset())
        outputs, output_diffs = full_range.forward_backward(
            forward_pass.inputs, backward_pass.seeds, layers, blobs, diffs
        )
        forward_pass.finish(outputs, self.memories)
        self.batch_reader.record_user_tops(full_range.layers)
        self._history.add(forward_pass)
        backward_pass.finish(output_diffs, self.memories)
        return [outputs.loss]

    @property
    def has_callbacks(self) -> bool:
        """True if there are callbacks, so that layers run one at a time."""
        return any(self.callbacks.values())

    def _make_ranges(self, key: Any, graph: Graph) -> LayerRanges:
        ranges = LayerRanges(graph, self._program_caches, key)
        self._ranges_by_shapes.add(key, ranges, len(graph.layers) * _BYTES_PER_LAYER)
        return ranges

    def _set_ranges(self, ranges: LayerRanges) -> None:
        self._ranges = ranges
        self._history = History(self._ranges, self.memories)

    def _prepare_pass(self, layers: LayerRange, key: Key, frozen: FrozenForward | None = None) -> Pass:
        """Read the next batch of each data layer, and return a new pass, which has not run yet."""
        self.batch_reader.write_user_tops(layers.layers)
        self.batch_reader.read(layers.input_layers, key)
        new_pass = make_pass(layers, self.memories, key, frozen)
        if self.logs_shapes and not layers.on_host:
            self._log_shapes(new_pass)
        return new_pass

    def _forward(self, layers: LayerRange, key: Key, is_test: bool) -> jax.Array:
        frozen = None if is_test else self._get_frozen_forward(layers)
        forward_pass = self._prepare_pass(layers, key, frozen)
        outputs = forward_pass.run(self._blobs_to_return(forward_pass), returns_small_blobs=not is_test)
        forward_pass.finish(outputs, self.memories)
        self.batch_reader.record_user_tops(layers.layers)
        self._history.add(forward_pass)
        return outputs.loss

    def _get_frozen_forward(self, layers: LayerRange) -> FrozenForward:
        if (bounds := (layers.first, layers.last)) not in self._frozen:
            self._frozen[bounds] = FrozenForward(self.net, layers)
        return self._frozen[bounds]

    def _log_shapes(self, new_pass: Pass) -> None:
        """Log that layers are compiled for the shapes of a pass, unless they are the layers' first shapes."""
        layers, blobs = new_pass.layer_range, new_pass.inputs.blobs
        shapes = tuple((name, blobs[name].shape) for name in self.graph.blobs if name in blobs)
        all_shapes = self._compiled_shapes.setdefault((layers.first, layers.last), set())
        if shapes in all_shapes:
            return
        all_shapes.add(shapes)
        if len(all_shapes) > 1:
            is_whole = len(layers.layers) == len(self.graph.layers)
            names = "" if is_whole else f"layers {layers.layers[0].name} to {layers.layers[-1].name} "
            text = ", ".join(f"{name} {shape}" for name, shape in shapes)
            _global_state.log(f"Compiling {names}for {text} ({len(all_shapes)} shapes so far)")

    def _blobs_to_return(self, forward_pass: Pass) -> tuple[str, ...]:
        layers, inputs = forward_pass.layer_range, forward_pass.inputs.blobs
        blobs, shapes = self.memories.blobs, self.graph.blobs
        layers_to_last = self.graph.layers[: layers.last + 1]
        rows_vary = any(layer.type.on_host for layer in layers_to_last) or self._ranges.padding_is_read
        if rows_vary or any(inputs[name].shape != shapes[name].shape for name in layers.reads):
            return layers.writes  # shapes are known only after the pass
        required = {*layers.leaves, *(name for _, name in layers.indices)}
        # users also read inputs that layers overwrite in place
        required |= set(self._caller_inputs).intersection(layers.writes)
        return tuple(
            name for name in layers.writes if blobs[name].data_memory.update_read_prediction() or name in required
        )

    def _group_by_pass(self, high: int, low: int, deconv: bool) -> Iterator[tuple[Pass, BackwardRange]]:
        """Split the backward pass from layer `high` down to `low` into ranges that each belong to one forward pass.

        Yield each of these forward passes with its range.
        """
        indices = [i for i in range(high, low - 1, -1) if has_backward(self.graph.layers[i])]
        passes = {i: self._history.find_pass_to_differentiate(i) for i in indices}
        while indices:
            top = bottom = indices.pop(0)
            while indices and passes[indices[0]] is passes[top]:
                bottom = indices.pop(0)
            yield passes[top], passes[top].layer_range.backward_range(bottom, top, deconv)

    def _backward(
        self, forward_pass: Pass, layers: BackwardRange, output_names: frozenset[str], adds_passes: bool
    ) -> None:
        backward_pass = BackwardPass(forward_pass, layers, self.memories, adds_passes=adds_passes)
        backward_pass.finish(backward_pass.run(self._diffs_to_return(layers, output_names)), self.memories)

    def _diffs_to_return(self, layers: BackwardRange, output_names: frozenset[str]) -> tuple[str, ...]:
        if self.graph.has_varying_rows:
            return layers.writes
        required, blobs = {*layers.leaves, *output_names}, self.memories.blobs
        return tuple(
            name for name in layers.writes if blobs[name].diff_memory.update_read_prediction() or name in required
        )

    def _call_callbacks(self, event: str, layer: int) -> None:
        for callback in self.callbacks[event]:
            callback(layer)


def _make_shape_key(graph: Graph, layers: range, inputs: Mapping[str, tuple[int, ...]]) -> Any:
    """Return the cache key of the graph that `reshape_graph` returns for these arguments."""
    computed_blobs = {top for layer in graph.layers[layers.start : layers.stop] for top in layer.tops}
    return layers, *(
        inputs.get(name, None if name in computed_blobs else blob.shape) for name, blob in graph.blobs.items()
    )


@_global_state.write_caffe_log()
def open_executor(
    network_file: str | os.PathLike[str],
    phase: Phase,
    level: int,
    stages: tuple[str, ...],
    weights: str | os.PathLike[str] | None = None,
    strict: bool | None = None,
) -> tuple[Executor, Loader]:
    """Build a net with the process's random seed; return its executor and its loader, which the caller must close.

    Args:
        network_file: the prototxt.
        phase, level, stages: the net's state.
        weights: a .caffemodel or .caffemodel.h5 to start from; default: initial parameters from the fillers.
        strict: see `load_weights`.

    Raises:
        WeightsError: if `weights` cannot be loaded; see `load_weights`.
    """
    config = replace(_global_state.make_config(), seed=_global_state.next_seed())
    net = pure.Net(network_file, phase, level=level, stages=stages, config=config)
    log_creation(net.graph)
    key, number = _global_state.next_key()
    loader = Loader(net.graph, read_caller_inputs=dict)
    init_key = fold_in(key, hash_name(f"net {number}"))
    variables = (
        net.init(init_key) if weights is None else load_weights(weights, net.graph, net.initializer(init_key), strict)
    )
    return Executor(net, variables, loader), loader
