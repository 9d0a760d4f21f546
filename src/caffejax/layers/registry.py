"""The registry of layer types by Caffe's type name.

Other packages register theirs in a module named by an entry point of the group `caffejax.layers`.
"""

from __future__ import annotations

import copyreg
import functools
import importlib.metadata

from ..errors import GraphError, did_you_mean
from .types import LayerType

_types: dict[str, LayerType] = {}


def register(layer_type: LayerType) -> LayerType:
    """Make a layer type known by its name; return it.

    Raises:
        ValueError: if the name is taken.
    """
    if layer_type.name in _types:
        raise ValueError(f"layer type '{layer_type.name}' is registered already")
    _types[layer_type.name] = layer_type
    return layer_type


def layer_types() -> dict[str, LayerType]:
    """Return all types by name, in alphabetical order."""
    _load_plugins()
    return dict(sorted(_types.items()))


def layer_type(name: str) -> LayerType:
    """Return the type of that name.

    Raises:
        GraphError: if there is none; the message names the nearest.
    """
    if name not in _types:
        _load_plugins()
    if name not in _types:
        raise GraphError(f"unknown layer type '{name}'{did_you_mean(name, _types)}")
    return _types[name]


# a pickled type is its name: what a layer's own parameters make of it may be a function or an object
copyreg.pickle(LayerType, lambda kind: (layer_type, (kind.name,)))


@functools.cache
def _load_plugins() -> None:
    for entry in importlib.metadata.entry_points(group="caffejax.layers"):
        entry.load()
