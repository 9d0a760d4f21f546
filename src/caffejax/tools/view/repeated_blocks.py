"""Boxes of a drawing, and repeated blocks of boxes.

Blocks are found by their structure or by layer names such as `inception_3a/1x1`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from .layer_graph import DrawnLayer


@dataclass(frozen=True)
class Box:
    """A box of a drawing: a layer and the in-place layers that follow it on its top.

    Attributes:
        layers: the layers, in the order of execution.
        sources: indices of the boxes that the box reads from, without duplicates.
    """

    layers: tuple[DrawnLayer, ...]
    sources: tuple[int, ...]


def make_boxes(layers: Sequence[DrawnLayer]) -> tuple[Box, ...]:
    """Return the boxes of a drawing, in the order of their first layers."""
    layers_by_start: dict[int, list[DrawnLayer]] = {}
    for layer in layers:
        layers_by_start.setdefault(layer.box_start, []).append(layer)
    box_indices = {box_start: i for i, box_start in enumerate(layers_by_start)}
    box_index_by_layer = {layer.index: box_indices[layer.box_start] for layer in layers}
    return tuple(
        Box(
            tuple(box_layers),
            tuple(dict.fromkeys(box_index_by_layer[s] for s in box_layers[0].sources if s is not None)),
        )
        for box_layers in layers_by_start.values()
    )


class Signatures:
    """Signatures of boxes, by which repeated blocks are found.

    The signature of a box consists of the types and kernels of its layers, and of the distances to the boxes that it
    reads. The distance to a box of data, such as labels, counts as 0, because it grows from block to block.
    """

    def __init__(self, boxes: Sequence[Box]) -> None:
        ids: dict[object, int] = {}
        box_types = [(len(box.sources), *((x.layer.type, _format_kernel(x)) for x in box.layers)) for box in boxes]
        self._type_ids = np.array([ids.setdefault(box_type, len(ids)) for box_type in box_types])
        self._distances = np.zeros((len(boxes), max((len(box.sources) for box in boxes), default=0)), np.int64)
        for i, box in enumerate(boxes):
            self._distances[i, : len(box.sources)] = [i - s if boxes[s].sources else 0 for s in box.sources]

    def repetition_mask(self, start: int, stop: int, period: int) -> npt.NDArray[np.bool_]:
        """Return, for each box from `start` to `stop - period` (exclusive), whether the box `period` later is equal.

        Two boxes are equal if their signatures are equal, except for distances of more than one period, because all
        stages of a net may read the same features.
        """
        first_range, second_range = slice(start, stop - period), slice(start + period, stop)
        first_distances, second_distances = self._distances[first_range], self._distances[second_range]
        is_equal = (first_distances == second_distances) | ((first_distances > period) & (second_distances > period))
        return (self._type_ids[first_range] == self._type_ids[second_range]) & is_equal.all(axis=1)

    def signature(self, start: int, stop: int) -> bytes:
        """Return a hashable signature of a range of boxes."""
        distances = self._distances[start:stop]
        distances = np.where(distances > np.arange(stop - start)[:, None], -1, distances)
        return self._type_ids[start:stop].tobytes() + distances.tobytes()


def _format_kernel(layer: DrawnLayer) -> str:
    format_window = layer.style.format_window
    return format_window(layer.layer)[0] if format_window else ""


def count_crossings(boxes: Sequence[Box]) -> list[int]:
    """For each gap between boxes, return the number of boxes before the gap that boxes after the gap read.

    There is a gap before each box and after the last box. Boxes without sources, which are data, do not count.
    """
    last_readers = list(range(len(boxes)))
    for i, box in enumerate(boxes):
        for source in box.sources:
            last_readers[source] = i
    changes = [0] * (len(boxes) + 2)
    for i, last_reader in enumerate(last_readers):
        if boxes[i].sources and last_reader > i:
            changes[i + 1] += 1
            changes[last_reader + 1] -= 1
    counts, num_open = [], 0
    for delta in changes[: len(boxes) + 1]:
        num_open += delta
        counts.append(num_open)
    return counts


_MAX_BLOCK_BOXES = 250  # maximum number of boxes in a repeated block
_MIN_BLOCK_LAYERS = 3  # minimum number of layers in a block
_SEPARATORS = "/_-.:"  # characters after which a common prefix of names may end


@dataclass(frozen=True)
class Block:
    """Consecutive boxes that can be drawn as one.

    Attributes:
        start, stop: the range of the boxes.
        label: the text of the block in the drawing.
        parts: the blocks in a sequence of equal blocks; () for a single block.
    """

    start: int
    stop: int
    label: str
    parts: tuple[Block, ...] = ()


def find_blocks(boxes: Sequence[Box]) -> tuple[Block, ...]:
    """Return the blocks of a net in order, without overlaps.

    They are searched for in this order:

    - consecutive repetitions, beginning with the one that covers the most boxes
    - groups that occur several times with other boxes between them
    - neighbours whose names have the same prefix up to a slash
    """
    signatures, crossing_counts = Signatures(boxes), count_crossings(boxes)
    blocks = list(_find_repetitions(boxes, signatures, crossing_counts, 0, len(boxes)))
    blocks += _find_recurring_groups(boxes, signatures, crossing_counts, blocks)
    blocks += _find_named_groups(boxes, blocks)
    return tuple(sorted(blocks, key=lambda block: block.start))


def _find_repetitions(
    boxes: Sequence[Box], signatures: Signatures, crossing_counts: Sequence[int], first_box: int, stop: int
) -> Iterator[Block]:
    """Yield sequences of equal blocks among boxes `first_box` to `stop` (exclusive).

    Sequences whose blocks fork at most once are preferred to others, and long sequences to short ones.
    """
    best: tuple[bool, int, int, int] | None = None  # (forks at most once, covered boxes, -period, -start)
    for period in range(1, min((stop - first_box) // 2, _MAX_BLOCK_BOXES) + 1):
        for start, length in _find_true_runs(signatures.repetition_mask(first_box, stop, period)):
            repetitions = length // period + 1
            if repetitions < (2 if period > 1 else _MIN_BLOCK_LAYERS):
                continue
            starts = [first_box + start + shift for shift in range(length % period + 1)]
            best_start = min(starts, key=lambda index: (crossing_counts[index], index))
            num_layers = sum(len(box.layers) for box in boxes[best_start : best_start + period])
            candidate = (
                _count_branchings(crossing_counts, best_start, best_start + period) <= 1,
                repetitions * period,
                -period,
                -best_start,
            )
            if num_layers >= _MIN_BLOCK_LAYERS and (best is None or candidate > best):
                best = candidate
    if best is None:
        return
    _, num_covered, period, best_start = best[0], best[1], -best[2], -best[3]
    parts = tuple(
        _make_block(boxes, index, index + period) for index in range(best_start, best_start + num_covered, period)
    )
    yield from _find_repetitions(boxes, signatures, crossing_counts, first_box, best_start)
    yield Block(best_start, best_start + num_covered, f"{parts[0].label} … {parts[-1].label}", parts)
    yield from _find_repetitions(boxes, signatures, crossing_counts, best_start + num_covered, stop)


def _count_branchings(crossing_counts: Sequence[int], start: int, stop: int) -> int:
    """Return how often the data flow of boxes `start` to `stop` (exclusive) forks and merges again."""
    cut_points = [index for index in range(start, stop + 1) if crossing_counts[index] <= crossing_counts[start]]
    return sum(b - a > 1 for a, b in pairwise(cut_points))


def _find_true_runs(flags: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        yield start, stop - start


def _find_recurring_groups(
    boxes: Sequence[Box], signatures: Signatures, crossing_counts: Sequence[int], blocks: Sequence[Block]
) -> list[Block]:
    """Return groups of boxes that occur more than once and do not overlap other blocks.

    At most one connection crosses the start of a group, and at most one crosses its end.
    """
    cut_points = [index for index, count in enumerate(crossing_counts) if count <= 1]
    ranges = [(a, b) for a, b in pairwise(cut_points) if b - a > 1]
    counts = Counter(signatures.signature(a, b) for a, b in ranges)
    return [
        _make_block(boxes, a, b)
        for a, b in ranges
        if counts[signatures.signature(a, b)] > 1 and _is_disjoint(blocks, a, b)
    ]


def _find_named_groups(boxes: Sequence[Box], blocks: Sequence[Block]) -> list[Block]:
    """Return groups of neighbours whose names have the same prefix up to a slash; [] if a net has only one block."""
    scopes = [box.layers[0].layer.name.rpartition("/")[0].partition("/")[0] for box in boxes]
    starts = [i for i in range(len(boxes)) if i == 0 or scopes[i] != scopes[i - 1]]
    ranges = [
        (a, b)
        for a, b in pairwise([*starts, len(boxes)])
        if scopes[a] and b - a > 1 and sum(len(box.layers) for box in boxes[a:b]) >= _MIN_BLOCK_LAYERS
    ]
    return (
        [_make_block(boxes, a, b) for a, b in ranges if _is_disjoint(blocks, a, b)]
        if len(ranges) + len(blocks) > 1
        else []
    )


def _is_disjoint(blocks: Sequence[Block], start: int, stop: int) -> bool:
    return all(stop <= block.start or block.stop <= start for block in blocks)


def _make_block(boxes: Sequence[Box], start: int, stop: int) -> Block:
    """Return a block. Its label is the common prefix of its layer names or, if there is none, its last box's name."""
    names = [layer.layer.name for box in boxes[start:stop] for layer in box.layers]
    # the list is as long as the shortest name
    is_equal = [len(set(letters)) == 1 for letters in zip(*names, strict=False)]
    prefix = names[0][: [*is_equal, False].index(False)]
    # in each name, a separator follows the prefix, or the name ends
    is_boundary = all(name[len(prefix) : len(prefix) + 1] in _SEPARATORS for name in names)
    end = len(prefix) if is_boundary else max(prefix.rfind(separator) for separator in _SEPARATORS)
    label = prefix[:end] if end > 0 else boxes[stop - 1].layers[0].layer.name
    return Block(start, stop, label.strip(_SEPARATORS) or names[0])
