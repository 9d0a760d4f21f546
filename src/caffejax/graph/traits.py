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
        if layer.type.traits.data_movement in through:
            handed = [r for top in layer.tops for r in ranges.get(top, ())]
            for bottom in layer.bottoms if handed else ():
                ranges.setdefault(bottom, []).extend(handed)
        known = layer.type.gradient.indices
        classes = _classes(layer, [graph.blobs[name] for name in layer.bottoms])
        if classes is not None:
            ignored = None if known.ignore_label is None else known.ignore_label(layer.context)
            ranges.setdefault(index_blob(layer), []).append(IndexRange(layer, classes, ignored))
    return ranges


def index_blob(layer: Layer) -> str:
    """Return the first blob that a layer reads as indices."""
    return layer.bottoms[layer.type.gradient.indices.bottoms[0]]


def indexing_layers(graph: Graph) -> list[Layer]:
    """Return the layers that pick things by number; there, a number out of range is an error."""
    return [layer for layer in graph.layers if layer.type.gradient.indices.gathers]


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


def is_stateless(graph: Graph) -> bool:
    """Return whether every forward pass leaves state as it was, and no layer runs on the host, which may keep anything.

    BatchNorm, for one, changes its statistics unless it normalises by them.
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
    """Return whether what a layer gives for its state is anything but what it was given."""
    known, shapes = layer.type.traits.by_channel, [p.spec.shape for p in layer.all_params]
    if (
        known
        and len(bottoms) == 1 < len(bottoms[0].shape)
        and known.applies(layer.context, shapes, 1, bottoms[0].shape[1])
    ):
        return False  # it normalizes by its statistics
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
        layer: the layer; one that a user wrote for the host is not asked, and taken for one that does not.
        bottoms: their shapes; of a layer on the host, arrays.
    """
    if layer.type.is_fed or (layer.type.on_host and layer.type.instance is not None):
        return False
    noticing = _Noticing((jax.random.key(0), 0))
    context = layer.context.with_key(noticing)
    if layer.type.on_host:
        forward(context, [np.zeros(p.spec.shape, np.float32) for p in layer.all_params], bottoms)
    else:
        params = [jax.ShapeDtypeStruct(p.spec.shape, np.float32) for p in layer.all_params]
        jax.eval_shape(lambda *arrays: forward(context, *arrays), params, bottoms)
    return noticing.used


class _Noticing(tuple[Any, ...]):
    """A layer's key and number that notice it when the layer makes its own key of them."""

    used = False

    def __iter__(self) -> Any:
        self.used = True
        return super().__iter__()
