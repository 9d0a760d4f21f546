"""Properties of nets and layers: statelessness, randomness, and the blobs that contain labels or indices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import DataError
from ..layers import Traced
from ..layers.dispatch import forward
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


def index_ranges(graph: Graph, *, parts: bool = False) -> dict[str, list[IndexRange]]:
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
            ranges.setdefault(index_blob(layer), []).append(IndexRange(layer, classes, ignored))
    return {name: _with_labels_ignored_elsewhere(blob_ranges) for name, blob_ranges in ranges.items()}


def _with_labels_ignored_elsewhere(ranges: list[IndexRange]) -> list[IndexRange]:
    ignored = frozenset(r.ignored for r in ranges if r.ignored is not None)
    return [
        r._replace(ignored_elsewhere=frozenset(n for n in ignored - {r.ignored} if not 0 <= n < r.classes))
        if r.layer.type.gradient.indices.counts_ignored
        else r
        for r in ranges
    ]


def index_blob(layer: Layer) -> str:
    """Return the first bottom that a layer reads as labels or indices."""
    return layer.bottoms[layer.type.gradient.indices.bottoms[0]]


def indexing_layers(layers: Iterable[Layer]) -> list[Layer]:
    """Return the layers that gather items by index. For these layers, an index out of range is an error."""
    return [layer for layer in layers if (i := layer.type.gradient.indices).gathers and i.positions(len(layer.bottoms))]


def count_indexed(layer: Layer, bottoms: Iterable[Any]) -> int:
    """Return the number of items that an indexing layer gathers from.

    Args:
        layer: one of `indexing_layers`.
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


def out_of_range(numbers: np.ndarray, classes: int, *ignored: int | None) -> np.ndarray:
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
        ranges: as returned by `index_ranges`.

    Raises:
        DataError: if a label is not a class. The message names the blob and the first row that contains such a label.
    """
    for name, array in blobs.items():
        for allowed in ranges.get(name, ()):
            invalid = out_of_range(array, allowed.classes, allowed.ignored, *allowed.ignored_elsewhere)
            if invalid.any():
                row = int(np.argwhere(np.atleast_1d(invalid))[0][0])
                message = (
                    f"blob '{name}' holds {array[invalid].flat[0]:g} in row {row} of the batch, but the layer has "
                    f"{allowed.classes} classes, 0 to {allowed.classes - 1}; correct the labels, or the num_output of "
                    "the layer that computes the scores, or set ignore_label"
                )
                raise DataError(allowed.layer.problem(message))


def is_stateless(graph: Graph) -> bool:
    """Return whether a forward pass never changes the state.

    A BatchNorm layer changes its statistics, except if it uses them to normalize. The result is False for a net with
    host layers, because they may keep state.
    """
    if graph.has_host_layers:
        return False
    stateful = [
        layer
        for layer in graph.layers
        if isinstance(layer.type.implementation, Traced) and layer.type.implementation.stateful
    ]
    shapes = [tuple(graph.blobs[name] for name in layer.bottoms) for layer in stateful]
    distinct = {(layer.context, bottoms): layer for layer, bottoms in zip(stateful, shapes, strict=True)}
    return not any(_changes_state(layer, bottoms) for (_, bottoms), layer in distinct.items())


def _changes_state(layer: Layer, bottoms: tuple[jax.ShapeDtypeStruct, ...]) -> bool:
    """Return whether a layer's forward function returns a state that differs from its input."""
    by_channel, shapes = layer.type.traits.by_channel, [p.spec.shape for p in layer.all_params]
    if (
        by_channel
        and len(bottoms) == 1 < len(bottoms[0].shape)
        and by_channel.applies(layer.context, shapes, 1, bottoms[0].shape[1])
    ):
        return False  # the layer normalizes by its statistics
    blobs = tuple(jax.ShapeDtypeStruct(p.spec.shape, jnp.float32) for p in layer.all_params)
    is_unchanged: list[bool] = []

    def trace(key: jax.Array, blobs: tuple[Any, ...], bottoms: tuple[Any, ...]) -> Any:
        _, new_state = forward(layer.context.with_key((key, 0)), blobs, bottoms)
        old_state = [b for b, p in zip(blobs, layer.all_params, strict=True) if not p.spec.learnable]
        is_unchanged.extend(n is o for n, o in zip(new_state, old_state, strict=False))
        return new_state

    with layer.locate_errors():
        jax.eval_shape(trace, jax.eval_shape(lambda: jax.random.key(0)), blobs, bottoms)
    return not all(is_unchanged)


def is_random(layer: Layer, bottoms: Sequence[Any]) -> bool:
    """Return whether a layer uses random numbers in its phase.

    Args:
        layer: the layer. A user's host layer is assumed to be deterministic.
        bottoms: shapes and dtypes of its bottoms; for a host layer, arrays.
    """
    if layer.type.is_input or (layer.type.on_host and layer.type.instance is not None):
        return False
    recorder = _RecordingKey((jax.random.key(0), 0))
    context = layer.context.with_key(recorder)
    if layer.type.on_host:
        forward(context, [np.zeros(p.spec.shape, np.float32) for p in layer.all_params], bottoms)
    else:
        params = [jax.ShapeDtypeStruct(p.spec.shape, np.float32) for p in layer.all_params]
        jax.eval_shape(lambda *arrays: forward(context, *arrays), params, bottoms)
    return recorder.used


class _RecordingKey(tuple[Any, ...]):
    """A placeholder for a layer's base key that records whether the layer uses it."""

    used = False

    def __iter__(self) -> Any:
        self.used = True
        return super().__iter__()
