"""The boxes of a drawing, each a layer with those that work on its top in place, and what tells equal ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .wiring import WiredLayer


@dataclass(frozen=True)
class Box:
    """A layer, and those that work in place on its top.

    Attributes:
        layers: the layers, from top to bottom.
        sources: the boxes that it reads from, by their index, each once, in order.
    """

    layers: tuple[WiredLayer, ...]
    sources: tuple[int, ...]


def boxes_of(layers: Sequence[WiredLayer]) -> tuple[Box, ...]:
    """Return the boxes of a drawing, in the order of their first layers."""
    members: dict[int, list[WiredLayer]] = {}
    for layer in layers:
        members.setdefault(layer.head, []).append(layer)
    index = {head: i for i, head in enumerate(members)}
    box_of = {layer.number: index[layer.head] for layer in layers}
    return tuple(
        Box(tuple(inside), tuple(dict.fromkeys(box_of[s] for s in inside[0].sources if s is not None)))
        for inside in members.values()
    )


class Signatures:
    """What tells equal boxes: types, what drawings say of kernels, and how far before they are what they read.

    What comes from data, such as labels, is as if it came from nowhere, since later boxes are farther from it.
    """

    def __init__(self, boxes: Sequence[Box]) -> None:
        known: dict[object, int] = {}
        kinds = [(len(box.sources), *((x.layer.type, _kernel(x)) for x in box.layers)) for box in boxes]
        self._kinds = np.array([known.setdefault(kind, len(known)) for kind in kinds])
        self._far = np.zeros((len(boxes), max((len(box.sources) for box in boxes), default=0)), np.int64)
        for i, box in enumerate(boxes):
            self._far[i, : len(box.sources)] = [i - s if boxes[s].sources else 0 for s in box.sources]

    def repeated(self, first: int, last: int, period: int) -> npt.NDArray[np.bool_]:
        """Return for boxes from `first` up to `last - period` whether the one a period later is equal.

        What both read from before the period need not be as far away: all stages of a net may read its features.
        """
        here, there = slice(first, last - period), slice(first + period, last)
        near, after = self._far[here], self._far[there]
        alike = (near == after) | ((near > period) & (after > period))
        return (self._kinds[here] == self._kinds[there]) & alike.all(axis=1)

    def of(self, start: int, stop: int) -> bytes:
        """Return what is equal for equal ranges of boxes."""
        inside = self._far[start:stop]
        inside = np.where(inside > np.arange(stop - start)[:, None], -1, inside)
        return self._kinds[start:stop].tobytes() + inside.tobytes()


def _kernel(layer: WiredLayer) -> str:
    window = layer.style.window
    return window(layer.layer)[0] if window else ""


def crossings(boxes: Sequence[Box]) -> list[int]:
    """Return for each place between boxes (before each, and after the last) how many boxes are read across it.

    Boxes without sources, which are data, do not count.
    """
    last_reader = list(range(len(boxes)))
    for i, box in enumerate(boxes):
        for source in box.sources:
            last_reader[source] = i
    change = [0] * (len(boxes) + 2)
    for i, last in enumerate(last_reader):
        if boxes[i].sources and last > i:
            change[i + 1] += 1
            change[last + 1] -= 1
    result, open_now = [], 0
    for step in change[: len(boxes) + 1]:
        open_now += step
        result.append(open_now)
    return result
