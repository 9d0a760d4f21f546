"""Compiled forward and backward passes over ranges of a net's layers.

A backward pass can start from any diffs and stop at any layer. It skips the layers that Caffe skips. Its compiled
function includes the forward pass, so a backward pass computes the forward pass a second time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp

from ..core.graph import UNNAMED_TOP, Graph, Layer, Slot
from ..core.graph.index_ranges import find_index_blob, find_indexing_layers
from ..core.layers.context import Context
from ..core.layers.row_padding import strip_padding
from ..core.ops import compilation
from ..core.ops.program_cache import ProgramCache
from ..core.program.backward import (
    Diffs,
    Pullback,
    find_differentiated_bottoms,
    has_backward,
    run_backward,
    run_with_pullback,
)
from ..core.program.interpreter import PassInputs, PassOutputs, Values, compute_part, run_schedule
from ..core.program.schedule import (
    LayerSchedule,
    Part,
    fuse,
    make_part,
    make_unfused_schedule,
    split_at_host_layers,
    split_by_layer,
)
from ..cpu.kernels.executable_cache import ProgramCacheConfig

_SMALL_SIZE = 2**28  # elements

Key = tuple[jax.Array, *tuple[Any, ...]]  # a PRNG key, and numbers that are folded into it in this order


# the diff of the bottom in a deconvolution pass, by the type of the layer, or None for the gradient
_DECONV_RULES: Mapping[str, Callable[[Context, jax.Array], jax.Array | None]] = {
    "ReLU": lambda ctx, dy: jnp.maximum(dy, 0),  # regardless of the slope and the bottom
    "LRN": lambda ctx, dy: dy if ctx.param.deconv_ignore else None,
}


def _make_deconv_pullback(layer: Layer, pullback: Pullback) -> Pullback:
    """Return the pullback of a layer for a deconvolution pass: by its rule, or else the gradient."""
    rule = _DECONV_RULES.get(layer.type.name)
    if rule is None:
        return pullback

    def deconv_pullback(top_diffs: Sequence[Any]) -> Diffs:
        (bottom,) = find_differentiated_bottoms(layer)
        diff = rule(layer.context, *top_diffs)
        return pullback(top_diffs) if diff is None else Diffs({bottom: diff}, {})

    return deconv_pullback


class BackwardRange:
    """A range of layers in a backward pass.

    Attributes:
        low, high: indices of the first and the last layer.
        deconv: True for a deconvolution pass; see `Net.deconv`.
        reads: the blobs whose diffs the pass starts from.
        writes: the blobs whose diffs the pass computes.
        leaves: the blobs in `writes` that are computed by earlier layers.
        differentiated_keys: the keys of the layers that compute diffs.
    """

    def __init__(self, graph: Graph, low: int, high: int, deconv: bool = False) -> None:
        self.low, self.high, self.deconv = low, high, deconv
        reads: dict[str, None] = {}
        writes: dict[str, None] = {}
        layers = graph.layers[low : high + 1]
        layers_with_backward = [layer for layer in layers if has_backward(layer)]
        for layer in reversed(layers_with_backward):
            reads.update(dict.fromkeys(t for t in layer.tops if t not in writes and t != UNNAMED_TOP))
            writes.update(dict.fromkeys(find_differentiated_bottoms(layer)))
        self.differentiated_keys = frozenset(layer.key for layer in layers_with_backward)
        tops = {top for layer in layers for top in layer.tops}
        self.reads, self.writes = tuple(reads), tuple(writes)
        self.leaves = tuple(name for name in writes if name not in tops)

    def __repr__(self) -> str:
        # a part of the key of compiled programs on disk, so it must state everything that the program depends on
        return f"BackwardRange({self.low}, {self.high}, deconv={self.deconv})"


class LayerRange:
    """Consecutive layers of a graph that run together.

    Args:
        graph: the graph.
        first, last: indices of its first and last layer. A host layer is always a separate range, and so is a layer
            whose tops have padded rows (see `find_padded_tops`) if other layers read them.
        program_caches: the programs of all ranges of a net, for all shapes, by range and function.
        shapes_key: a key of the graph's shapes.

    Attributes:
        on_host: True if the range is a host layer, which is not compiled.
        input_layers: the Input and data layers of the range, whose tops are stored in the blobs before the pass.
        reads: the input blobs: tops of Input and data layers, and blobs from earlier layers.
        writes: the blobs that the layers compute. Tops of Splits are not included, because they are the bottoms of the
            Splits under different names; see `Graph.split_roots`. Tops that are params are not included, either.
        params, state: the slots that the layers use, as trees with the structure of `Net.init`'s result.
        indices: the layers that select values by index, each with the name of the blob that contains the indices.
    """

    def __init__(
        self, graph: Graph, first: int, last: int, program_caches: defaultdict[Any, ProgramCache], shapes_key: Any
    ) -> None:
        self.graph, self.first, self.last = graph, first, last
        self._program_caches, self._shapes_key = program_caches, shapes_key
        self.layers = graph.layers[first : last + 1]
        self.on_host = any(layer.type.on_host for layer in self.layers)
        self._padded_tops = frozenset(find_padded_tops(self.layers))
        self.input_layers = tuple(layer for layer in self.layers if layer.type.is_input)
        self._roots = graph.split_roots
        self._part = self._make_part(last)
        self.reads = tuple(dict.fromkeys(map(self.find_root, self._part.reads)))
        self.writes = tuple(sorted(self._part.writes - self._roots.keys() - graph.param_tops.keys()))
        self.params, self.state = (self._part.select(tree) for tree in graph.map_variables(lambda param: param.slot))
        self.indices = tuple(
            (layer, self.find_root(find_index_blob(layer))) for layer in find_indexing_layers(self.layers)
        )
        self._backward_ranges: dict[tuple[int, int, bool], BackwardRange] = {}
        self._compiled: dict[Any, Any] = {}

    @cached_property
    def leaves(self) -> frozenset[str]:
        """The names of the blobs that the range computes for later layers, or as outputs of the net."""
        later_part = make_part(self.graph.layers[self.last + 1 :])
        return frozenset(map(self.find_root, (*later_part.reads, *self.graph.outputs))).intersection(self.writes)

    @cached_property
    def inputs(self) -> tuple[tuple[str, str], ...]:
        """The blobs whose shapes users set: tops of the range's Input layers, and blobs that earlier layers compute.

        Each item is a pair of a name and its root (see `find_root`). Tops of data layers are not included. In nets
        whose number of rows varies by batch, computed blobs are not included either.
        """
        computed_blobs = make_part(layer for layer in self.graph.layers[: self.first] if not layer.type.is_input).writes
        tops = {top for layer in self.layers for top in layer.tops}
        inputs = [name for name in self.graph.caller_inputs if name in tops or name in self._part.reads]
        earlier = () if self.graph.has_varying_rows else sorted(computed_blobs.intersection(self._part.reads))
        return tuple((name, self.find_root(name)) for name in (*inputs, *earlier))

    def find_root(self, name: str) -> str:
        """Return the name of the Split's bottom if `name` is a Split's top, else `name`."""
        return self._roots.get(name, name)

    def forward(
        self, inputs: PassInputs, output_names: tuple[str, ...], *, returns_small_blobs: bool = True
    ) -> PassOutputs:
        """Run the layers forward; return at least the blobs in `output_names`, without padded rows.

        Args:
            inputs: the inputs of the pass.
            output_names: the blobs to return.
            returns_small_blobs: whether to return all blobs if they are small, so that the range is not compiled again
                for other `output_names`.
        """
        if returns_small_blobs:
            output_names = self._return_all_if_small(self.writes, output_names)
        outputs: PassOutputs = self._compile("forward", self._forward, output_names)(inputs)
        return outputs._replace(values=self.strip_padding(outputs.values))

    def strip_padding(self, values: Values) -> Values:
        """Return the values with only the valid rows of padded tops."""
        if self._padded_tops.isdisjoint(values):
            return values
        return {name: strip_padding(value) if name in self._padded_tops else value for name, value in values.items()}

    def backward(
        self,
        inputs: PassInputs,
        seeds: Values,
        backward_layers: BackwardRange,
        output_names: tuple[str, ...],
        host_tops: Mapping[str, jax.Array],
        start_diffs: Mapping[Slot, jax.Array] = MappingProxyType({}),
    ) -> Diffs:
        """Run `backward_layers` backward; return the diffs of parameters, and at least of the blobs `output_names`.

        Args:
            inputs: the inputs of the forward pass.
            seeds: the blobs' diffs to start from, by name.
            backward_layers: the range of layers to run backward.
            output_names: the blobs whose diffs to return.
            host_tops: the tops that a host layer computed in the forward pass; empty for other layers.
            start_diffs: see `run_with_pullback`; empty if the range is compiled.
        """
        output_names = self._return_all_if_small(backward_layers.writes, output_names)
        run = self._compile("backward", self._backward, backward_layers, output_names)
        diffs: Diffs = run(inputs, seeds, host_tops, start_diffs) if start_diffs else run(inputs, seeds, host_tops)
        return diffs

    def _return_all_if_small(self, names: tuple[str, ...], output_names: tuple[str, ...]) -> tuple[str, ...]:
        """Return `names` if these blobs are small, else `output_names`.

        Returning all small blobs avoids a compiled function for each set of blobs that a user reads.
        """
        size = sum(math.prod(self.graph.blobs[name].shape) for name in names)
        return names if size <= _SMALL_SIZE else output_names

    def forward_backward(
        self,
        inputs: PassInputs,
        seeds: Values,
        backward_layers: BackwardRange,
        blobs: tuple[str, ...],
        diffs: tuple[str, ...],
    ) -> tuple[PassOutputs, Diffs]:
        """Run all layers of the range forward and the layers of `backward_layers` backward.

        Returns:
            The blobs in `blobs`, and the diffs of parameters and of the blobs in `diffs`.
        """
        function = self._compile("forward_backward", self._forward_backward, backward_layers, self.last, blobs, diffs)
        return function(inputs, seeds, {})

    def backward_range(self, low: int, high: int, deconv: bool = False) -> BackwardRange:
        """Return the range of layers `low` to `high` (indices in the graph, inclusive) for a backward pass."""
        key = (low, high, deconv)
        if key not in self._backward_ranges:
            self._backward_ranges[key] = BackwardRange(self.graph, *key)
        return self._backward_ranges[key]

    def _compile(self, name: str, function: Any, *static_args: Any) -> Any:
        key = (name, *static_args)
        if key not in self._compiled:
            bound_function = partial(function, *static_args)
            self._compiled[key] = bound_function if self.on_host else self._jit(bound_function, key)
        return self._compiled[key]

    def _jit(self, function: Any, key: tuple[Any, ...]) -> Any:
        config, cache_key = self.layers[0].context.config, None
        if ProgramCacheConfig.folder is not None:
            from ..cpu.program_keys import graph_cache_key  # its imports are not needed for inference

            cache_key = graph_cache_key(f"pycaffe {self.first} {self.last} {key}", self.graph, config)
        programs = self._program_caches[self.first, self.last, repr(key)]
        return compilation.Jitted(
            function, config.kernels, cache_key=cache_key, programs=programs, program_key=self._shapes_key
        )

    def _forward(self, output_names: tuple[str, ...], inputs: PassInputs) -> PassOutputs:
        schedule = fuse(LayerSchedule(self.graph, (self._part,)))
        return _select_outputs(
            inputs, run_schedule(schedule, _fold_key(inputs), earlier_blobs=self._input_values(inputs)), output_names
        )

    def _backward(
        self,
        backward_layers: BackwardRange,
        output_names: tuple[str, ...],
        inputs: PassInputs,
        seeds: Values,
        host_tops: Values,
        start_diffs: Mapping[Slot, jax.Array] = MappingProxyType({}),
    ) -> Diffs:
        return self._forward_backward(
            backward_layers, backward_layers.high, (), output_names, inputs, seeds, host_tops, start_diffs
        )[1]

    def _forward_backward(
        self,
        backward_layers: BackwardRange,
        last: int,
        output_names: tuple[str, ...],
        diff_names: tuple[str, ...],
        inputs: PassInputs,
        seeds: Values,
        host_tops: Values,
        start_diffs: Mapping[Slot, jax.Array] = MappingProxyType({}),
    ) -> tuple[PassOutputs, Diffs]:
        """Run forward from the first layer of the range to layer `last`, and then `backward_layers` backward."""
        pullbacks: list[tuple[Layer, Pullback]] = []

        def record_pullback(
            part: Part, inputs: PassInputs, earlier_blobs: Values, needed: frozenset[str] | None
        ) -> PassOutputs:
            (layer,) = part.layers
            if layer.key not in backward_layers.differentiated_keys:
                return compute_part(part, inputs, earlier_blobs)
            result, pullback = run_with_pullback(
                part, inputs, earlier_blobs, host_tops=host_tops, start_diffs=start_diffs
            )
            pullbacks.append((layer, _make_deconv_pullback(layer, pullback) if backward_layers.deconv else pullback))
            return result

        schedule = split_by_layer(LayerSchedule(self.graph, (self._make_part(last),)))
        result = run_schedule(
            schedule, _fold_key(inputs), earlier_blobs=self._input_values(inputs), compute=record_pullback
        )
        blobs, params = dict(seeds), dict[Slot, jax.Array]()
        for _, diffs in run_backward(pullbacks, blobs):
            for slot, diff in diffs.params.items():
                params[slot] = params[slot] + diff if slot in params else diff
        return _select_outputs(inputs, result, output_names), Diffs({name: blobs[name] for name in diff_names}, params)

    def _make_part(self, last: int) -> Part:
        """Return the layers of the range up to index `last` as one part, without Input and data layers."""
        layers = self.graph.layers[self.first : last + 1]
        return make_part(layer for layer in layers if not layer.type.is_input)

    def _input_values(self, inputs: PassInputs) -> Values:
        """Return the input blobs by name, and blobs that an earlier Split copies also by the names of its tops."""
        aliases = {name: inputs.blobs[self._roots[name]] for name in self._part.reads if name in self._roots}
        return {**inputs.blobs, **aliases}


class LayerRanges:
    """A cache of the layer ranges of a graph; each range is created once.

    Args:
        graph: the graph.
        program_caches, shapes_key: see `LayerRange`.

    Attributes:
        graph: the graph.
        padding_is_read: True if a layer reads a top with padded rows.
    """

    def __init__(self, graph: Graph, program_caches: defaultdict[Any, ProgramCache], shapes_key: Any) -> None:
        self.graph, self._program_caches, self._shapes_key = graph, program_caches, shapes_key
        padded = find_padded_tops(graph.layers)
        self.padding_is_read = any(padded.intersection(layer.bottoms) for layer in graph.layers)
        self._ranges: dict[tuple[int, int], LayerRange] = {}

    def get(self, first: int, last: int) -> LayerRange:
        """Return the range of layers `first` to `last` (indices, inclusive)."""
        if (first, last) not in self._ranges:
            self._ranges[first, last] = LayerRange(self.graph, first, last, self._program_caches, self._shapes_key)
        return self._ranges[first, last]

    def split(self, first: int, last: int, *, by_layer: bool) -> Iterator[LayerRange]:
        """Yield the ranges that together run layers `first` to `last` (indices, inclusive).

        Each host layer is a separate range, and so is each layer whose padded tops other layers read. The layers
        after such a layer run on the valid rows only. If `by_layer` is True, every layer is a separate range.
        """
        schedule = make_unfused_schedule(self.graph, first, last)
        for part in (
            split_by_layer(schedule) if by_layer else split_at_host_layers(schedule, trim=self.padding_is_read)
        ).parts:
            stop = first + len(part.layers)
            yield self.get(first, stop - 1)
            first = stop


def find_padded_tops(layers: Iterable[Layer]) -> set[str]:
    """Return the names of the tops with padded rows, which follow the valid rows because the number of these varies."""
    return {top for layer in layers if layer.type.traits.pads_rows for top in layer.tops}


def _fold_key(inputs: PassInputs) -> PassInputs:
    """Return the inputs with the numbers beside the PRNG key folded into it, and without the blobs.

    The blobs are passed separately.
    """
    return inputs._replace(key=fold_numbers(inputs.key), blobs={})


def fold_numbers(key: Key) -> jax.Array:
    """Return the key with its numbers folded into it."""
    folded_key, *numbers = key
    for number in numbers:
        folded_key = jax.random.fold_in(folded_key, number)
    return folded_key


def _select_outputs(inputs: PassInputs, outputs: PassOutputs, output_names: tuple[str, ...]) -> PassOutputs:
    """Return the outputs of a pass, but only the blobs in `output_names` and the state that the pass has changed."""
    state = {
        layer: {i: new for i, new in arrays.items() if new is not inputs.state[layer][i]}
        for layer, arrays in outputs.state.items()
    }
    return PassOutputs({name: outputs.values[name] for name in output_names}, state, outputs.loss)
