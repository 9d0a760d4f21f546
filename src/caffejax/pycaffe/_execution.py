"""Compiled forward and backward passes over ranges of a net's layers.

Backward is Caffe's: from the last layer to the first, each turns the diffs of its tops into diffs of its bottoms
and blobs. So it can start from any diffs, stop anywhere, and skips what Caffe skips. Forward is computed again
for it inside the same compiled function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..graph import AUTOMATIC, Graph, Layer, Slot
from ..graph.indices import index_blob
from ..kernels import compiling
from ..layers.calling import backward
from ..options import Backward
from ..schedule import Given, Part, Result, Schedule, Values, compute, one_by_one, part_of, run
from ..schedule.fuse import fuse
from ..schedule.running import inputs_of

Slots = dict[str, tuple[Slot | None, ...]]
Key = tuple[jax.Array, *tuple[Any, ...]]  # a key, and the numbers to fold into it one after the other
Pullback = Callable[[Sequence[Any]], tuple[dict[Slot, jax.Array], Values]]


class Args(NamedTuple):
    """What a pass is a function of; for the backward pass of a host layer, also the tops of its forward pass."""

    params: Mapping[str, Any]
    state: Mapping[str, Any]
    blobs: Mapping[str, jax.Array]
    key: Key
    tops: Mapping[str, jax.Array]


class Forward(NamedTuple):
    """What a forward pass gives: the blobs asked for, what has changed of the state, the weighted losses."""

    values: Values
    state: dict[Slot, jax.Array]
    loss: jax.Array


class Seeds(NamedTuple):
    """What a backward pass starts from: diffs of blobs, and diffs of params to add to (where they are not zero)."""

    blobs: Mapping[str, jax.Array]
    params: Mapping[Slot, jax.Array]


class Diffs(NamedTuple):
    """What a backward pass gives: the diffs of blobs asked for, and the new diffs of params."""

    blobs: Values
    params: dict[Slot, jax.Array]


class Stretch:
    """Consecutive layers of a graph, to be run together.

    Args:
        graph: the graph.
        first, last: indices of its layers; both belong to it. A host layer is a stretch of its own.
        mode: how gradients are made.

    Attributes:
        host: whether it is a host layer, which is not compiled.
        reads: blobs that must be given: what Input and data layers produce, and what comes from layers before.
        params, state: the slots that its layers use, in trees like those of `Net.init`.
        indices: of those of its layers that pick by number, where they read it.
        fed_layers: those of its layers that are fed; their tops stand in the blobs already.
        makes: blobs that it computes. An inserted Split's tops are its bottom under other names (see `split_roots`).
    """

    def __init__(self, graph: Graph, first: int, last: int, mode: Backward) -> None:
        self.graph, self.first, self.last = graph, first, last
        self.layers = graph.layers[first : last + 1]
        self.host = any(layer.type.on_host for layer in self.layers)
        self.fed_layers = tuple(layer for layer in self.layers if layer.type.is_fed)
        self._part = part_of((layer for layer in self.layers if not layer.type.is_fed), mode)
        self._schedule = Schedule(graph, (self._part,))
        self._roots = split_roots(graph)
        self.reads = tuple(dict.fromkeys(self._root(name) for name in self._part.reads))
        made = (top for layer in self._part.layers if not layer.inserted_split for top in layer.tops)
        self.makes = tuple(dict.fromkeys(made))
        self.params, self.state = (self._part.using(tree) for tree in slot_trees(graph))
        indexing = (layer for layer in self.layers if layer.type.gradient.indices.picks)
        self.indices = [(layer, self._root(index_blob(layer))) for layer in indexing]
        self._compiled: dict[Any, Any] = {}

    @cached_property
    def leaves(self) -> frozenset[str]:
        """Blobs made here that layers after these read, or that no layer reads."""
        later = self.graph.layers[self.last + 1 :]
        read = [*(b for layer in later for b in layer.bottoms), *self.graph.outputs]
        wanted = {self._root(name) for name in read}
        return frozenset(name for name in self.makes if name in wanted)

    def forward(self, args: Args, wanted: tuple[str, ...]) -> Forward:
        """A forward pass that returns the blobs in `wanted`."""
        return self._function("forward", self._forward, wanted)(args)

    def backward(self, args: Args, seeds: Seeds, section: Section, wanted: tuple[str, ...]) -> Diffs:
        """The backward pass of a section, after a forward pass of the same `args`."""
        return self._function("backward", self._backward, section, wanted)(args, seeds)

    def both(
        self, args: Args, seeds: Seeds, section: Section, blobs: tuple[str, ...], diffs: tuple[str, ...]
    ) -> tuple[Forward, Diffs]:
        """A forward pass and its backward pass."""
        return self._function("both", self._both, section, blobs, diffs)(args, seeds)

    def section(self, low: int, high: int) -> Section:
        """The part of it from layer `low` to `high`, indices in the graph, for the backward pass."""
        key = ("section", low, high)
        if key not in self._compiled:
            self._compiled[key] = Section(self.graph, low, high)
        section: Section = self._compiled[key]
        return section

    def _function(self, name: str, function: Any, *static: Any) -> Any:
        key = (name, *static)
        if key not in self._compiled:
            bound = partial(function, *static)
            self._compiled[key] = bound if self.host else compiling.jit(bound, self.layers[0].context.kernels)
        return self._compiled[key]

    def _root(self, name: str) -> str:
        return self._roots.get(name, name)

    def _before(self, blobs: Mapping[str, jax.Array]) -> Values:
        """The given blobs, also under the names that splits before these layers gave them."""
        names = {b for layer in self.layers for b in layer.bottoms}
        split = {name: blobs[root] for name, root in self._roots.items() if name in names and root in blobs}
        return {**blobs, **split}

    def _given(self, args: Args) -> Given:
        key, *numbers = args.key
        for number in numbers:
            key = jax.random.fold_in(key, number)
        return Given(args.params, args.state, {}, key, {})

    def _forward(self, wanted: tuple[str, ...], args: Args) -> Forward:
        result = run(fuse(self._schedule), self._given(args), before=self._before(args.blobs))
        return _forward_result(args, result, wanted)

    def _backward(self, section: Section, wanted: tuple[str, ...], args: Args, seeds: Seeds) -> Diffs:
        return self._both(section, (), wanted, args, seeds, section.high)[1]

    def _both(
        self,
        section: Section,
        wanted: tuple[str, ...],
        wanted_diffs: tuple[str, ...],
        args: Args,
        seeds: Seeds,
        stop: int | None = None,
    ) -> tuple[Forward, Diffs]:
        """Forward, up to layer `stop` where given, and the section's backward."""
        pullbacks: list[tuple[Layer, Pullback]] = []

        def keeping_pullbacks(part: Part, given: Given, before: Values, keep: frozenset[str] | None) -> Result:
            (layer,) = part.layers
            if layer.key not in section.pulled:
                return compute(part, given, before)
            result, pullback = _with_pullback(part, given, before, args.tops)
            pullbacks.append((layer, pullback))
            return result

        schedule = one_by_one(self._schedule)
        if stop is not None:
            after = {layer.key for layer in self.graph.layers[stop + 1 :]}
            parts = tuple(part for part in schedule.parts if part.layers[0].key not in after)
            schedule = replace(schedule, parts=parts)
        result = run(schedule, self._given(args), before=self._before(args.blobs), runner=keeping_pullbacks)
        diffs, params = dict(seeds.blobs), dict(seeds.params)
        for layer, pullback in reversed(pullbacks):
            with jax.named_scope(f"{layer.name} backward"):
                tops = zip(layer.tops, layer.loss_weights, strict=True)
                blob_diffs, bottom_diffs = pullback([weight if t == AUTOMATIC else diffs[t] for t, weight in tops])
            diffs.update(bottom_diffs)
            for owner, diff in blob_diffs.items():
                params[owner] = params[owner] + diff if owner in params else diff
        return _forward_result(args, result, wanted), Diffs({name: diffs[name] for name in wanted_diffs}, params)


