"""The pass that cuts a schedule round the layers on the host.

Of Filter the number of rows depends on the data, so layers after it that treat every row by itself make parts that run
on rows padded to a power of two: at most log2(batch) compilations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from ..graph import Layer
from ..layers import OnHost
from .model import How, Part, Schedule


def cut_round_host(schedule: Schedule) -> Schedule:
    """Cut a schedule into parts of one kind: host layers, layers on padded rows, all others."""
    how = _how([layer for part in schedule.parts for layer in part.layers])
    return replace(schedule, parts=tuple(cut for part in schedule.parts for cut in _cut(part, how)))


def _cut(part: Part, how: dict[str, How]) -> list[Part]:
    groups = groupby(part.steps, key=lambda step: how[step.first.key])
    return [replace(part, steps=tuple(steps), how=kind) for kind, steps in groups]


def _how(layers: Sequence[Layer]) -> dict[str, How]:
    """Return which layers run on the host, which on padded rows, which are traced as they are."""
    ragged: set[str] = set()
    how: dict[str, How] = {}
    for layer in layers:
        rows = bool(layer.bottoms) and ragged.issuperset(layer.bottoms) and _by_rows(layer)
        how[layer.key] = "host" if layer.type.on_host else "rows" if rows else "traced"
        if isinstance(runs := layer.type.runs, OnHost):
            rows = runs.ragged
        (ragged.update if rows else ragged.difference_update)(layer.tops)
    return how


def _by_rows(layer: Layer) -> bool:
    """Return whether rows of padding would change nothing; statistics and losses would count them."""
    return layer.row_wise and not any(layer.loss_weights) and all(p.spec.learnable for p in layer.owned)
