"""Forward and backward passes over ranges of layers. Blobs that a pass does not return are computed on demand."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import jax
import jax.numpy as jnp

from ..base.variables import Variables
from ..core.graph import Layer, Slot
from ..core.graph.inference_graph import output_and_loss_names
from ..core.program import net as pure
from ..core.program.backward import Diffs, is_users_host_layer
from ..core.program.interpreter import PassInputs, PassOutputs
from ..core.solver.index_check import check_indices
from ..cpu.frozen.frozen_pass_cache import FrozenPassCache
from . import _global_state
from ._blob_store import Memories
from ._layer_range import BackwardRange, Key, LayerRange, LayerRanges
from ._synced_memory import Memory, next_version


class FrozenForward:
    """Forward passes by an inference function that is compiled for the current weights, until the weights change.

    The passes run the first layers of a net, or all layers.

    Args:
        net: the net.
        layer_range: the layers. A range does not have an inference function if it does not begin with the net's
            first layer, if it contains losses and ends before the net's last layer, or if it is a host layer.
    """

    def __init__(self, net: pure.Net, layer_range: LayerRange) -> None:
        self._covers_net = layer_range.last == len(net.graph.layers) - 1
        net_part = net if self._covers_net or layer_range.first else net.first_layers(layer_range.last)
        outputs = output_and_loss_names(net.graph) if self._covers_net else layer_range.leaves
        self._outputs = frozenset(name for name in outputs if name not in net.graph.input_names)
        self._is_supported = bool(self._outputs) and not layer_range.first and not layer_range.on_host
        if not self._covers_net and any(any(layer.loss_weights) for layer in layer_range.layers):
            self._is_supported = False
        self.cache = FrozenPassCache(net_part.graph, net_part.config)
        self._fold_in = jax.jit(jax.random.fold_in)

    def run(self, layer_range: LayerRange, inputs: PassInputs, output_names: tuple[str, ...]) -> PassOutputs | None:
        """Run a pass that returns the blobs in `output_names`; return None if no inference function can run it."""
        if not self._is_supported:
            return None
        passes = self.cache.find(self._outputs.union(output_names), _variables(inputs))
        if passes is None:
            return None

        def make_key() -> jax.Array:
            key, *numbers = inputs.key
            for number in numbers:
                key = self._fold_in(key, number)
            return key

        blobs = passes.run_transformed(inputs.blobs, make_key)
        return PassOutputs(layer_range.strip_padding(blobs), {}, passes.loss(blobs) if self._covers_net else 0.0)


def _variables(inputs: PassInputs) -> Variables:
    return Variables(dict(inputs.params), dict(inputs.state))


class Pass:
    """A forward pass. It runs a second time if a blob that it has not returned is read.

    Args:
        layer_range: the layers to run.
        inputs: the inputs of the pass; the key is a `Key`.
        frozen: the inference functions that the pass may run instead of the layers, or None.

    Attributes:
        layer_range: the layers to run.
        inputs: the inputs of the pass; the key is a `Key`.
        host_tops: the tops of a host layer, which must not run again for its backward pass; empty for other layers.
        end_version: the version number at the end of the pass; memories with a larger version were written after it.
    """

    def __init__(self, layer_range: LayerRange, inputs: PassInputs, frozen: FrozenForward | None = None) -> None:
        self.layer_range, self.inputs, self._frozen = layer_range, inputs, frozen
        self.host_tops: dict[str, jax.Array] = {}
        self.end_version = -1
        self._deferred: dict[str, Memory] = {}

    def run(self, output_names: tuple[str, ...], *, returns_small_blobs: bool = True) -> PassOutputs:
        """Run the pass; return the blobs in `output_names`, the changed state and the loss.

        For `returns_small_blobs` see `LayerRange.forward`.
        """
        outputs = self._frozen.run(self.layer_range, self.inputs, output_names) if self._frozen else None
        return outputs or self.layer_range.forward(self.inputs, output_names, returns_small_blobs=returns_small_blobs)

    def finish(self, outputs: PassOutputs, memories: Memories) -> None:
        """Store the results of the pass in `memories`. Blobs that are not in `outputs` are computed when they are read.

        Raises:
            LayerError: if a layer that selects values by index has an index that is out of range.
        """
        blobs = self.layer_range.graph.blobs
        values = {**self.inputs.blobs, **outputs.values}
        for layer, _ in self.layer_range.indices:
            check_indices(layer, [values.get(self.layer_range.find_root(b), blobs[b]) for b in layer.bottoms])
        for layer_key, arrays in outputs.state.items():
            for index, array in arrays.items():
                memories.slots[Slot(layer_key, index)].data_memory.store(array)
        for name in self.layer_range.writes:
            if name in outputs.values:
                memories.store(name, outputs.values[name])
            else:
                memories.set_shape(name, blobs[name].shape)  # the previous pass may have set a different shape
                memory = self._deferred[name] = memories.blobs[name].data_memory
                memory.defer(self)
        for layer in self.layer_range.layers:
            memories.rewrite_params(layer)
        if self.layer_range.on_host:
            self.host_tops = outputs.values
            for param in (param for layer in self.layer_range.layers for param in layer.params):
                memories.slots[param.owner].data_memory.current_version()  # Python layers may write to their blobs
        self.end_version = next_version()

    def resolve(self) -> None:
        """Run the pass again, and store the blobs that it has not returned before."""
        if self._frozen and not self._frozen.cache.is_current(_variables(self.inputs)):
            self._frozen = None  # the inference function has newer parameters
        values = self.run(self.layer_range.writes).values
        for name, memory in self._deferred.items():
            memory.fill(self, values[name])


_add = jax.jit(partial(jax.tree.map, jnp.add))


class BackwardPass:
    """A backward pass. It runs a second time if a diff that it has not returned is read.

    Args:
        forward_pass: the preceding forward pass.
        backward_range: the layers to run backward.
        memories: the memories with the diffs to start from.
        adds_passes: whether the diffs of all params are added to those in `memories`. Otherwise users' Python layers
            change the diffs of their blobs themselves, as in Caffe.

    Attributes:
        forward_pass: the preceding forward pass.
        seeds: the blobs' diffs to start from, by name.
    """

    def __init__(
        self, forward_pass: Pass, backward_range: BackwardRange, memories: Memories, *, adds_passes: bool = False
    ) -> None:
        self.forward_pass, self._backward_range = forward_pass, backward_range
        layers = [layer for layer in forward_pass.layer_range.layers if is_users_host_layer(layer) and not adds_passes]
        slots = [param.owner for layer in layers for param in layer.params]
        self._start_diffs = {slot: memories.slots[slot].get_diff(memories.device) for slot in slots}
        self.seeds = {name: memories.blobs[name].get_diff(memories.device) for name in backward_range.reads}
        self._deferred: dict[str, Memory] = {}

    def run(self, output_names: tuple[str, ...]) -> Diffs:
        """Run the pass; return the diffs of parameters, and of the blobs in `output_names`."""
        return self.forward_pass.layer_range.backward(
            self.forward_pass.inputs,
            self.seeds,
            self._backward_range,
            output_names,
            self.forward_pass.host_tops,
            self._start_diffs,
        )

    def finish(self, diffs: Diffs, memories: Memories) -> None:
        """Store the diffs of blobs in `memories`, and add the diffs of parameters to those in `memories`.

        Diffs of blobs that are not in `diffs` are computed when they are read.
        """
        sums: dict[Slot, jax.Array] = {}
        slots_by_memory: dict[int, Slot] = {}  # scripts may make two params the same blob
        for slot, diff in diffs.params.items():
            first_slot = slots_by_memory.setdefault(id(memories.slots[slot].diff_memory), slot)
            sums[first_slot] = sums[first_slot] + diff.reshape(sums[first_slot].shape) if first_slot in sums else diff
        current_diffs = {
            slot: memories.slots[slot].get_diff(memories.device)
            for slot in sums
            if slot not in self._start_diffs and not memories.slots[slot].diff_memory.is_zero
        }
        if current_diffs:
            sums |= _add(current_diffs, {slot: sums[slot] for slot in current_diffs})
        for slot, array in sums.items():
            memories.slots[slot].diff_memory.store(array)
        for name in self._backward_range.writes:
            memory = memories.blobs[name].diff_memory
            if name in diffs.blobs:
                memory.store(diffs.blobs[name])
            else:
                self._deferred[name] = memory
                memory.defer(self)

    def resolve(self) -> None:
        """Run the pass again, and store the diffs that it has not returned before."""
        diffs = self.run(self._backward_range.writes)
        for name, memory in self._deferred.items():
            memory.fill(self, diffs.blobs[name])


def make_pass(layer_range: LayerRange, memories: Memories, key: Key, frozen: FrozenForward | None = None) -> Pass:
    """Return a new forward pass of `layer_range` on the current values in `memories`. It has not run yet."""
    params, state = memories.select_data(layer_range.params), memories.select_data(layer_range.state)
    blobs = memories.get_values(layer_range.reads) if layer_range.on_host else memories.get_inputs(layer_range.reads)
    return Pass(layer_range, PassInputs(params, state, blobs, key, {}), frozen)


class History:
    """The most recent pass of each layer.

    Args:
        ranges: the ranges of the graph's layers.
        memories: the net's memories.
    """

    def __init__(self, ranges: LayerRanges, memories: Memories) -> None:
        self._ranges, self._memories = ranges, memories
        self._layers = ranges.graph.layers
        self._last_passes: list[Pass | None] = []
        self.forget()

    def forget(self) -> None:
        """Forget all passes. The next backward pass uses the current values of blobs and parameters."""
        self._last_passes = [None] * len(self._layers)

    def add(self, forward_pass: Pass) -> None:
        """Record a pass that has run."""
        self._last_passes[forward_pass.layer_range.first : forward_pass.layer_range.last + 1] = [forward_pass] * len(
            forward_pass.layer_range.layers
        )

    def get_last_pass(self, i: int) -> Pass | None:
        """Return the most recent pass of layer `i`, or None."""
        return self._last_passes[i]

    def find_pass_to_differentiate(self, i: int) -> Pass:
        """Return the forward pass that the backward pass of layer `i` differentiates.

        This is the most recent pass of the layer, or a new pass if an input of the layer was written to after it. For
        a new pass, bottoms that the layer overwrote in place are recomputed, unless the layer that computes them has
        run since.
        """
        last_pass, layer = self._last_passes[i], self._layers[i]
        layer_range = self._ranges.get(i, i)
        if last_pass is None:
            new_pass = make_pass(layer_range, self._memories, _global_state.next_key())
        else:
            overwritten_blobs = [
                name for name in _find_in_place_blobs(layer) if not self._was_recomputed(i, name, last_pass)
            ]
            if len(overwritten_blobs) == len(_find_in_place_blobs(layer)) and not self._was_written(layer, last_pass):
                return last_pass
            new_pass = make_pass(layer_range, self._memories, last_pass.inputs.key)
            blobs = {**new_pass.inputs.blobs, **self._read_bottoms(i, last_pass, overwritten_blobs)}
            new_pass.inputs = new_pass.inputs._replace(state=last_pass.inputs.state, blobs=blobs)
        if layer_range.on_host:
            new_pass.host_tops = self._memories.get_values(layer_range.writes)
        return new_pass

    def _was_recomputed(self, i: int, name: str, last_pass: Pass) -> bool:
        """Return whether the layer that computes the bottom `name` of layer `i` has run after the pass `last_pass`."""
        producer = max(j for j, layer in enumerate(self._layers[:i]) if name in layer.tops)
        producer_pass = self._last_passes[producer]
        return producer_pass is not None and producer_pass.end_version > last_pass.end_version

    def _was_written(self, layer: Layer, last_pass: Pass) -> bool:
        """Return whether an input of the layer's backward pass was written to after the pass `last_pass`.

        Bottoms that the layer overwrites in place are not compared, because the layer's tops replace them.
        """
        blobs = [self._memories.blobs[name] for name in layer.bottoms if name not in _find_in_place_blobs(layer)]
        params = [self._memories.slots[p.owner] for p in layer.params if p.spec.learnable]
        return any(blob.data_memory.current_version() >= last_pass.end_version for blob in (*blobs, *params))

    def _read_bottoms(self, i: int, last_pass: Pass, names: Iterable[str]) -> dict[str, jax.Array]:
        """Return the bottoms `names` as layer `i` read them in the pass `last_pass`, before it overwrote them."""
        names = tuple(sorted(names))
        first = last_pass.layer_range.first
        if first == i or not names:
            return {name: last_pass.inputs.blobs[name] for name in names}
        return self._ranges.get(first, i - 1).forward(last_pass.inputs, names).values


def _find_in_place_blobs(layer: Layer) -> frozenset[str]:
    return frozenset(layer.bottoms).intersection(layer.tops)
