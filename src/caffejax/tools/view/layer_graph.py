"""The graph of a drawing, which contains the layers of a prototxt and their connections.

The graph contains no shapes, so nets that cannot be built can also be drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ...core.graph.resolve import find_sources
from ...core.schema.caffe_pb2 import LayerParameter
from .draw_style import DrawStyle, get_draw_style


@dataclass(frozen=True)
class DrawnLayer:
    """A layer in a drawing, with its connections.

    Attributes:
        index: the index among the drawn layers.
        key: a key that is unique in the drawing.
        layer: the layer's definition in the prototxt.
        sources: for each bottom, the index of the layer that computes it, or None if no layer does.
        box_start: the index of the first layer in the same box. An in-place layer is in the box of the layer before it
            if no other layer reads the blob between them. Other layers begin a box, so this is their index.
    """

    index: int
    key: str
    layer: LayerParameter
    sources: tuple[int | None, ...]
    box_start: int

    @property
    def is_in_place(self) -> bool:
        """True if the layer's only top replaces its only bottom."""
        return is_in_place(self.layer)

    @property
    def style(self) -> DrawStyle:
        """The style of the layer's type."""
        return get_draw_style(self.layer.type)


def is_in_place(layer: LayerParameter) -> bool:
    """Return whether a layer's only top replaces its only bottom."""
    return len(layer.bottom) == 1 and list(layer.top) == list(layer.bottom)


def connect_layers(layers: Sequence[LayerParameter]) -> tuple[DrawnLayer, ...]:
    """Return the layers with their connections, in the order of execution."""
    sources, _ = find_sources(layers)
    readers = Counter(sources.values())
    keys: set[str] = set()
    box_starts: list[int] = []
    drawn_layers = []
    for i, layer in enumerate(layers):
        producers = [sources.get((i, j)) for j in range(len(layer.bottom))]
        producer = producers[0] if is_in_place(layer) else None
        joins_box = producer is not None and readers[producer] == 1 and len(layers[producer[0]].top) == 1
        box_starts.append(box_starts[producer[0]] if producer is not None and joins_box else i)
        key = f"{layer.name}_{layer.type}"
        if key in keys:
            key += f"_{i}"  # names may repeat, usually in layers of different phases
        keys.add(key)
        drawn_layers.append(
            DrawnLayer(i, key, layer, tuple(None if s is None else s[0] for s in producers), box_starts[i])
        )
    return tuple(drawn_layers)
