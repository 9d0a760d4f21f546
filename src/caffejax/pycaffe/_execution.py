"""Compiled forward and backward passes over ranges of a net's layers.

Backward is Caffe's: from the last layer to the first, each turns the diffs of its tops into diffs of its bottoms
and blobs. So it can start from any diffs, stop anywhere, and skips what Caffe skips. Forward is computed again
for it inside the same compiled function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import located
from ..graph import AUTOMATIC, Graph, Layer, Slot
from ..kernels import compiling
from ..layers.calling import Backward, backward
from ..schedule.running import Given, run_layers

Values = dict[str, jax.Array]
Slots = dict[str, tuple[Slot | None, ...]]
Key = tuple[jax.Array, *tuple[Any, ...]]  # a key, and the numbers to fold into it one after the other


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
        self.graph, self.first, self.last, self.mode = graph, first, last, mode
        self.layers = graph.layers[first : last + 1]
        self.host = any(layer.type.host for layer in self.layers)
        self._roots = split_roots(graph)
        self.reads, self.makes = self._wires()
        self.params, self.state = self._slots()
        self.indices = self._indices()
        self.fed_layers = tuple(layer for layer in self.layers if layer.type.is_fed)
        self._compiled: dict[Any, Any] = {}

    @cached_property
    def leaves(self) -> frozenset[str]:
        """Blobs made here that layers after these read, or that no layer reads."""
        later = self.graph.layers[self.last + 1 :]
        read = [*(b for layer in later for b in layer.bottoms), *self.graph.outputs]
        wanted = {self._roots.get(name, name) for name in read}
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

    def _slots(self) -> tuple[Slots, Slots]:
        """The parts of params and state that the layers use."""
        keys = {p.owner.layer for layer in self.layers for p in (*layer.params, *layer.carried)}
        params, state = ({k: v for k, v in tree.items() if k in keys} for tree in slot_trees(self.graph))
        return params, state

    def _indices(self) -> list[tuple[Layer, str]]:
        names = [(layer, layer.bottoms[i]) for layer in self.layers for i in layer.index_bottoms]
        return [(layer, self._roots.get(name, name)) for layer, name in names if layer.type.count_indexed is not None]

    def _wires(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        reads: dict[str, None] = {}
        makes: dict[str, None] = {}
        for layer in self.layers:
            for bottom in layer.bottoms:
                root = self._roots.get(bottom, bottom)
                if root not in makes:
                    reads[root] = None
            tops = () if layer.inserted_split else layer.tops
            (reads if layer.type.is_fed else makes).update(dict.fromkeys(tops))
        return tuple(reads), tuple(makes)

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
        layers = [layer for layer in self.layers if not layer.type.is_fed]
        result = run_layers(layers, self._given(args), self._before(args.blobs), self.mode, self.graph.file)
        return _forward_result(args, result.values, wanted, result.state, result.loss)

    def _backward(self, section: Section, wanted: tuple[str, ...], args: Args, seeds: Seeds) -> Diffs:
        return self._run(section, (), wanted, args, seeds, section.high)[1]

    def _both(
        self, section: Section, wanted: tuple[str, ...], wanted_diffs: tuple[str, ...], args: Args, seeds: Seeds
    ) -> tuple[Forward, Diffs]:
        return self._run(section, wanted, wanted_diffs, args, seeds, self.last)

    def _run(
        self,
        section: Section,
        wanted: tuple[str, ...],
        wanted_diffs: tuple[str, ...],
        args: Args,
        seeds: Seeds,
        stop: int,
    ) -> tuple[Forward, Diffs]:
        """Forward up to layer `stop`, and the section's backward."""
        given, values = self._given(args), self._before(args.blobs)
        total = jnp.zeros(())
        pulls: list[tuple[Layer, Any]] = []
        for i, layer in enumerate(self.layers[: stop + 1 - self.first], self.first):
            if section.low <= i <= section.high and takes_part(layer):
                run = partial(_host_with_pull, args.tops) if layer.type.host else _with_pull
                values, state, loss, pull = run(layer, given, values, self.mode, self.graph.file)
                pulls.append((layer, pull))
            elif not layer.type.is_fed:
                values, state, loss = run_layers((layer,), given, values, self.mode, self.graph.file)
            else:
                continue
            given = given._replace(state=state)
            total += loss
        diffs, params = dict(seeds.blobs), dict(seeds.params)
        for layer, pull in reversed(pulls):
            with jax.named_scope(f"{layer.name} backward"):
                tops = zip(layer.tops, layer.loss_weights, strict=True)
                blob_diffs, bottom_diffs = pull([weight if t == AUTOMATIC else diffs[t] for t, weight in tops])
            diffs.update(bottom_diffs)
            for owner, diff in blob_diffs.items():
                params[owner] = params[owner] + diff if owner in params else diff
        forward = _forward_result(args, values, wanted, given.state, total)
        return forward, Diffs({name: diffs[name] for name in wanted_diffs}, params)


