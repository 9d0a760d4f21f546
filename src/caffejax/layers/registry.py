"""The registry of layer types by Caffe's type name.

Other packages register theirs in a module named by an entry point of the group `caffejax.layers`.
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
import importlib.metadata
from collections.abc import Iterator

from ..errors import GraphError, did_you_mean
from ..schema.caffe_pb2 import LayerParameter
from .types import LayerType

_types: dict[str, LayerType] = {}


def register(layer_type: LayerType) -> LayerType:
    """Make a layer type known by its name; return it.

    Raises:
        ValueError: if the name is taken, or the parameter message is no field of a LayerParameter.
    """
    if layer_type.name in _types:
        raise ValueError(f"layer type '{layer_type.name}' is registered already")
    _check(layer_type)
    _types[layer_type.name] = layer_type
    return layer_type


@contextlib.contextmanager
def registered(layer_type: LayerType) -> Iterator[LayerType]:
    """Register a layer type for the time of a with block, in place of one of its name; yield it."""
    _check(layer_type)
    _load_plugins()  # not within the block, where the name may be taken
    replaced = _types.get(layer_type.name)
    _types[layer_type.name] = layer_type
    try:
        yield layer_type
    finally:
        if replaced is None:
            del _types[layer_type.name]
        else:
            _types[layer_type.name] = replaced


def _check(layer_type: LayerType) -> None:
    param = layer_type.signature.param
    if param is not None and param not in LayerParameter.DESCRIPTOR.fields_by_name:
        raise ValueError(f"layer type '{layer_type.name}': a LayerParameter has no field '{param}'")


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
