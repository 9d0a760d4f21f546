"""The schedule: which layers are computed together, in which order, and how. Nothing here computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, Literal

from ..graph import Graph, Layer

How = Literal["traced", "rows", "padded", "host", "remat"]

_WORDS: Mapping[How, str] = {
    "traced": "compiled",
    "rows": "compiled for rows padded to a power of two",
    "padded": "compiled, tops trimmed to the rows that there are",
    "host": "on the host",
    "remat": "compiled, and run again in the backward pass",
}


@dataclass(frozen=True, eq=False)
class Step:
    """A layer, and those that follow in place and are computed together with it."""

    layers: tuple[Layer, ...]

    @property
    def first(self) -> Layer:
        """The layer that the others are fused into."""
        return self.layers[0]


@dataclass(frozen=True, eq=False)
class Part:
    """Consecutive steps that run as one.

    Attributes:
        steps: the steps.
        how: as they are traced with all else; compiled for padded rows; compiled with padded tops, which are trimmed;
            on the host; or "remat", recomputed in the backward pass.
        ragged: of "rows", the blobs that it reads whose rows are padded.
    """

    steps: tuple[Step, ...]
    how: How = "traced"
    ragged: frozenset[str] = frozenset()

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Its layers, in order."""
        return tuple(chain.from_iterable(step.layers for step in self.steps))

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """What is done: in one graph, parts of equal keys do the same."""
        return self.how, tuple(tuple(layer.key for layer in step.layers) for step in self.steps)

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The blobs that it reads and does not make before, in the order of reading."""
        return blobs_read(self.layers)

    @cached_property
    def makes(self) -> frozenset[str]:
        """The blobs that it makes, or writes over."""
        return frozenset(top for layer in self.layers for top in layer.tops)

    @cached_property
    def owners(self) -> frozenset[str]:
        """The keys of the layers whose params and state it uses."""
        return frozenset(p.owner.layer for layer in self.layers for p in layer.owned)

    def using(self, tree: Mapping[str, Any]) -> dict[str, Any]:
        """Return what it uses of params or state."""
        return {key: value for key, value in tree.items() if key in self.owners}


@dataclass(frozen=True, eq=False)
class Schedule:
    """How a graph's layers, or a range of them, run.

    Attributes:
        graph: the graph.
        parts: in the order of execution.
    """

    graph: Graph
    parts: tuple[Part, ...]

    def needed_after(self, part: int) -> frozenset[str]:
        """Return the blobs that parts after this one read."""
        return self._needed[part]

    @cached_property
    def _needed(self) -> list[frozenset[str]]:
        needed: list[frozenset[str]] = [frozenset()]
        for part in reversed(self.parts[1:]):
            needed.append(needed[-1] | frozenset(part.reads))
        return needed[::-1]

    def __str__(self) -> str:
        """Describe the plan: a line for each part, and one for each step of several layers."""
        lines = []
        for part in self.parts:
            first, last = part.layers[0].name, part.layers[-1].name
            names = first if first == last else f"{first} .. {last}"
            fused = [" + ".join(layer.name for layer in step.layers) for step in part.steps if len(step.layers) > 1]
            lines += [f"{_WORDS[part.how]}: {names}", *(f"  fused: {text}" for text in fused)]
        return "\n".join(lines)


def schedule_of(graph: Graph, first: int = 0, last: int | None = None) -> Schedule:
    """Return a graph's layers from number `first` to `last` (all unless given) as one part, each a step of its own."""
    layers = graph.layers[first : None if last is None else last + 1]
    return Schedule(graph, (part_of(layers),) if layers else ())


def part_of(layers: Iterable[Layer]) -> Part:
    """Return layers as one part, each a step of its own."""
    return Part(tuple(Step((layer,)) for layer in layers))


def one_by_one(schedule: Schedule) -> Schedule:
    """Give each layer a part of its own."""
    layers = (layer for part in schedule.parts for layer in part.layers)
    return replace(schedule, parts=tuple(part_of((layer,)) for layer in layers))


def blobs_read(layers: Sequence[Layer]) -> tuple[str, ...]:
    """Return the blobs that layers read and do not make before, in the order of reading."""
    read: dict[str, None] = {}
    made: set[str] = set()
    for layer in layers:
        read.update(dict.fromkeys(name for name in layer.bottoms if name not in made))
        made.update(layer.tops)
    return tuple(read)
