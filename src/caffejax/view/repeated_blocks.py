"""Boxes of a drawing, and blocks of boxes: repetitions, found by structure or by names such as `inception_3a/1x1`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from .layer_graph import WiredLayer


@dataclass(frozen=True)
class Box:
    """A box of a drawing: a layer and the in-place layers that follow it on its top.

    Attributes:
        layers: the layers, in the order of execution.
        sources: indices of the boxes that the box reads from, without duplicates.
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
    """Signatures of boxes: layer types, kernels, and the distances to the boxes that they read.

    Boxes of data, such as labels, do not count as sources, because their distance grows from block to block.
    """

    def __init__(self, boxes: Sequence[Box]) -> None:
        numbers: dict[object, int] = {}
        kinds = [(len(box.sources), *((x.layer.type, _kernel(x)) for x in box.layers)) for box in boxes]
        self._kinds = np.array([numbers.setdefault(kind, len(numbers)) for kind in kinds])
        self._far = np.zeros((len(boxes), max((len(box.sources) for box in boxes), default=0)), np.int64)
        for i, box in enumerate(boxes):
            self._far[i, : len(box.sources)] = [i - s if boxes[s].sources else 0 for s in box.sources]

    def repetition_mask(self, first: int, last: int, period: int) -> npt.NDArray[np.bool_]:
        """Return for each box from `first` to `last - period` (exclusive) whether the box `period` later is equal.

        Distances of more than one period may differ, because all stages of a net may read the same features.
        """
        here, there = slice(first, last - period), slice(first + period, last)
        near, after = self._far[here], self._far[there]
        alike = (near == after) | ((near > period) & (after > period))
        return (self._kinds[here] == self._kinds[there]) & alike.all(axis=1)

    def signature(self, start: int, stop: int) -> bytes:
        """Return a hashable signature of a range of boxes."""
        inside = self._far[start:stop]
        inside = np.where(inside > np.arange(stop - start)[:, None], -1, inside)
        return self._kinds[start:stop].tobytes() + inside.tobytes()


def _kernel(layer: WiredLayer) -> str:
    window = layer.style.window
    return window(layer.layer)[0] if window else ""