def _forward_result(
    args: Args, values: Values, wanted: tuple[str, ...], state: Mapping[str, Any], loss: jax.Array
) -> Forward:
    changed = {
        Slot(key, i): new
        for key, blobs in state.items()
        for i, (new, old) in enumerate(zip(blobs, args.state[key], strict=True))
        if new is not old
    }
    return Forward({name: values[name] for name in wanted}, changed, loss)


class Section:
    """A range of layers on its way back.

    Attributes:
        low, high: indices of its first and last layer.
        reads: blobs whose diffs it starts from.
        writes: blobs whose diffs it computes.
        leaves: those of them that go on to layers before.
        owners: params whose diffs it adds to.
    """

    def __init__(self, graph: Graph, low: int, high: int) -> None:
        self.low, self.high = low, high
        reads: dict[str, None] = {}
        writes: dict[str, None] = {}
        owners: dict[Slot, None] = {}
        layers = graph.layers[low : high + 1]
        for layer in reversed([layer for layer in layers if takes_part(layer)]):
            reads.update(dict.fromkeys(t for t in layer.tops if t not in writes and t != AUTOMATIC))
            writes.update(dict.fromkeys(_pulled_bottoms(layer)))
            owners.update(dict.fromkeys(_pulled_params(layer)))
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
    return layer.need_backward and not layer.type.is_fed and bool(_pulled_bottoms(layer) or _pulled_params(layer))


def _pulled_bottoms(layer: Layer) -> list[str]:
    return [name for name, need in zip(layer.bottoms, layer.bottom_need_backward, strict=True) if need]


def _pulled_params(layer: Layer) -> list[Slot]:
    return [p.owner for p in layer.params if p.spec.learnable and p.need_backward]


def _with_pull(layer: Layer, given: Given, values: Values, mode: Backward, file: str | None) -> tuple[Any, ...]:
    """A layer's forward pass, and the function from its tops' diffs to those of its blobs and bottoms."""
    owners, names = _pulled_params(layer), _pulled_bottoms(layer)

    def run(params: Mapping[str, Any], bottoms: Values) -> Any:
        all_params = {**given.params, **params}
        result = run_layers((layer,), given._replace(params=all_params), {**values, **bottoms}, mode, file)
        return tuple(result.values[top] for top in layer.tops), result

    own = {owner.layer: given.params[owner.layer] for owner in owners}
    tops, pullback, result = jax.vjp(run, own, {name: values[name] for name in names}, has_aux=True)

    def pull(top_diffs: Sequence[Any]) -> tuple[dict[Slot, jax.Array], Values]:
        cotangents = tuple(_like(diff, top) for diff, top in zip(top_diffs, tops, strict=True))
        with located(file=file, layer=layer.name, layer_type=layer.type.name):
            params, bottoms = pullback(cotangents)
        return {owner: params[owner.layer][owner.index] for owner in owners}, bottoms

    return result.values, result.state, result.loss, pull


def _host_with_pull(
    made: Mapping[str, jax.Array], layer: Layer, given: Given, values: Values, mode: Backward, file: str | None
) -> tuple[Any, ...]:
    """The same for a layer on the host, whose forward pass must not run again: it made these tops."""
    owners = [p.owner for p in layer.params]

    def numpy(arrays: Sequence[Any]) -> list[np.ndarray]:
        return [np.asarray(a) for a in arrays]

    def pull(top_diffs: Sequence[Any]) -> tuple[dict[Slot, jax.Array], Values]:
        blobs = [
            (given.params if p.spec.learnable else given.state)[p.owner.layer][p.owner.index] for p in layer.params
        ]
        bottoms, tops = [values[b] for b in layer.bottoms], [made[t] for t in layer.tops]
        cotangents = [_like(diff, top) for diff, top in zip(top_diffs, tops, strict=True)]
        with located(file=file, layer=layer.name, layer_type=layer.type.name):
            context = layer.context.in_pass(given.key, layer.bottom_need_backward)
            blob_diffs, bottom_diffs = backward(context, numpy(blobs), numpy(bottoms), numpy(tops), numpy(cotangents))
        wanted = set(_pulled_params(layer)), set(_pulled_bottoms(layer))
        return (
            {o: jnp.asarray(d) for o, d in zip(owners, blob_diffs, strict=True) if o in wanted[0]},
            {b: jnp.asarray(d) for b, d in zip(layer.bottoms, bottom_diffs, strict=True) if b in wanted[1]},
        )

    return {**values, **made}, dict(given.state), jnp.zeros(()), pull


def _like(diff: Any, top: jax.Array) -> jax.Array:
    """A top's diff, of the top's own type."""
    return jnp.broadcast_to(jnp.asarray(diff, top.dtype), top.shape)
