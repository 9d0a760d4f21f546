"""Blobs that contain labels or indices, and the range of values that each of their readers accepts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...base.errors import DataError
from .graph import Graph, Layer


class IndexRange(NamedTuple):
    """The values that a layer accepts in a blob of labels or indices: 0 to `num_classes` - 1, and `ignore_label`.

    A metric also accepts the labels `ignored_elsewhere`, which other layers that read the same blob ignore. The metric
    counts a prediction for such a label as wrong.
    """

    layer: Layer
    num_classes: int
    ignore_label: int | None
    ignored_elsewhere: frozenset[int] = frozenset()


def find_index_ranges(graph: Graph, *, with_parts: bool = False) -> dict[str, list[IndexRange]]:
    """Return the blobs that layers read as labels or indices, with the range that each such layer accepts.

    Args:
        graph: the net.
        with_parts: whether to include layers that read only a slice or another part of the blob.
    """
    accepted_movements = {"all", "some"} if with_parts else {"all"}
    ranges: dict[str, list[IndexRange]] = {}
    for layer in reversed(graph.layers):
        if layer.type.traits.data_movement in accepted_movements:
            top_ranges = [r for top in layer.tops for r in ranges.get(top, ())]
            for bottom in layer.bottoms if top_ranges else ():
                ranges.setdefault(bottom, []).extend(top_ranges)
        indices = layer.type.gradient.indices
        num_classes = _count_classes(layer, [graph.blobs[name] for name in layer.bottoms])
        if num_classes is not None:
            ignore_label = None if indices.ignore_label is None else layer.context.call(indices.ignore_label)
            ranges.setdefault(find_index_blob(layer), []).append(IndexRange(layer, num_classes, ignore_label))
    return {name: _add_labels_ignored_elsewhere(blob_ranges) for name, blob_ranges in ranges.items()}


def _add_labels_ignored_elsewhere(ranges: list[IndexRange]) -> list[IndexRange]:
    ignore_labels = frozenset(r.ignore_label for r in ranges if r.ignore_label is not None)
    return [
        r._replace(
            ignored_elsewhere=frozenset(n for n in ignore_labels - {r.ignore_label} if not 0 <= n < r.num_classes)
        )
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
    count = _count_classes(layer, list(bottoms))
    assert count is not None
    return count


def _count_classes(layer: Layer, bottoms: Sequence[Any]) -> int | None:
    indices = layer.type.gradient.indices
    if indices.num_classes is None or not indices.positions(len(bottoms)):  # an optional bottom may be left out
        return None
    count: int | None = layer.context.call(indices.num_classes, *bottoms)
    return count


def find_out_of_range(labels: np.ndarray, num_classes: int, *ignore_labels: int | None) -> np.ndarray:
    """Return a boolean mask of the values that are neither 0 ... `num_classes` - 1 nor in `ignore_labels`.

    Values are truncated to integers first, as in Caffe. NaN is out of range.
    """
    integers = np.trunc(labels)
    valid = (integers >= 0) & (integers < num_classes)  # False for NaN
    for label in ignore_labels:
        if label is not None:
            valid |= integers == label
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
        for index_range in ranges.get(name, ()):
            invalid = find_out_of_range(
                array, index_range.num_classes, index_range.ignore_label, *index_range.ignored_elsewhere
            )
            if invalid.any():
                row = int(np.argwhere(np.atleast_1d(invalid))[0][0])
                if index_range.layer.type.gradient.indices.gathers:
                    kind, remedy = "items", "correct the indices"
                else:
                    kind = "classes"
                    remedy = "correct the labels, or the num_output of the layer that computes the scores"
                    remedy += ", or set ignore_label"
                message = (
                    f"blob '{name}' holds {array[invalid].flat[0]:g} in row {row} of the batch, but the layer has "
                    f"{index_range.num_classes} {kind}, 0 to {index_range.num_classes - 1}; {remedy}"
                )
                raise DataError(index_range.layer.make_problem(message))