def _forward_result(args: Args, result: Result, wanted: tuple[str, ...]) -> Forward:
    changed = {
        Slot(key, i): new
        for key, blobs in result.state.items()
        for i, (new, old) in enumerate(zip(blobs, args.state[key], strict=True))
        if new is not old
    }
    return Forward({name: result.values[name] for name in wanted}, changed, result.loss)


class Section:
    """A range of layers on its way back.

    Attributes:
        low, high: indices of its first and last layer.
        reads: blobs whose diffs it starts from.
        writes: blobs whose diffs it computes.
        leaves: those of them that go on to layers before.
        owners: params whose diffs it adds to.
        pulled: keys of its layers that do anything.
    """

    def __init__(self, graph: Graph, low: int, high: int) -> None:
        self.low, self.high = low, high
        reads: dict[str, None] = {}
        writes: dict[str, None] = {}
        owners: dict[Slot, None] = {}
        layers = graph.layers[low : high + 1]
        taking_part = [layer for layer in layers if takes_part(layer)]
        for layer in reversed(taking_part):
            reads.update(dict.fromkeys(t for t in layer.tops if t not in writes and t != AUTOMATIC))
            writes.update(dict.fromkeys(_differentiated_bottoms(layer)))
            owners.update(dict.fromkeys(_differentiated_params(layer)))
        self.pulled = frozenset(layer.key for layer in taking_part)
        made = {top for layer in layers for top in layer.tops}
        self.reads, self.writes, self.owners = tuple(reads), tuple(writes), tuple(owners)
        self.leaves = tuple(name for name in writes if name not in made)


