"""Which blobs are read as class numbers or indices, and how far these may go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .model import Graph, Layer


class IndexRange(NamedTuple):
    """What a layer expects of a blob: whole numbers from 0 to `classes` - 1, or `ignored`."""

    layer: Layer
    classes: int
    ignored: int | None


def index_ranges(graph: Graph, *, parts: bool = False) -> dict[str, list[IndexRange]]:
    """Find the blobs that reach layers as indices, and what each such layer expects of them.

    Args:
        graph: the net.
        parts: whether a blob also gets the ranges of blobs that hold parts of it.
    """
    through = {"whole", "parts"} if parts else {"whole"}
    ranges: dict[str, list[IndexRange]] = {}
    for layer in reversed(graph.layers):
        if layer.type.facts.moves in through:
            handed = [r for top in layer.tops for r in ranges.get(top, ())]
            for bottom in layer.bottoms if handed else ():
                ranges.setdefault(bottom, []).extend(handed)
        known = layer.type.gradient.indices
        classes = _classes(layer, [graph.blobs[name] for name in layer.bottoms])
        if classes is not None:
            ignored = None if known.ignored is None else known.ignored(layer.context)
            ranges.setdefault(index_blob(layer), []).append(IndexRange(layer, classes, ignored))
    return ranges


def index_blob(layer: Layer) -> str:
    """Return the first blob that a layer reads as indices."""
    return layer.bottoms[layer.type.gradient.indices.bottoms[0]]


def indexing_layers(graph: Graph) -> list[Layer]:
    """Return the layers that pick things by number; there, a number out of range is an error."""
    return [layer for layer in graph.layers if layer.type.gradient.indices.picks]


def count_indexed(layer: Layer, bottoms: Iterable[Any]) -> int:
    """Return how many things such a layer picks from, given its bottoms or their shapes."""
    count = _classes(layer, list(bottoms))
    assert count is not None
    return count


def _classes(layer: Layer, bottoms: Sequence[Any]) -> int | None:
    known = layer.type.gradient.indices
    return None if known.classes is None else known.classes(layer.context, *bottoms)


def out_of_range(numbers: np.ndarray, classes: int, ignored: int | None = None) -> np.ndarray:
    """Return a mask of the numbers that are none of the classes; like Caffe, cut them off to whole numbers first."""
    whole = np.trunc(numbers)
    valid = (whole >= 0) & (whole < classes)  # NaN is not
    return ~valid if ignored is None else ~valid & (whole != ignored)
