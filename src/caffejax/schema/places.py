"""The layer in which a problem stands: messages of any age that define one, and problems in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from google.protobuf.message import Message

from ..errors import Problem

_LAYERS = frozenset({"LayerParameter", "V1LayerParameter", "V0LayerParameter"})


def is_layer(message: Message) -> bool:
    """Return whether a message defines a layer."""
    return message.DESCRIPTOR.name in _LAYERS


def in_layer(problem: Problem, layer: Any) -> Problem:
    """Return the problem as one of that layer, if that has a name."""
    kind = layer.type if isinstance(layer.type, str) else None  # V1's is a number
    return replace(problem, layer=layer.name, layer_type=kind) if layer.name else problem
