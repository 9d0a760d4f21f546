"""The residuals of consecutive layers: what they leave in memory for the backward pass, found by tracing them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .model import Part, Schedule, Step
from .running import Given, Result, compute, run

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
        steps: the steps.
        residuals: bytes that its backward pass, or that of what reads its tops, needs of what is made here.
        passing: bytes of its bottoms and tops: as much goes through its backward pass as diffs.
    """

    steps: tuple[Step, ...]
    residuals: int
    passing: int


def units_of(schedule: Schedule, given: Given) -> tuple[list[Unit], list[Value]]:
    """Return a schedule's steps as units, in order, and what passes between them.

    Args:
        schedule: of one part, without host layers.
        given: what a pass is given; arrays or `jax.ShapeDtypeStruct`.
    """
    (part,) = schedule.parts
    units = replace(schedule, parts=tuple(replace(part, steps=steps) for steps in _together(part.steps)))
    trace = _Trace()
    run(units, jax.tree.map(_shape, given), runner=trace)
    return trace.units(), [Value(v.bytes, v.made, v.last) for v in trace.values]


def _together(steps: Iterable[Step]) -> Iterator[tuple[Step, ...]]:
    unit: list[Step] = []
    for step in steps:
        if unit and not step.first.in_place and not all(other.first.inserted_split for other in unit):
            yield tuple(unit)
            unit = []
        unit.append(step)
    yield tuple(unit)


@dataclass
class _Made:
    """A `Value` in the making."""

    bytes: int
    made: int
    last: int
    is_residual: bool = False


class _Traced(NamedTuple):
    """What a unit makes and its residuals, each with its origin: a bottom's name, `_GIVEN`, or a mark of its own."""

    tops: dict[str, tuple[Any, jax.ShapeDtypeStruct]]
    residuals: dict[Any, int]  # bytes by origin
    state: Any


class _Trace:
    """Runs units on shapes, and finds what they leave, by the names that blobs have so far."""

    def __init__(self) -> None:
        self._made: dict[str, _Made] = {}
        # steps, bytes of residuals within them, bytes passing
        self._found: list[tuple[tuple[Step, ...], int, int]] = []
        self.values: list[_Made] = []

    def __call__(self, part: Part, given: Given, before: Any, keep: frozenset[str] | None) -> Result:
        number = len(self._found)
        traced = _traced(part, given, before)
        made = {name: self._made[name] for name in before}
        for value in made.values():
            value.last = number
        origins: dict[Any, _Made] = {**made}
        for name, (origin, shape) in traced.tops.items():
            if origin not in origins:
                origins[origin] = _Made(0 if origin == _GIVEN else size(shape), number, number)
                self.values.append(origins[origin])
            self._made[name] = origins[origin]
        within = 0
        for origin, count in traced.residuals.items():
            if origin in origins:
                origins[origin].is_residual = True
            elif origin != _GIVEN:
                within += count
        tops = (shape for _, shape in traced.tops.values())
        self._found.append((part.steps, within, sum(map(size, [*before.values(), *tops]))))
        made_here: Any = {name: shape for name, (_, shape) in traced.tops.items()}
        return Result(made_here, traced.state, jnp.zeros(()))

    def units(self) -> list[Unit]:
        residuals = [within for _, within, _ in self._found]
        for value in self.values:
            residuals[value.made] += value.bytes if value.is_residual else 0
        return [Unit(steps, k, passing) for (steps, _, passing), k in zip(self._found, residuals, strict=True)]


def _traced(part: Part, given: Given, before: Mapping[str, Any]) -> _Traced:
    names = sorted(part.makes)

    def with_pullback(params: Any, before: Any, rest: Given) -> Any:
        def forward(params: Any, before: Any) -> Any:
            result = compute(part, rest._replace(params=params), before)
            return (result.loss, [result.values[name] for name in names]), result.state

        (_, tops), pullback, state = jax.vjp(forward, params, before, has_aux=True)
        return tops, jax.tree.leaves(pullback), state

    traced, (tops, residuals, state) = jax.make_jaxpr(with_pullback, return_shape=True)(
        given.params, dict(before), given
    )
    others = (len(jax.tree.leaves(tree)) for tree in (given.params, given))
    ahead, behind = ([_GIVEN] * n for n in others)
    origins = _origins(traced.jaxpr, [*ahead, *sorted(before), *behind])
    of_tops, of_residuals = origins[: len(tops)], origins[len(tops) : len(tops) + len(residuals)]
    return _Traced(
        tops=dict(zip(names, zip(of_tops, tops, strict=True), strict=True)),
        residuals={origin: size(x) for origin, x in zip(of_residuals, residuals, strict=True)},
        state=state,
    )


def _origins(jaxpr: Any, arguments: Sequence[Any]) -> list[Any]:
    """Find the origin of the array that each result of a jaxpr is a view of: an argument's, or a mark of its own.

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


def size(tree: Any) -> int:
    """Return the bytes of all arrays in a tree."""
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def _shape(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)
