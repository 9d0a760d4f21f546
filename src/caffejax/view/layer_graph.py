"""The graph of a drawing: the layers of a prototxt, each with the layers that compute its bottoms.

The graph contains no shapes, so nets that cannot be built can be drawn too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..graph.resolve import find_sources
from ..schema.caffe_pb2 import LayerParameter
from .draw_style import DrawStyle, draw_style


@dataclass(frozen=True)
class WiredLayer:
    """A layer in a drawing.

    Attributes:
        number: its index among the drawn layers.
        key: a key that is unique in the drawing.
        layer: its definition.
        sources: for each bottom the number of the layer that computes it, or None.
        head: the number of the first layer in the same box. An in-place layer is in the box of the layer before it if
            no other layer reads the blob in between. Any other layer starts a box, so its head is its number.
    """

    number: int
    key: str
    layer: LayerParameter
    sources: tuple[int | None, ...]
    head: int

    @property
    def in_place(self) -> bool:
        """True if the layer's only top replaces its only bottom."""
        return is_in_place(self.layer)

    @property
    def style(self) -> DrawStyle:
        """The style of the layer's type."""
        return draw_style(self.layer.type)


def is_in_place(layer: LayerParameter) -> bool:
    """Return whether a layer's only top replaces its only bottom."""
    return len(layer.bottom) == 1 and list(layer.top) == list(layer.bottom)


def connect_layers(layers: Sequence[LayerParameter]) -> tuple[WiredLayer, ...]:
    """Return the layers with their connections, in the order of execution."""
    sources, _ = find_sources(layers)
    readers = Counter(sources.values())
    keys: set[str] = set()
    heads: list[int] = []
    result = []
    for i, layer in enumerate(layers):
        tops = [sources.get((i, j)) for j in range(len(layer.bottom))]
        made_by = tops[0] if is_in_place(layer) else None
        alone = made_by is not None and readers[made_by] == 1 and len(layers[made_by[0]].top) == 1
        heads.append(heads[made_by[0]] if made_by is not None and alone else i)
        key = f"{layer.name}_{layer.type}"
        if key in keys:
            key += f"_{i}"  # names may repeat, usually in layers of different phases
        keys.add(key)
        result.append(WiredLayer(i, key, layer, tuple(None if s is None else s[0] for s in tops), heads[i]))
    return tuple(result)
