"""What consecutive layers leave in memory for the backward pass, found by tracing them and not by running them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from ..execution import Given, is_fed, run_layers
from ..graph import Graph, Layer
from ..layers.calling import Backward

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
    bytes: int
    made: int
    last: int
    kept: bool = False


class _Trace:
    def __init__(self, graph: Graph, given: Given, mode: Backward) -> None:
        self._graph, self._given, self._mode = graph, given, mode
        self._state: Mapping[str, Any] = given.state
        self._shapes: dict[str, Any] = {}
        self._of: dict[str, _Made] = {}  # by the name that the value has now
        self._found: list[tuple[tuple[Layer, ...], int, int]] = []  # layers, bytes kept within them, bytes passing
        self.values: list[_Made] = []

    def add(self, layers: Sequence[Layer]) -> None:
        number = len(self._found)
        keys = {p.owner.layer for layer in layers for p in (*layer.params, *layer.carried)}
        fed = [top for layer in layers if is_fed(layer) for top in layer.tops]
        reads = {b for layer in layers for b in layer.bottoms} & self._of.keys()
        given = Given(
            {k: v for k, v in self._given.params.items() if k in keys},
            {k: v for k, v in self._state.items() if k in keys},
            {k: self._given.inputs[k] for k in fed},
            self._given.key,
            {},
        )
        before = {name: self._shapes[name] for name in reads}
        tops, residuals, shapes = self._residuals(layers, given, before)
        for name in reads:
            self._of[name].last = number
        seen: dict[Any, _Made | None] = {name: self._of[name] for name in reads}
        passing = sum(_bytes(x) for x in before.values())
        for name, root in tops.items():
            size = _bytes(shapes[name])
            passing += size
            if root not in seen or seen[root] is None:
                seen[root] = _Made(0 if name in fed else size, number, number)
                self.values.append(seen[root])  # type: ignore[arg-type]
            self._of[name] = seen[root]  # type: ignore[assignment]
            self._shapes[name] = shapes[name]
        within = 0
        for root, size in residuals.items():
            if (value := seen.get(root)) is not None:
                value.kept = True
            else:
                within += size
        self._found.append((tuple(layers), within, passing))

    def units(self) -> list[Unit]:
        kept = [within for _, within, _ in self._found]
        for value in self.values:
            kept[value.made] += value.bytes if value.kept else 0
        return [Unit(layers, k, passing) for (layers, _, passing), k in zip(self._found, kept, strict=True)]

    def _residuals(
        self, layers: Sequence[Layer], given: Given, before: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[Any, int], dict[str, Any]]:
        """Of each top where it comes from, of what is kept where it comes from and its bytes, the tops' shapes.

        That is the name of a bottom, "" for what lies in memory anyway, or an identity of the array.
        """
        names = sorted({top for layer in layers for top in layer.tops})

        def run(params: Any, before: Any, rest: Given) -> Any:
            def forward(params: Any, before: Any) -> Any:
                result = run_layers(layers, rest._replace(params=params), before, self._mode, self._graph.file)
                return (result.loss, [result.values[name] for name in names]), result.state

            (_, tops), pull, state = jax.vjp(forward, params, before, has_aux=True)
            return tops, jax.tree.leaves(pull), state

        closed, shapes = jax.make_jaxpr(run, return_shape=True)(given.params, dict(before), given)
        self._state = {**self._state, **shapes[2]}
        jaxpr = closed.jaxpr
        n_params = len(jax.tree.leaves(given.params))
        origin: dict[Any, Any] = dict.fromkeys(jaxpr.constvars, "")
        arguments = [""] * n_params + sorted(before) + [""] * len(jax.tree.leaves(given))
        origin |= dict(zip(jaxpr.invars, arguments, strict=True))
        roots = _origins(jaxpr, origin)
        tops = dict(zip(names, roots, strict=False))
        residuals = {
            root: _bytes(var.aval)
            for root, var in zip(roots, jaxpr.outvars, strict=True)
            if not (root == "" and isinstance(root, str))
        }
        kept = roots[len(names) : len(names) + len(shapes[1])]
        return (
            tops,
            {root: residuals[root] for root in kept if root in residuals},
            dict(zip(names, shapes[0], strict=True)),
        )


def _origins(jaxpr: Any, origin: dict[Any, Any]) -> list[Any]:
    """For each result of a jaxpr the origin of the array of which it is a view; itself if it is made there.

    Args:
        jaxpr: a `jax.extend.core.Jaxpr`.
        origin: that of its arguments and constants.
    """
    for eqn in jaxpr.eqns:
        inner = eqn.params.get("jaxpr") if eqn.primitive.name in ("jit", "pjit", "closed_call", "remat2") else None
        if inner is not None:
            inner = inner.jaxpr
            given = [_origin(v, origin) for v in eqn.invars]
            found = _origins(
                inner, {**dict.fromkeys(inner.constvars, ""), **dict(zip(inner.invars, given, strict=True))}
            )
            origin.update(zip(eqn.outvars, found, strict=True))
        elif eqn.primitive.name in _VIEWS and len(eqn.invars) == 1:
            origin[eqn.outvars[0]] = _origin(eqn.invars[0], origin)
    return [_origin(v, origin) for v in jaxpr.outvars]


def _origin(var: Any, origin: Mapping[Any, Any]) -> Any:
    return "" if hasattr(var, "val") else origin.get(var, var)  # a literal costs nothing


def _shape(x: Any) -> Any:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _bytes(x: Any) -> int:
    return math.prod(x.shape) * x.dtype.itemsize
