"""Properties of a net and its layers: stateless, random, and which blobs hold indices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..layers import Traced
from ..layers.dispatch import forward
from .graph import Graph, Layer


class IndexRange(NamedTuple):
    """The values that a layer accepts in a blob of indices: integers from 0 to `classes` - 1, or `ignored`."""

    layer: Layer
    classes: int
    ignored: int | None


def index_ranges(graph: Graph, *, parts: bool = False) -> dict[str, list[IndexRange]]:
    """Return the blobs that layers read as indices, with the range that each such layer accepts.

    Args:
        graph: the net.
        parts: whether a blob also has the ranges of blobs that hold parts of it, such as slices.
    """
    through = {"whole", "parts"} if parts else {"whole"}
    ranges: dict[str, list[IndexRange]] = {}
    for layer in reversed(graph.layers):
        if layer.type.traits.data_movement in through:
            handed = [r for top in layer.tops for r in ranges.get(top, ())]
            for bottom in layer.bottoms if handed else ():
                ranges.setdefault(bottom, []).extend(handed)
        indices = layer.type.gradient.indices
        classes = _classes(layer, [graph.blobs[name] for name in layer.bottoms])
        if classes is not None:
            ignored = None if indices.ignore_label is None else indices.ignore_label(layer.context)
            ranges.setdefault(index_blob(layer), []).append(IndexRange(layer, classes, ignored))
    return ranges


def index_blob(layer: Layer) -> str:
    """Return the first blob that a layer reads as indices."""
    return layer.bottoms[layer.type.gradient.indices.bottoms[0]]


def indexing_layers(graph: Graph) -> list[Layer]:
    """Return the layers that gather by index, for which an index out of range is an error."""
    return [layer for layer in graph.layers if layer.type.gradient.indices.gathers]


def count_indexed(layer: Layer, bottoms: Iterable[Any]) -> int:
    """Return how many items such a layer gathers from, given its bottoms or their shapes."""
    count = _classes(layer, list(bottoms))
    assert count is not None
    return count


def _classes(layer: Layer, bottoms: Sequence[Any]) -> int | None:
    indices = layer.type.gradient.indices
    return None if indices.classes is None else indices.classes(layer.context, *bottoms)


def out_of_range(numbers: np.ndarray, classes: int, ignored: int | None = None) -> np.ndarray:
    """Return a mask of the values that are not valid classes, after truncation to integers as in Caffe."""
    whole = np.trunc(numbers)
    valid = (whole >= 0) & (whole < classes)  # NaN is not
    return ~valid if ignored is None else ~valid & (whole != ignored)


def is_stateless(graph: Graph) -> bool:
    """Return whether no forward pass changes the state. Layers on the host may keep state, so the result is False.

    BatchNorm changes its statistics unless it uses them for normalisation.
    """
    if graph.has_host_layers:
        return False
    stateful = [
        layer
        for layer in graph.layers
        if isinstance(layer.type.implementation, Traced) and layer.type.implementation.stateful
    ]
    shapes = [tuple(graph.blobs[name] for name in layer.bottoms) for layer in stateful]
    alike = {(layer.context, bottoms): layer for layer, bottoms in zip(stateful, shapes, strict=True)}
    return not any(_changes_state(layer, bottoms) for (_, bottoms), layer in alike.items())


def _changes_state(layer: Layer, bottoms: tuple[jax.ShapeDtypeStruct, ...]) -> bool:
    """Return whether a layer returns state that differs from its input state."""
    by_channel, shapes = layer.type.traits.by_channel, [p.spec.shape for p in layer.all_params]
    if (
        by_channel
        and len(bottoms) == 1 < len(bottoms[0].shape)
        and by_channel.applies(layer.context, shapes, 1, bottoms[0].shape[1])
    ):
        return False  # it normalises by its statistics
    blobs = tuple(jax.ShapeDtypeStruct(p.spec.shape, jnp.float32) for p in layer.all_params)
    kept: list[bool] = []

    def traced(key: jax.Array, blobs: tuple[Any, ...], bottoms: tuple[Any, ...]) -> Any:
        _, new = forward(layer.context.with_key((key, 0)), blobs, bottoms)
        old = [b for b, p in zip(blobs, layer.all_params, strict=True) if not p.spec.learnable]
        kept.extend(n is o for n, o in zip(new, old, strict=False))
        return new

    with layer.located():
        jax.eval_shape(traced, jax.eval_shape(lambda: jax.random.key(0)), blobs, bottoms)
    return not all(kept)


def is_random(layer: Layer, bottoms: Sequence[Any]) -> bool:
    """Return whether a layer draws random numbers in its phase.

    Args:
        layer: the layer. A host layer that a user wrote is taken to be deterministic.
        bottoms: shapes and dtypes of its bottoms; arrays for a host layer.
    """
    if layer.type.is_fed or (layer.type.on_host and layer.type.instance is not None):
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
    """A stand-in for a layer's base key that records whether the layer used it."""

    used = False

    def __iter__(self) -> Any:
        self.used = True
        return super().__iter__()
