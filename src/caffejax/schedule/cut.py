"""The pass that cuts a schedule round the layers on the host.

Of Filter the number of rows depends on the data, so layers after it that treat every row by itself make parts that run
on rows padded to a power of two: at most log2(batch) compilations. Those that take regions out of maps treat every row
of the regions so, and the maps stay as they are. Where a schedule is cut at all, the same goes for layers whose tops are
padded in compiled code: their tops are trimmed, and so all blobs have Caffe's shapes.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from itertools import groupby

from ..graph import Layer
from ..layers import OnHost
from .model import How, Part, Schedule


def cut_round_host(schedule: Schedule, *, trim: bool) -> Schedule:
    """Cut a schedule into parts of one kind: host layers, layers on padded rows, all others.

    Args:
        schedule: the schedule.
        trim: whether layers with padded tops are parts of their own, for the tops to be trimmed.
    """
    how = _how([layer for part in schedule.parts for layer in part.layers], trim)
    return replace(schedule, parts=tuple(cut for part in schedule.parts for cut in _cut(part, how)))


def _cut(part: Part, how: dict[str, tuple[How, frozenset[str]]]) -> list[Part]:
    parts = []
    for kind, steps in groupby(part.steps, key=lambda step: how[step.first.key][0]):
        cut = replace(part, steps=tuple(steps), how=kind)
        ragged = how[cut.layers[0].key][1] if kind == "rows" else frozenset()
        parts.append(replace(cut, padded=ragged.intersection(cut.reads)))
    return parts


def _how(layers: Sequence[Layer], trim: bool) -> dict[str, tuple[How, frozenset[str]]]:
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
        elif trim and layer.type.facts.padded:
            how[layer.key], rows = ("padded", frozenset(ragged)), True
        (ragged.update if rows else ragged.difference_update)(layer.tops)
    return how


def padded_blobs(layers: Sequence[Layer]) -> dict[str, str]:
    """Return the blobs that have rows of padding where nothing is trimmed, each with the padded top that began it."""
    found: dict[str, str] = {}
    for layer in layers:
        roots = {found[bottom] for bottom in layer.bottoms_with_rows if bottom in found}
        follows = len(roots) == 1 and _by_rows(layer, found.keys())
        for top in layer.tops:
            if layer.type.facts.padded:
                found[top] = top
            elif follows:
                found[top] = min(roots)
            else:
                found.pop(top, None)
    return found


def _by_rows(layer: Layer, ragged: Set[str]) -> bool:
    """Return whether its tops' rows are ragged ones, and rows of padding would change nothing.

    Statistics and losses would count them.
    """
    if not (layer.bottoms and layer.row_wise) or any(layer.loss_weights):
        return False
    rows = layer.bottoms_with_rows
    own = ragged.intersection(layer.bottoms) == set(rows)
    return own and all(p.spec.learnable for p in layer.owned)
