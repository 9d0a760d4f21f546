"""The pass that cuts a schedule round the layers on the host.

Of Filter the number of rows depends on the data, so layers after it that treat every row by itself make parts that run
on rows padded to a power of two: at most log2(batch) compilations. Where a schedule is cut at all, the same goes for
layers whose tops are padded in compiled code: their tops are trimmed, and so all blobs have Caffe's shapes. Of layers
that take regions out of maps only the regions have such rows, and the maps stay as they are.
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
        before = how[cut.layers[0].key][1] if kind == "rows" else frozenset()
        parts.append(replace(cut, ragged=before.intersection(cut.reads)))
    return parts


def _how(layers: Sequence[Layer], trim: bool) -> dict[str, tuple[How, frozenset[str]]]:
    """Return which layers run on the host, which on padded rows, which are traced as they are.

    And for each, of which blobs before it the data says how many rows there are.
    """
    ragged: set[str] = set()
    how: dict[str, tuple[How, frozenset[str]]] = {}
    for layer in layers:
        rows = bool(layer.bottoms) and _own_rows(layer, ragged) and _by_rows(layer)
        kind: How = "host" if layer.type.on_host else "rows" if rows else "traced"
        if isinstance(runs := layer.type.runs, OnHost):
            rows = runs.ragged
        elif trim and layer.type.facts.padded:
            kind, rows = "padded", True
        how[layer.key] = kind, frozenset(ragged)
        (ragged.update if rows else ragged.difference_update)(layer.tops)
    return how


def padded_blobs(layers: Sequence[Layer]) -> dict[str, str]:
    """Return the blobs that have rows of padding where nothing is trimmed, each with the padded top that began it."""
    found: dict[str, str] = {}
    for layer in layers:
        roots = {found.get(bottom) for bottom in layer.bottoms_with_rows}
        for top in layer.tops:
            if layer.type.facts.padded:
                found[top] = top
            elif len(roots) == 1 and (root := roots.copy().pop()) is not None and _by_rows(layer):
                found[top] = root
            else:
                found.pop(top, None)
    return found


def _own_rows(layer: Layer, ragged: Set[str]) -> bool:
    """Return whether just those of its bottoms whose rows the tops' are have ragged rows."""
    return ragged & set(layer.bottoms) == set(layer.bottoms_with_rows)


def _by_rows(layer: Layer) -> bool:
    """Return whether rows of padding would change nothing; statistics and losses would count them."""
    return layer.row_wise and not any(layer.loss_weights) and all(p.spec.learnable for p in layer.owned)
