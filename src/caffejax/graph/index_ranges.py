"""Blobs that contain labels or indices, and the ranges that the layers that read them accept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import DataError
from .graph import Graph, Layer


class IndexRange(NamedTuple):
    """The values that a layer accepts in a blob of labels or indices: 0 to `classes` - 1, and `ignored`.

    A metric also accepts the labels `ignored_elsewhere`, which other layers that read the same blob ignore. The metric
    counts a prediction for such a label as wrong.
    """

    layer: Layer
    classes: int
    ignored: int | None
    ignored_elsewhere: frozenset[int] = frozenset()


def find_index_ranges(graph: Graph, *, parts: bool = False) -> dict[str, list[IndexRange]]:
    """Return the blobs that layers read as labels or indices, with the range that each such layer accepts.

    Args:
        graph: the net.
        parts: whether a blob also gets the ranges of the blobs that contain a part of it, such as slices.
    """
    movements = {"all", "some"} if parts else {"all"}
    ranges: dict[str, list[IndexRange]] = {}
    for layer in reversed(graph.layers):
        if layer.type.traits.data_movement in movements:
            top_ranges = [r for top in layer.tops for r in ranges.get(top, ())]
            for bottom in layer.bottoms if top_ranges else ():
                ranges.setdefault(bottom, []).extend(top_ranges)
        indices = layer.type.gradient.indices
        classes = _classes(layer, [graph.blobs[name] for name in layer.bottoms])
        if classes is not None:
            ignored = None if indices.ignore_label is None else indices.ignore_label(layer.context)
            ranges.setdefault(find_index_blob(layer), []).append(IndexRange(layer, classes, ignored))
    return {name: _with_labels_ignored_elsewhere(blob_ranges) for name, blob_ranges in ranges.items()}


def _with_labels_ignored_elsewhere(ranges: list[IndexRange]) -> list[IndexRange]:
    ignored = frozenset(r.ignored for r in ranges if r.ignored is not None)
    return [
        r._replace(ignored_elsewhere=frozenset(n for n in ignored - {r.ignored} if not 0 <= n < r.classes))
        if r.layer.type.gradient.indices.counts_ignored
        else r
        for r in ranges
    ]


def find_index_blob(layer: Layer) -> str:
    """Return the first bottom that a layer reads as labels or indices."""
    return layer.bottoms[layer.type.gradient.indices.bottoms[0]]


def find_indexing_layers(layers: Iterable[Layer]) -> list[Layer]:
    """Return the layers that gather items by index. For these layers, an index out of range is an error."""
    return [layer for layer in layers if (i := layer.type.gradient.indices).gathers and i.positions(len(layer.bottoms))]


def count_indexed(layer: Layer, bottoms: Iterable[Any]) -> int:
    """Return the number of items that an indexing layer gathers from.

    Args:
        layer: one of `find_indexing_layers`.
        bottoms: the layer's bottoms, or their shapes and dtypes.
    """
    count = _classes(layer, list(bottoms))
    assert count is not None
    return count


def _classes(layer: Layer, bottoms: Sequence[Any]) -> int | None:
    indices = layer.type.gradient.indices
    if indices.num_classes is None or not indices.positions(len(bottoms)):  # an optional bottom may be left out
        return None
    count: int | None = indices.num_classes(layer.context, *bottoms)
    return count


def find_out_of_range(numbers: np.ndarray, classes: int, *ignored: int | None) -> np.ndarray:
    """Return a boolean mask of the values that are neither 0 ... `classes` - 1 nor in `ignored`.

    Values are truncated to integers first, as in Caffe. NaN is out of range.
    """
    integers = np.trunc(numbers)
    valid = (integers >= 0) & (integers < classes)  # False for NaN
    for number in ignored:
        if number is not None:
            valid |= integers == number
    return ~valid


def check_labels(blobs: Mapping[str, np.ndarray], ranges: Mapping[str, Sequence[IndexRange]]) -> None:
    """Check that labels are classes of the layers that read them.

    Args:
        blobs: arrays by blob name; blobs that are not labels are ignored.
        ranges: as returned by `find_index_ranges`.

    Raises:
        DataError: if a label is not a class. The message names the blob and the first row that contains such a label.
    """
    for name, array in blobs.items():
        for allowed in ranges.get(name, ()):
            invalid = find_out_of_range(array, allowed.classes, allowed.ignored, *allowed.ignored_elsewhere)
            if invalid.any():
                row = int(np.argwhere(np.atleast_1d(invalid))[0][0])
                message = (
                    f"blob '{name}' holds {array[invalid].flat[0]:g} in row {row} of the batch, but the layer has "
                    f"{allowed.classes} classes, 0 to {allowed.classes - 1}; correct the labels, or the num_output of "
                    "the layer that computes the scores, or set ignore_label"
                )
                raise DataError(allowed.layer.problem(message))
