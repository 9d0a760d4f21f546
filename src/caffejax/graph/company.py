"""Types that forks call by one name, of layers whose own text does not say which is meant: their company does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..layers import Company, Variants, layer_type
from ..schema.caffe_pb2 import LayerParameter


def in_company(
    layer: LayerParameter, place: int, layers: Sequence[LayerParameter], blobs: Mapping[str, Any]
) -> LayerParameter:
    """Return a layer with what its company says of it written into its own fields.

    Args:
        layer: the layer, with splits before it.
        place: its number among the layers.
        layers: the net's layers, without splits.
        blobs: shapes and dtypes of the blobs known so far.

    Raises:
        LayerError: for settings that make no sense, by which a layer would be told apart.
    """
    runs = layer_type(layer.type).runs
    if not isinstance(runs, Variants) or runs.settle is None:
        return layer
    read = layers[place].bottom[0] if layers[place].bottom else None
    beside = tuple(other for i, other in enumerate(layers) if i != place and read in other.bottom)
    shapes = tuple(blobs[name].shape if name in blobs else None for name in layer.bottom)
    settled: LayerParameter = runs.settle(layer, Company(shapes, tuple(layers), beside))
    return settled
