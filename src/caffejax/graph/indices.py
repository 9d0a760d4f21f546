"""Which blobs are read as class numbers or indices, and how far these may go."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import numpy as np

from .model import Graph, Layer

# types each of whose tops holds all that its bottoms hold
HANDING_ON = frozenset({"Split", "Concat", "Flatten", "Reshape"})


class IndexRange(NamedTuple):
    """What a layer expects of a blob: whole numbers from 0 to `classes` - 1, or `ignored`."""

    layer: Layer
    classes: int
    ignored: int | None


def index_ranges(graph: Graph, through: Collection[str] = HANDING_ON) -> dict[str, list[IndexRange]]:
    """For each blob that reaches a layer as indices, what each such layer expects.

    Args:
        graph: the net.
        through: the types through which a top's ranges are its bottoms' too.
    """
    ranges: dict[str, list[IndexRange]] = {}
    for layer in reversed(graph.layers):
        if layer.type.name in through:
            handed = [r for top in layer.tops for r in ranges.get(top, ())]
            for bottom in layer.bottoms if handed else ():
                ranges.setdefault(bottom, []).extend(handed)
        for i in layer.index_bottoms:
            classes = _classes(graph, layer, i)
            if classes is not None:
                ranges.setdefault(layer.bottoms[i], []).append(IndexRange(layer, classes, _ignored(layer)))
    return ranges


def indexing_layers(graph: Graph) -> list[Layer]:
    """The layers that pick things by number, of which a number out of range is an error."""
    return [layer for layer in graph.layers if layer.type.count_indexed is not None]


def count_indexed(layer: Layer, bottoms: Iterable[Any]) -> int:
    """How many things such a layer picks from, given its bottoms, or anything with their shapes."""
    assert layer.type.count_indexed is not None
    return layer.type.count_indexed(layer.context, *bottoms)


def out_of_range(numbers: np.ndarray, classes: int, ignored: int | None = None) -> np.ndarray:
    """Return where numbers are none of the classes, as booleans; Caffe cuts them off to whole numbers."""
    whole = np.trunc(numbers)
    valid = (whole >= 0) & (whole < classes)  # NaN is not
    return ~valid if ignored is None else ~valid & (whole != ignored)


def _classes(graph: Graph, layer: Layer, bottom: int) -> int | None:
    """How many indices a bottom may hold; None if nothing says."""
    if layer.type.count_indexed is not None:
        return count_indexed(layer, (graph.blobs[name] for name in layer.bottoms))
    param = layer.context.param
    scores, labels = (graph.blobs[layer.bottoms[i]].shape for i in (0, bottom))
    axis = getattr(param, "axis", 1)
    if bottom == 0 or not -len(scores) <= axis < len(scores):
        return None
    classes = scores[axis]
    return classes if classes * math.prod(labels) == math.prod(scores) else None


def _ignored(layer: Layer) -> int | None:
    for message in (layer.context.layer.loss_param, layer.context.param):
        if hasattr(message, "ignore_label") and message.HasField("ignore_label"):
            return int(message.ignore_label)
    return None
