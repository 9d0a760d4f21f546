"""Families of layers: what people tell layers apart by when they look at a net."""

from __future__ import annotations

from typing import Literal, get_args

from ..graph import Layer

Family = Literal[
    "data", "convolution", "product", "normalisation", "activation", "pooling", "merge", "shape", "loss", "other"
]
FAMILIES: tuple[Family, ...] = get_args(Family)

_FAMILY_OF: dict[str, Family] = {"Dropout": "activation", "PReLU": "activation"}  # their traits do not tell


def family_of(layer: Layer) -> Family:
    """Return a layer's family, by what its type says of itself.

    "product" is what has weights and no window, such as InnerProduct and LSTM; "merge" makes one blob of several;
    "loss" are scores, too.
    """
    kind, traits = layer.type, layer.type.traits
    if kind.is_fed or not layer.bottoms:
        return "data"
    if kind.signature.loss or any(layer.loss_weights) or (layer.index_bottoms and not kind.gradient.exists):
        return "loss"
    if kind.name in _FAMILY_OF:
        return _FAMILY_OF[kind.name]
    if traits.by_channel is not None or any(not p.spec.learnable for p in layer.params):
        return "normalisation"
    if traits.window is not None:
        return "convolution" if layer.params else "pooling"
    if traits.elementwise and len(layer.bottoms) == 1 and traits.data_movement == "nothing":
        return "activation"
    if layer.params:
        return "normalisation" if traits.spatial_map == "same" else "product"
    if len(layer.bottoms) > 1 and len(layer.tops) == 1 and (traits.data_movement == "whole" or traits.elementwise):
        return "merge"
    if traits.data_movement != "nothing":
        return "shape"
    return "normalisation" if traits.spatial_map == "same" else "other"
