"""A net at work: its blobs and params as memories, and forward and backward passes over ranges of its layers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import jax

from .. import net as pure
from ..data.loader import Loader
from ..data.memory import ArraySource
from ..graph import AUTOMATIC, Graph, Layer, Slot
from ..graph.reshape import reshape_graph
from ..inspect import check_indices
from ..layers import Fed, Reads
from ..layers.python.layer import BlobVec
from . import _modes
from ._execution import Args, Diffs, Forward, Key, Section, Seeds, Stretch, slot_trees, split_roots, takes_part
from ._passes import BackwardPass, Pass, in_place, maker
from ._synced import Memory, SyncedBlob, now

Callback = Callable[[int], object]

_OFTEN = 2  # values of a blob in a row that were looked at: from then on every pass returns them


class Running:
    """A net's memory, and what runs on it.

    Blobs that nobody looks at stay unknown: a pass returns the net's outputs, and what was looked at repeatedly.
    The first look at another blob computes the same pass again, this time returning all of them.

    Args:
        net: the net.
        variables: its params and state to start with.
        loader: what feeds its data layers.

    Attributes:
        graph: the net's graph, for the shapes that the inputs have now.
        blobs: by name.
        slots: blobs of layers, and what layers carry from pass to pass, where they are owned.
        arrays: what feeds MemoryData layers, by the layers' keys.
        callbacks: called with a layer's index, by "before_forward" and so on; then layers run one by one.
    """

    def __init__(self, net: pure.Net, variables: pure.Variables, loader: Loader) -> None:
        self.graph = net.graph
        self.arrays: dict[str, ArraySource] = {}
        self._loader = loader
        self._finish_fed: dict[str, Any] = {}
        self.device = _modes.device()
        self.callbacks: dict[str, list[Callback]] = {
            f"{when}_{what}": [] for when in ("before", "after") for what in ("forward", "backward")
        }
        self._mode = net.run.backward
        self._host_layers = [i for i, layer in enumerate(self.graph.layers) if layer.type.on_host]
        self._by_hand = self.graph.fed_by_hand
        self._passes: list[Pass | None] = []
        self._roots = split_roots(self.graph)
        self._params, self._state = slot_trees(self.graph)
        self._graphs: dict[Any, tuple[Graph, dict[Any, Stretch]]] = {}
        self._use_graph(self.graph)
        self.blobs: dict[str, SyncedBlob] = {}
        for name, blob in self.graph.blobs.items():
            root = self.blobs.get(self._roots.get(name, ""))
            self.blobs[name] = SyncedBlob(blob.shape, data=root.data_memory if root else None)
        self._set_loss_weights()
        self.slots: dict[Slot, SyncedBlob] = {}
        for slot, array in _pairs((self._params, self._state), variables):
            self.slots[slot] = SyncedBlob(array.shape, data=Memory(jax.device_put(array, self.device)))

    # -- params and state

    @property
    def variables(self) -> pure.Variables:
        """Params and state as JAX's arrays."""
        return pure.Variables(*(self._arrays(tree, SyncedBlob.data_on) for tree in (self._params, self._state)))

    @variables.setter
    def variables(self, new: pure.Variables) -> None:
        for slot, array in _pairs((self._params, self._state), new):
            if self.slots[slot].data_on(self.device) is not array:
                _take_into(self.slots[slot].data_memory, array)
        for layer in self.graph.layers:
            blobs = getattr(layer.type.instance, "blobs", None)
            if isinstance(blobs, BlobVec):  # a Python layer's own, which passes bring up to date too
                for blob, param in zip(blobs, layer.params, strict=True):
                    blob.data[...] = self.slots[param.owner].data_on(self.device).reshape(blob.shape)

    @property
    def params(self) -> pure.Params:
        """The params."""
        return self._arrays(self._params, SyncedBlob.data_on)

    @params.setter
    def params(self, new: pure.Params) -> None:
        for slot, array in _pairs((self._params,), (new,)):
            _take_into(self.slots[slot].data_memory, array)

    @property
    def param_diffs(self) -> pure.Params:
        """The diffs of the params."""
        return self._arrays(self._params, SyncedBlob.diff_on)

    @param_diffs.setter
    def param_diffs(self, new: pure.Params) -> None:
        for slot, array in _pairs((self._params,), (new,)):
            _take_into(self.slots[slot].diff_memory, array)

    def clear_param_diffs(self) -> None:
        """Makes the diffs of all params zero."""
        for blob in self.slots.values():
            blob.diff_memory.clear()

    # -- blobs

    def feed_by_hand(self) -> dict[str, jax.Array]:
        """What stands in the tops of Input layers, and the next batch of those that arrays feed."""
        for layer in self.graph.layers:
            if layer.key in self.arrays:
                self._take_batch(layer, next(self.arrays[layer.key]))
        return self.values(self._by_hand)

    def values(self, names: Iterable[str]) -> dict[str, jax.Array]:
        """Blobs as JAX's arrays."""
        return {name: self.blobs[name].data_on(self.device) for name in names}

    def reshape(self) -> None:
        """Takes the shapes that the blobs of Input layers have now for the net's.

        Raises:
            GraphError: if a layer cannot work with them.
        """
        shapes = {name: self.blobs[name].shape for name in self._by_hand}
        if all(self.graph.blobs[name].shape == shape for name, shape in shapes.items()):
            return
        known = self._graphs.get(tuple(shapes.values()))
        before = {name: blob.shape for name, blob in self.blobs.items()}
        self._use_graph(known[0] if known else reshape_graph(self.graph, shapes))
        for name, blob in self.graph.blobs.items():
            self.blobs[name].reshape(*blob.shape)
        for layer in self.graph.layers:
            for param in layer.carried:
                if (carried := self.slots[param.slot]).shape != param.spec.shape:
                    carried.reshape(*param.spec.shape)
                    carried.data_memory.clear()
        self._set_loss_weights(before)

    def follow(self) -> None:
        """Goes to the device of the moment."""
        if (device := _modes.device()) is self.device:
            return
        self.device = device
        for blob in (*self.blobs.values(), *self.slots.values()):
            blob.data_memory.move(device)
            blob.diff_memory.move(device)
        self.forget_passes()

    def _use_graph(self, graph: Graph) -> None:
        key = tuple(graph.blobs[name].shape for name in self._by_hand)
        self.graph, self._stretches = self._graphs.setdefault(key, (graph, {}))
        self._passes = [None] * len(graph.layers)

    def _set_loss_weights(self, unless: Mapping[str, tuple[int, ...]] | None = None) -> None:
        """Makes the diff of every loss its weight, as setting up a layer does; not for the shapes in `unless`."""
        for name, weight in self.graph.losses.items():
            if name != AUTOMATIC and (unless is None or unless[name] != self.blobs[name].shape):
                self.blobs[name].diff[...] = weight

    def forget_passes(self) -> None:
        """Has backward passes begin from what stands in the memories."""
        self._passes = [None] * len(self._passes)

    # -- passes

    def forward(self, first: int, last: int, key: Key | None = None) -> list[jax.Array]:
        """Runs layers `first` to `last` on what stands in the blobs; the parts of the weighted loss."""
        self._prepare(first, last)
        key = key or _modes.next_key()
        losses = []
        for stretch in self._plan(first, last, any(self.callbacks.values())):
            self._call("before_forward", stretch.first)
            losses.append(self._forward(stretch, key))
            self._call("after_forward", stretch.last)
        return losses

    def backward(self, high: int, low: int, wanted: Iterable[str] = ()) -> None:
        """Runs layers `high` down to `low` backward; the diffs in `wanted` are sure to be asked for next.

        Raises:
            GraphError: if a gradient does not exist.
        """
        self.graph.check_backward()
        self._prepare(high, low, reshape=False)
        wanted = frozenset(wanted)
        single = any(self.callbacks.values())
        groups = {section.high: (work, section) for work, section in self._groups(low, high, single)}
        for i in range(high, low - 1, -1):
            self._call("before_backward", i)
            if i in groups:
                self._backward(*groups[i], wanted)
            self._call("after_backward", i)

    def forward_backward(self, key: Key | None = None) -> list[jax.Array]:
        """A whole forward and backward pass, in one compiled call where that is possible; the loss's parts."""
        last = len(self.graph.layers) - 1
        self._prepare(0, last)
        key = key or _modes.next_key()
        part = [i for i, layer in enumerate(self.graph.layers) if takes_part(layer)]
        if self._host_layers or any(self.callbacks.values()) or not part:
            losses = self.forward(0, last, key)
            self.backward(last, 0)
            return losses
        self.graph.check_backward()
        (stretch,) = self._plan(0, last, False)
        section = stretch.section(part[0], part[-1])
        work, seeds = self._start(stretch, key), self._seeds(section)
        blobs, diffs = self._wanted(stretch), self._wanted_diffs(section, frozenset())
        forward, back = stretch.both(work.args, seeds, section, blobs, diffs)
        self._finish(work, forward)
        self._finish_backward(work, seeds, section, back)
        return [forward.loss]

    def _prepare(self, first: int, last: int, reshape: bool = True) -> None:
        self.follow()
        if reshape and any(isinstance(layer.type.runs, Fed) for layer in self.graph.layers[first : last + 1]):
            self.reshape()

    def _plan(self, first: int, last: int, single: bool) -> Iterator[Stretch]:
        """Stretches from layer `first` to `last`: one, but for host layers, or `single` ones."""
        cuts = {first, last + 1} | {i + n for i in self._host_layers for n in (0, 1) if first <= i <= last}
        for start, stop in pairwise(range(first, last + 2) if single else sorted(cuts)):
            yield self._stretch(start, stop - 1)

    def _stretch(self, first: int, last: int) -> Stretch:
        if (first, last) not in self._stretches:
            self._stretches[first, last] = Stretch(self.graph, first, last, self._mode)
        return self._stretches[first, last]

    def _start(self, stretch: Stretch, key: Key) -> Pass:
        """A pass from what stands in the memories; data layers read their next batch."""
        for layer in stretch.fed_layers:
            if layer.key in self.arrays:
                self._take_batch(layer, next(self.arrays[layer.key]))
            elif isinstance(layer.type.runs, Reads):
                self._take_batch(layer, tuple(self._loader.read(layer.key).values()))
        params, state = (self._arrays(tree, SyncedBlob.data_on) for tree in (stretch.params, stretch.state))
        return Pass(stretch, Args(params, state, self.values(stretch.reads), key, {}))

    def _forward(self, stretch: Stretch, key: Key) -> jax.Array:
        work = self._start(stretch, key)
        done = stretch.forward(work.args, self._wanted(stretch))
        self._finish(work, done)
        return done.loss

    def _wanted(self, stretch: Stretch) -> tuple[str, ...]:
        """What a pass is to return."""
        if self._host_layers or any(self.blobs[n].shape != self.graph.blobs[n].shape for n in stretch.reads):
            return stretch.makes  # their shapes are known only then
        memories = ((name, self.blobs[name].data_memory) for name in stretch.makes)
        sure = {*stretch.leaves, *(name for _, name in stretch.indices)}
        return tuple(name for name, memory in memories if _popular(memory) or name in sure)

    def _finish(self, work: Pass, done: Forward) -> None:
        """Puts a forward pass's results into the memories; raises `LayerError` for an index out of range."""
        stretch = work.stretch
        known = {**work.args.blobs, **done.values}
        for layer, _ in stretch.indices:
            bottoms = [known.get(self._roots.get(b, b), self.graph.blobs[b]) for b in layer.bottoms]
            check_indices(layer, bottoms)
        for slot, array in done.state.items():
            _take_into(self.slots[slot].data_memory, array)
        for name in stretch.makes:
            if name in done.values:
                self._take(name, done.values[name])
            else:
                self._set_shape(name, self.graph.blobs[name].shape)  # the pass before may have left another
                memory = work.waiting[name] = self.blobs[name].data_memory
                memory.defer(work)
        if stretch.host:  # its backward pass is given the tops
            work.args = work.args._replace(tops=done.values)
        work.time = now()
        self._passes[stretch.first : stretch.last + 1] = [work] * len(stretch.layers)

    def _groups(self, low: int, high: int, single: bool) -> Iterator[tuple[Pass, Section]]:
        """What to do on the way back from `high` to `low`: sections of the passes that made the blobs."""
        part = [i for i in range(high, low - 1, -1) if takes_part(self.graph.layers[i])]
        works = {i: self._pass_of(i) for i in part}
        while part:
            work, top = works[part[0]], part[0]
            bottom = top
            while part and works[part[0]] is work and (part[0] == top or not single):
                bottom = part.pop(0)
            yield work, work.stretch.section(bottom, top)

    def _pass_of(self, i: int) -> Pass:
        """The pass that layer `i` ran in; a new one if what it reads has been written to since."""
        work, layer, stretch = self._passes[i], self.graph.layers[i], self._stretch(i, i)
        read_since = frozenset(name for name in in_place(layer) if work and not self._remade(i, name))
        if work and read_since == in_place(layer) and not self._written(layer, work):
            return work
        own = self._start(stretch, work.args.key if work else _modes.next_key())
        if work:
            blobs = {**own.args.blobs, **self._read(i, work, read_since)}
            own.args = own.args._replace(state=work.args.state, blobs=blobs)
        if stretch.host:
            own.args = own.args._replace(tops=self.values(stretch.makes))
        return own

    def _remade(self, i: int, name: str) -> bool:
        """Whether the layer that makes what layer `i` reads of a blob ran after it."""
        made, read = self._passes[maker(self.graph, i, name)], self._passes[i]
        return made is not None and read is not None and made.time > read.time

    def _written(self, layer: Layer, work: Pass) -> bool:
        """Whether something that a layer's backward pass depends on changed after its pass, but for work in place.

        What it wrote over is gone: later values there, its own and those of layers after it, are not what it read.
        """
        blobs = [self.blobs[name] for name in layer.bottoms if name not in in_place(layer)]
        params = [self.slots[p.owner] for p in layer.params if p.spec.learnable]
        return any(blob.data_memory.settled_version() >= work.time for blob in (*blobs, *params))

    def _read(self, i: int, work: Pass, names: Collection[str]) -> dict[str, jax.Array]:
        """What layer `i` read in a pass of blobs that it then wrote over."""
        first = work.stretch.first
        if first == i or not names:
            return {name: work.args.blobs[name] for name in names}
        return self._stretch(first, i - 1).forward(work.args, tuple(sorted(names))).values

    def _backward(self, work: Pass, section: Section, wanted: frozenset[str]) -> None:
        seeds = self._seeds(section)
        diffs = work.stretch.backward(work.args, seeds, section, self._wanted_diffs(section, wanted))
        self._finish_backward(work, seeds, section, diffs)

    def _seeds(self, section: Section) -> Seeds:
        params = {slot: self.slots[slot] for slot in section.owners}
        return Seeds(
            {name: self.blobs[name].diff_on(self.device) for name in section.reads},
            {slot: blob.diff_on(self.device) for slot, blob in params.items() if not blob.diff_memory.is_zero},
        )

    def _wanted_diffs(self, section: Section, wanted: frozenset[str]) -> tuple[str, ...]:
        if self._host_layers:
            return section.writes
        sure = {*section.leaves, *wanted}
        memories = ((name, self.blobs[name].diff_memory) for name in section.writes)
        return tuple(name for name, memory in memories if _popular(memory) or name in sure)

    def _finish_backward(self, work: Pass, seeds: Seeds, section: Section, diffs: Diffs) -> None:
        """Puts a backward pass's results into the memories."""
        back = BackwardPass(work, seeds._replace(params={}), section)
        for slot, array in diffs.params.items():
            _take_into(self.slots[slot].diff_memory, array)
        for name in section.writes:
            memory = self.blobs[name].diff_memory
            if name in diffs.blobs:
                _take_into(memory, diffs.blobs[name])
            else:
                back.waiting[name] = memory
                memory.defer(back)

    def _take_batch(self, layer: Layer, arrays: tuple[Any, ...]) -> None:
        """Puts what a layer is fed into its tops."""
        tops = jax.device_put(arrays, self.device)
        if layer.look is not None and layer.look.finish is not None:
            if layer.key not in self._finish_fed:
                self._finish_fed[layer.key] = jax.jit(lambda arrays: layer.finish(arrays))
            tops = self._finish_fed[layer.key](tops)
        for name, array in zip(layer.tops, tops, strict=True):
            self._take(name, array)

    def _take(self, name: str, array: jax.Array) -> None:
        self._set_shape(name, array.shape)
        _take_into(self.blobs[name].data_memory, array)

    def _set_shape(self, name: str, shape: tuple[int, ...]) -> None:
        """Gives a blob, under all its names, the shape that it has in this pass."""
        if self.blobs[name].shape != shape:
            for other in (name, *(top for top, root in self._roots.items() if root == name)):
                self.blobs[other].reshape(*shape)

    def _call(self, what: str, layer: int) -> None:
        for callback in self.callbacks[what]:
            callback(layer)

    def _arrays(self, tree: Mapping[str, Any], array: Callable[[SyncedBlob, jax.Device], jax.Array]) -> Any:
        return {
            key: tuple(None if slot is None else array(self.slots[slot], self.device) for slot in slots)
            for key, slots in tree.items()
        }


def _take_into(memory: Memory, array: jax.Array) -> None:
    memory.store(array)
    memory.refresh()


def _popular(memory: Memory) -> bool:
    """Whether a memory's next value is likely to be looked at: somebody watches it, or has looked often."""
    if memory.looked_at:
        memory.streak += 1
    elif memory.streak < _OFTEN:
        memory.streak = 0
    return memory.streak >= _OFTEN or memory.held


def _pairs(trees: Iterable[Mapping[str, Any]], values: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Slot, jax.Array]]:
    for tree, arrays in zip(trees, values, strict=True):
        for key, slots in tree.items():
            yield from ((s, a) for s, a in zip(slots, arrays[key], strict=True) if s is not None)