def crossings(boxes: Sequence[Box]) -> list[int]:
    """Return for each gap between boxes the number of boxes before it that are read after it.

    There is a gap before each box, and one after the last. Boxes without sources, which are data, do not count.
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


_LONGEST = 250  # maximum boxes of a repeated block
_FEWEST = 3  # minimum layers of a block
_MARKS = "/_-.:"  # characters after which a common prefix of names may end


@dataclass(frozen=True)
class Block:
    """Consecutive boxes that can be drawn as one.

    Attributes:
        start, stop: the first box, and the box after the last.
        label: the text of the block in the drawing.
        parts: the blocks in a sequence of equal blocks; empty for a single block.
    """

    start: int
    stop: int
    label: str
    parts: tuple[Block, ...] = ()


def blocks_of(boxes: Sequence[Box]) -> tuple[Block, ...]:
    """Return the blocks of a net in order, without overlaps.

    Three kinds of blocks are searched in this order: consecutive repetitions, beginning with the one that covers
    most boxes; groups that occur several times with other boxes between them; neighbours whose names share a prefix up
    to a slash.
    """
    alike, open_at = Signatures(boxes), crossings(boxes)
    blocks = list(_runs(boxes, alike, open_at, 0, len(boxes)))
    blocks += _find_recurring(boxes, alike, open_at, blocks)
    blocks += _find_named(boxes, blocks)
    return tuple(sorted(blocks, key=lambda block: block.start))


def _runs(boxes: Sequence[Box], alike: Signatures, open_at: Sequence[int], first: int, last: int) -> Iterator[Block]:
    """Yield sequences of equal blocks among boxes `first` to `last` (exclusive).

    A sequence whose block forks at most once is preferred, then the sequence that covers most boxes.
    """
    best: tuple[bool, int, int, int] | None = None  # simple or not, boxes covered, minus the period, minus the start
    for period in range(1, min((last - first) // 2, _LONGEST) + 1):
        for start, length in _stretches(alike.repetition_mask(first, last, period)):
            times = length // period + 1
            if times < (2 if period > 1 else _FEWEST):
                continue
            begins = [first + start + shift for shift in range(length % period + 1)]
            begin = min(begins, key=lambda index: (open_at[index], index))
            layers = sum(len(box.layers) for box in boxes[begin : begin + period])
            candidate = _forks(open_at, begin, begin + period) <= 1, times * period, -period, -begin
            if layers >= _FEWEST and (best is None or candidate > best):
                best = candidate
    if best is None:
        return
    _, covered, period, begin = best[0], best[1], -best[2], -best[3]
    parts = tuple(_block(boxes, at, at + period) for at in range(begin, begin + covered, period))
    yield from _runs(boxes, alike, open_at, first, begin)
    yield Block(begin, begin + covered, f"{parts[0].label} … {parts[-1].label}", parts)
    yield from _runs(boxes, alike, open_at, begin + covered, last)


def _forks(open_at: Sequence[int], start: int, stop: int) -> int:
    """Return the number of times that the data flow of boxes `start` to `stop` forks and joins again."""
    cuts = [index for index in range(start, stop + 1) if open_at[index] <= open_at[start]]
    return sum(b - a > 1 for a, b in pairwise(cuts))


def _stretches(flags: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield start and length of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        yield start, stop - start


def _find_recurring(
    boxes: Sequence[Box], alike: Signatures, open_at: Sequence[int], blocks: Sequence[Block]
) -> list[Block]:
    """Return groups of boxes that occur more than once, outside the other blocks.

    At most one connection crosses the start and the end of a group.
    """
    cuts = [index for index, count in enumerate(open_at) if count <= 1]
    ranges = [(a, b) for a, b in pairwise(cuts) if b - a > 1]
    counts = Counter(alike.signature(a, b) for a, b in ranges)
    return [_block(boxes, a, b) for a, b in ranges if counts[alike.signature(a, b)] > 1 and _free(blocks, a, b)]


def _find_named(boxes: Sequence[Box], blocks: Sequence[Block]) -> list[Block]:
    """Return neighbours whose names share a prefix up to a slash, if a net has several such groups."""
    scopes = [box.layers[0].layer.name.rpartition("/")[0].partition("/")[0] for box in boxes]
    starts = [i for i in range(len(boxes)) if i == 0 or scopes[i] != scopes[i - 1]]
    ranges = [
        (a, b)
        for a, b in pairwise([*starts, len(boxes)])
        if scopes[a] and b - a > 1 and sum(len(box.layers) for box in boxes[a:b]) >= _FEWEST
    ]
    return [_block(boxes, a, b) for a, b in ranges if _free(blocks, a, b)] if len(ranges) + len(blocks) > 1 else []


def _free(blocks: Sequence[Block], start: int, stop: int) -> bool:
    return all(stop <= block.start or block.stop <= start for block in blocks)


def _block(boxes: Sequence[Box], start: int, stop: int) -> Block:
    """Return a block labelled with the common prefix of its layers' names, or else with its last box's name."""
    names = [layer.layer.name for box in boxes[start:stop] for layer in box.layers]
    alike = [len(set(letters)) == 1 for letters in zip(*names, strict=False)]  # up to the length of the shortest name
    common = names[0][: [*alike, False].index(False)]
    is_boundary = all(name[len(common) : len(common) + 1] in _MARKS for name in names)  # a mark follows, or nothing
    end = len(common) if is_boundary else max(common.rfind(mark) for mark in _MARKS)
    label = common[:end] if end > 0 else boxes[stop - 1].layers[0].layer.name
    return Block(start, stop, label.strip(_MARKS) or names[0])
