"""Receptive fields: how much of the net's inputs a number of a blob sees, and how far apart neighbours look."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import jax

from ..graph import Graph, Layer
from ..kernels.window import Window

_FIRST_AXIS_OF_SPACE = 2  # after the batch and the channels


@dataclass(frozen=True)
class Field:
    """What a number of a blob sees, one entry for each axis of space.

    Attributes:
        size: in pixels of the inputs; may be more than they have.
        stride: the distance between the fields of neighbours, in such pixels; a fraction after a Deconvolution.
    """

    size: tuple[int, ...]
    stride: tuple[Fraction, ...]

    def through(self, window: Window) -> Field:
        """Return the field of a window's output."""
        pairs = zip(self.size, self.stride, window.extent, strict=True)
        size = tuple(n + math.ceil((extent - 1) * stride) for n, stride, extent in pairs)
        return Field(size, tuple(a * b for a, b in zip(self.stride, window.stride, strict=True)))

    def back_through(self, window: Window) -> Field:
        """Return the field of the output of a window that runs the other way, as a Deconvolution's does."""
        cells = (math.ceil(extent / stride) for extent, stride in zip(window.extent, window.stride, strict=True))
        size = tuple(
            n + math.ceil((k - 1) * stride) for n, stride, k in zip(self.size, self.stride, cells, strict=True)
        )
        return Field(size, tuple(a / b for a, b in zip(self.stride, window.stride, strict=True)))


def fields_of(graph: Graph) -> dict[str, Field | None]:
    """Return the field of each layer's first top, by the layer's key."""
    found: dict[str, Field | None] = {}
    blobs: dict[str, Field | None] = {}
    for layer in graph.layers:
        field = _of_layer(layer, graph, [blobs[name] for name in layer.bottoms])
        found[layer.key] = field
        blobs.update(dict.fromkeys(layer.tops, field))
    return found


def _of_layer(layer: Layer, graph: Graph, bottoms: Sequence[Field | None]) -> Field | None:
    traits, tops = layer.type.traits, [graph.blobs[top] for top in layer.tops]
    if not tops:
        return None
    if not layer.bottoms:
        n = len(_space(tops[0]))
        return Field((1,) * n, (Fraction(1),) * n) if n else None
    first = graph.blobs[layer.bottoms[0]]
    if traits.window is not None:
        window, before = traits.window(layer.context, first), bottoms[0]
        if before is None or len(before.size) != len(window.kernel):
            return None
        return before.back_through(window) if traits.spatial_map == "transposed" else before.through(window)
    if traits.spatial_map == "cropped":
        return bottoms[0]
    if not _space(tops[0]):
        return None
    window = None
    if traits.receptive_window is not None:
        window = traits.receptive_window(layer.context, first) if _space(tops[0]) == _space(first) else None
        if window is None:
            return None
    elif not (traits.keeps_pixels or (traits.data_movement != "nothing" and _space(tops[0]) == _space(first))):
        return None
    seen = [b for b in bottoms if b is not None]
    if len(seen) < len(bottoms) or len({len(b.size) for b in seen}) > 1:
        return None
    sizes, strides = zip(*(b.size for b in seen), strict=True), zip(*(b.stride for b in seen), strict=True)
    field = Field(tuple(map(max, sizes)), tuple(map(max, strides)))
    return field if window is None else field.through(window)


def _space(blob: jax.ShapeDtypeStruct) -> tuple[int, ...]:
    return tuple(blob.shape[_FIRST_AXIS_OF_SPACE:])