def slot_trees(graph: Graph) -> tuple[Slots, Slots]:
    """Where params and state are: trees like those of `Net.init`, of slots."""
    params, state = {}, {}
    for layer in graph.layers:
        own = [p.slot if p.owned and p.spec.learnable else None for p in layer.params]
        other = [p.slot if p.owned and not p.spec.learnable else None for p in layer.params]
        other += [p.slot for p in layer.carried]
        if any(own):
            params[layer.key] = tuple(own)
        if any(other):
            state[layer.key] = tuple(other)
    return params, state


def split_roots(graph: Graph) -> dict[str, str]:
    """For each top of an inserted Split, the blob that it is: in Caffe, too, they share their data."""
    return {top: layer.bottoms[0] for layer in graph.layers if layer.inserted_split for top in layer.tops}


def takes_part(layer: Layer) -> bool:
    """Whether a layer does anything in a backward pass."""
    return (
        layer.need_backward
        and not layer.type.is_fed
        and bool(_differentiated_bottoms(layer) or _differentiated_params(layer))
    )


def _differentiated_bottoms(layer: Layer) -> list[str]:
    return [name for name, need in zip(layer.bottoms, layer.bottom_need_backward, strict=True) if need]


def _differentiated_params(layer: Layer) -> list[Slot]:
    return [p.owner for p in layer.params if p.spec.learnable and p.need_backward]


def _with_pullback(part: Part, given: Given, before: Values, made: Mapping[str, jax.Array]) -> tuple[Result, Pullback]:
    """A layer's forward pass, and the function from its tops' diffs to those of its params and bottoms.

    The forward pass of a layer on the host must not run again: it has `made` these tops.
    """
    (layer,) = part.layers
    if layer.type.on_host:
        values = {top: made[top] for top in layer.tops}
        return Result(values, dict(given.state), jnp.zeros(())), _host_pullback(layer, given, before, values)
    owners, names = _differentiated_params(layer), _differentiated_bottoms(layer)

    def tops(params: Mapping[str, Any], bottoms: Values) -> Any:
        given_here = given._replace(params={**given.params, **params})
        result = compute(part, given_here, {**before, **bottoms})
        return tuple(result.values[top] for top in layer.tops), result

    own = {owner.layer: given.params[owner.layer] for owner in owners}
    found, vjp, result = jax.vjp(tops, own, {name: before[name] for name in names}, has_aux=True)

    def pullback(top_diffs: Sequence[Any]) -> tuple[dict[Slot, jax.Array], Values]:
        cotangents = tuple(_like(diff, top) for diff, top in zip(top_diffs, found, strict=True))
        with layer.located():
            params, bottoms = vjp(cotangents)
        return {owner: params[owner.layer][owner.index] for owner in owners}, bottoms

    return result, pullback


def _host_pullback(layer: Layer, given: Given, before: Values, made: Values) -> Pullback:
    def numpy(arrays: Sequence[Any]) -> list[np.ndarray]:
        return [np.asarray(a) for a in arrays]

    def pullback(top_diffs: Sequence[Any]) -> tuple[dict[Slot, jax.Array], Values]:
        blobs, bottoms = inputs_of(layer, given.params, given.state, before)
        tops = [made[top] for top in layer.tops]
        cotangents = [_like(diff, top) for diff, top in zip(top_diffs, tops, strict=True)]
        context = replace(layer.context, base_key=layer.base_key(given.key), propagate_down=layer.bottom_need_backward)
        with layer.located():
            blob_diffs, bottom_diffs = backward(context, numpy(blobs), numpy(bottoms), numpy(tops), numpy(cotangents))
        wanted = set(_differentiated_params(layer)), set(_differentiated_bottoms(layer))
        owners = [p.owner for p in layer.params]
        return (
            {o: jnp.asarray(d) for o, d in zip(owners, blob_diffs, strict=True) if o in wanted[0]},
            {b: jnp.asarray(d) for b, d in zip(layer.bottoms, bottom_diffs, strict=True) if b in wanted[1]},
        )

    return pullback


def _like(diff: Any, top: jax.Array) -> jax.Array:
    """A top's diff, of the top's own type."""
    return jnp.broadcast_to(jnp.asarray(diff, top.dtype), top.shape)
