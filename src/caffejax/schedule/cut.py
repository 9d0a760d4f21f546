"""The pass that cuts a schedule round the layers on the host.

Of Filter the number of rows depends on the data, so layers after it that treat every row by itself make parts that run
on rows padded to a power of two: at most log2(batch) compilations. Those that take regions out of maps treat every row
of the regions so, and the maps stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from itertools import groupby

from ..graph import Layer
from ..layers import OnHost
from .model import How, Part, Schedule


def cut_round_host(schedule: Schedule) -> Schedule:
    """Cut a schedule into parts of one kind: host layers, layers on padded rows, all others."""
    how = _how([layer for part in schedule.parts for layer in part.layers])
    return replace(schedule, parts=tuple(cut for part in schedule.parts for cut in _cut(part, how)))


def _cut(part: Part, how: dict[str, tuple[How, frozenset[str]]]) -> list[Part]:
    parts = []
    for kind, steps in groupby(part.steps, key=lambda step: how[step.first.key][0]):
        cut = replace(part, steps=tuple(steps), how=kind)
        ragged = how[cut.layers[0].key][1] if kind == "rows" else frozenset()
        parts.append(replace(cut, padded=ragged.intersection(cut.reads)))
    return parts


def _how(layers: Sequence[Layer]) -> dict[str, tuple[How, frozenset[str]]]:
    """Return which layers run on the host, which on padded rows, which are traced as they are.

    And for each, of which blobs before it the data says how many rows there are.
    """
    ragged: set[str] = set()
    how: dict[str, tuple[How, frozenset[str]]] = {}
    for layer in layers:
        rows = _by_rows(layer, ragged)
        how[layer.key] = "host" if layer.type.on_host else "rows" if rows else "traced", frozenset(ragged)
        if isinstance(runs := layer.type.runs, OnHost):
            rows = runs.ragged
        (ragged.update if rows else ragged.difference_update)(layer.tops)
    return how


def _by_rows(layer: Layer, ragged: Set[str]) -> bool:
    """Return whether its tops' rows are ragged ones, and rows of padding would change nothing.

    Statistics and losses would count them.
    """
    if not (layer.bottoms and layer.row_wise) or any(layer.loss_weights):
        return False
    rows = layer.bottoms_with_rows
    own = ragged.intersection(layer.bottoms) == set(rows)
    return own and all(p.spec.learnable for p in layer.owned)
