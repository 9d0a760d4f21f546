"""What consecutive layers leave in memory for the backward pass, found by tracing them and not by running them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from ...graph import Graph, Layer
from ...layers.calling import Backward
from ..running import Given, run_layers

_GIVEN = ""  # the origin of parameters and the like, which lie in memory anyway
_VIEWS = {"transpose", "reshape", "squeeze", "expand_dims", "layout_constraint", "stop_gradient", "copy"}


class Value(NamedTuple):
    """An array that one unit makes and others read.

    Attributes:
        bytes: its size; 0 for what the net is fed, which lies in memory anyway.
        made, last: the numbers of the unit that makes it and of the last that reads it, under any name.
    """

    bytes: int
    made: int
    last: int


@dataclass(frozen=True)
class Unit:
    """Consecutive layers that are not to be cut apart: one with those that follow in place, and its splits.

    Attributes:
        layers: the layers.
        kept: bytes that its backward pass, or that of what reads its tops, needs of what is made here.
        passing: bytes of its bottoms and tops: as much goes through its backward pass as diffs.
    """

    layers: tuple[Layer, ...]
    kept: int
    passing: int


def units_of(graph: Graph, given: Given, mode: Backward) -> tuple[list[Unit], list[Value]]:
    """A net's layers as units, in order, and what passes between them.

    Args:
        graph: the net, without host layers.
        given: what a pass is given; arrays or `jax.ShapeDtypeStruct`.
        mode: how gradients are made.
    """
    trace = _Trace(graph, jax.tree.map(_shape, given), mode)
    for layers in _together(graph.layers):
        trace.add(layers)
    return trace.units(), [Value(v.bytes, v.made, v.last) for v in trace.values]


def _together(layers: Iterable[Layer]) -> Iterator[tuple[Layer, ...]]:
    unit: list[Layer] = []
    for layer in layers:
        in_place = layer.bottoms == layer.tops and len(layer.tops) == 1
        if unit and not in_place and not all(other.inserted_split for other in unit):
            yield tuple(unit)
            unit = []
        unit.append(layer)
    yield tuple(unit)


@dataclass
class _Made:
    """A `Value` in the making."""

    bytes: int
    made: int
    last: int
    kept: bool = False


class _Traced(NamedTuple):
    """What a unit makes and keeps, each with its origin: a bottom's name, `_GIVEN`, or a mark of its own."""

    tops: dict[str, tuple[Any, jax.ShapeDtypeStruct]]
    kept: dict[Any, int]  # bytes by origin
    state: Any


class _Trace:
    """The sweep over the units: what there is, by the names that blobs have so far."""

    def __init__(self, graph: Graph, given: Given, mode: Backward) -> None:
        self._graph, self._given, self._mode = graph, given, mode
        self._shapes: dict[str, jax.ShapeDtypeStruct] = {}
        self._made: dict[str, _Made] = {}
        self._found: list[tuple[tuple[Layer, ...], int, int]] = []  # layers, bytes kept within them, bytes passing
        self.values: list[_Made] = []

    def add(self, layers: tuple[Layer, ...]) -> None:
        number = len(self._found)
        before = {b: self._shapes[b] for layer in layers for b in layer.bottoms if b in self._shapes}
        traced = self._traced(layers, own(layers, self._given), before)
        self._given = self._given._replace(state={**self._given.state, **traced.state})
        made = {name: self._made[name] for name in before}
        for value in made.values():
            value.last = number
        origins: dict[Any, _Made] = {**made}
        for name, (origin, shape) in traced.tops.items():
            if origin not in origins:
                origins[origin] = _Made(0 if origin == _GIVEN else size(shape), number, number)
                self.values.append(origins[origin])
            self._made[name], self._shapes[name] = origins[origin], shape
        within = 0
        for origin, count in traced.kept.items():
            if origin in origins:
                origins[origin].kept = True
            elif origin != _GIVEN:
                within += count
        tops = (shape for _, shape in traced.tops.values())
        self._found.append((layers, within, sum(map(size, [*before.values(), *tops]))))

    def units(self) -> list[Unit]:
        kept = [within for _, within, _ in self._found]
        for value in self.values:
            kept[value.made] += value.bytes if value.kept else 0
        return [Unit(layers, k, passing) for (layers, _, passing), k in zip(self._found, kept, strict=True)]

    def _traced(self, layers: Sequence[Layer], given: Given, before: Mapping[str, Any]) -> _Traced:
        names = sorted({top for layer in layers for top in layer.tops})

        def run(params: Any, before: Any, rest: Given) -> Any:
            def forward(params: Any, before: Any) -> Any:
                result = run_layers(layers, rest._replace(params=params), before, self._mode, self._graph.file)
                return (result.loss, [result.values[name] for name in names]), result.state

            (_, tops), pull, state = jax.vjp(forward, params, before, has_aux=True)
            return tops, jax.tree.leaves(pull), state

        traced, (tops, kept, state) = jax.make_jaxpr(run, return_shape=True)(given.params, dict(before), given)
        others = (len(jax.tree.leaves(tree)) for tree in (given.params, given))
        ahead, behind = ([_GIVEN] * n for n in others)
        origins = _origins(traced.jaxpr, [*ahead, *sorted(before), *behind])
        of_tops, of_kept = origins[: len(tops)], origins[len(tops) : len(tops) + len(kept)]
        return _Traced(
            tops=dict(zip(names, zip(of_tops, tops, strict=True), strict=True)),
            kept={origin: size(x) for origin, x in zip(of_kept, kept, strict=True)},
            state=state,
        )


def _origins(jaxpr: Any, arguments: Sequence[Any]) -> list[Any]:
    """For each result of a jaxpr the origin of the array of which it is a view: an argument's, or a mark of its own.

    Args:
        jaxpr: a `jax.extend.core.Jaxpr`.
        arguments: their origins.
    """
    known = {**dict.fromkeys(jaxpr.constvars, _GIVEN), **dict(zip(jaxpr.invars, arguments, strict=True))}

    def origin(var: Any) -> Any:
        return _GIVEN if hasattr(var, "val") else known.get(var, var)  # a literal costs nothing

    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name in ("jit", "pjit"):
            known.update(zip(eqn.outvars, _origins(eqn.params["jaxpr"].jaxpr, [*map(origin, eqn.invars)]), strict=True))
        elif name in _VIEWS:
            known[eqn.outvars[0]] = origin(eqn.invars[0])
    return [origin(v) for v in jaxpr.outvars]


def own(layers: Sequence[Layer], given: Given) -> Given:
    """What of all that is given these layers read."""
    keys = {p.owner.layer for layer in layers for p in (*layer.params, *layer.carried)}
    tops = {top for layer in layers for top in layer.tops}
    return Given(
        {k: v for k, v in given.params.items() if k in keys},
        {k: v for k, v in given.state.items() if k in keys},
        {k: v for k, v in given.inputs.items() if k in tops},
        given.key,
        {k: v for k, v in given.probes.items() if k in tops},
    )


def size(tree: Any) -> int:
    """Bytes of all arrays in a tree."""
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def _shape(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)
