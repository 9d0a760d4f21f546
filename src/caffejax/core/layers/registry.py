"""The registry of layer types by Caffe's type name.

The module of a type is imported when the type is first requested. `index.json`, written by
`scripts/make_layer_index.py`, maps types to modules. If this file is missing or lacks a name, all modules of layers are
imported. Other packages register types in a module that an entry point of the group `caffejax.layers` names.
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
import importlib
import importlib.metadata
import json
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...base.errors import UNKNOWN_TYPE, GraphError, describe_type, did_you_mean
from ..schema.caffe_pb2 import LayerParameter
from .layer_kinds import Function
from .types import Gradient, Implementation, LayerDocs, LayerTraits, LayerType, Signature, Variants

_INDEX_PATH = Path(__file__).with_name("index.json")

_types: dict[str, LayerType] = {}
_aliases: dict[str, str] = {}  # {alias: name of the type}
_main_types: set[str] = set()  # the names of the types that `__main__` registered
_builtin_types: list[LayerType] = []  # types of this package, including variants


def register(layer_type: LayerType) -> LayerType:
    """Register a layer type by its name, and return the type.

    A type that is registered in `__main__`, such as in a cell of a notebook, replaces a type with the same name that
    was registered there before.

    Raises:
        ValueError: if the name is already registered, or LayerParameter lacks the parameter message of the type.
        TypeError: if the value is not a LayerType, or one of its parts has the wrong type.
    """
    _validate(layer_type)
    module = sys._getframe(1).f_globals.get("__name__", "")
    names = (layer_type.name, *layer_type.signature.aliases)
    for name in names:
        _import_indexed(name)
    if module == "__main__" and layer_type.name in _main_types:
        previous = _types.pop(layer_type.name)
        for alias in previous.signature.aliases:
            del _aliases[alias]
    if taken_names := [name for name in names if name in _types or name in _aliases]:
        raise ValueError(f"layer type '{taken_names[0]}' is already registered; use a different name")
    _types[layer_type.name] = layer_type
    _aliases.update(dict.fromkeys(layer_type.signature.aliases, layer_type.name))
    if module == "__main__":
        _main_types.add(layer_type.name)
    if module.startswith(f"{__name__.partition('.')[0]}."):
        _builtin_types.extend(
            [
                layer_type,
                *(layer_type.implementation.types.values() if isinstance(layer_type.implementation, Variants) else ()),
            ]
        )
    return layer_type


def define_layer(
    signature: Signature,
    implementation: Implementation,
    gradient: Gradient = Gradient(),
    traits: LayerTraits = LayerTraits(),
    docs: LayerDocs = LayerDocs(),
    settings: Function | None = None,
) -> LayerType:
    """Register a `LayerType` of this package with these attributes, and return it."""
    return register(LayerType(signature, implementation, gradient, traits, docs, settings))


def is_builtin(layer_type: LayerType) -> bool:
    """Return whether a type is defined in this package, not by a user or another package."""
    return any(layer_type is builtin for builtin in _builtin_types)


@contextlib.contextmanager
def register_temporarily(layer_type: LayerType) -> Iterator[LayerType]:
    """Register a layer type in a `with` block, where it replaces any type of the same name, and yield the type."""
    _validate(layer_type)
    _import_all()  # in the block, the module of a type with this name could not register it
    previous = _types.get(layer_type.name)
    _types[layer_type.name] = layer_type
    try:
        yield layer_type
    finally:
        if previous is None:
            del _types[layer_type.name]
        else:
            _types[layer_type.name] = previous


_FIELDS: Mapping[str, Any] = {
    "signature": Signature,
    "implementation": Implementation,
    "gradient": Gradient,
    "traits": LayerTraits,
    "docs": LayerDocs,
}


def _validate(layer_type: Any) -> None:
    if not isinstance(layer_type, LayerType):
        raise TypeError(f"a layer type must be a LayerType, not {describe_type(layer_type)}")
    for field, expected in _FIELDS.items():
        value = getattr(layer_type, field)
        if not isinstance(value, expected):
            part = next((name for name, kind in _FIELDS.items() if isinstance(value, kind)), None)
            hint = f"; pass {part}={type(value).__name__}(...)" if part else ""
            raise TypeError(f"the {field} of a LayerType cannot be {describe_type(value)}{hint}")
    if isinstance(layer_type.implementation, Variants):
        for variant in layer_type.implementation.types.values():
            if variant.name != layer_type.name:
                raise ValueError(
                    f"all variants of layer type '{layer_type.name}' must have this name, not '{variant.name}'"
                )
            _validate(variant)
    signature = layer_type.signature
    for param in filter(None, (signature.param, *signature.further_params)):
        if param not in LayerParameter.DESCRIPTOR.fields_by_name:
            raise ValueError(f"layer type '{layer_type.name}': LayerParameter has no field '{param}'")


def layer_types() -> dict[str, LayerType]:
    """Return all types by name, in alphabetical order."""
    _import_all()
    return dict(sorted(_types.items()))


def layer_type(name: str) -> LayerType:
    """Return the type that has this name or alias.

    Raises:
        GraphError: if the name is unknown. The message suggests the most similar name.
    """
    if name not in _types and name not in _aliases:
        _import_indexed(name)
    if name not in _types and name not in _aliases:
        _import_all()
    type_name = _aliases.get(name, name)
    if type_name not in _types:
        raise GraphError(f"{UNKNOWN_TYPE} '{name}'{did_you_mean(name, _types)}")
    return _types[type_name]


def type_of(layer: LayerParameter) -> LayerType:
    """Return the type of a layer, or the variant of the layer if the type has variants.

    Raises:
        GraphError: if the name of the type is unknown.
    """
    named_type = layer_type(layer.type)
    return (
        named_type.implementation.types[named_type.implementation.select(layer)]
        if isinstance(named_type.implementation, Variants)
        else named_type
    )


def _variant(name: str, variant: str) -> LayerType:
    impl = layer_type(name).implementation
    return impl.types[variant] if isinstance(impl, Variants) else layer_type(name)


def _reduce_type(reduced_type: LayerType) -> tuple[Any, tuple[str, ...]]:
    impl = _types[reduced_type.name].implementation if reduced_type.name in _types else None
    if isinstance(impl, Variants):
        for name, variant in impl.types.items():
            if variant is reduced_type:
                return _variant, (reduced_type.name, name)
    return layer_type, (reduced_type.name,)


# a type is pickled as its name, because it may contain functions or objects that cannot be pickled
copyreg.pickle(LayerType, _reduce_type)


@functools.cache
def _read_index() -> Mapping[str, str]:
    """Return the modules that register types, keyed by the names and aliases of the types."""
    return json.loads(_INDEX_PATH.read_text()) if _INDEX_PATH.exists() else {}


def _import_indexed(name: str) -> None:
    if name in _read_index():
        importlib.import_module(_read_index()[name])


@functools.cache
def _import_all() -> None:
    """Import all modules that register types, including modules of other packages."""
    for package in sorted({__package__, *(".".join(module.split(".")[:3]) for module in _read_index().values())}):
        paths = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(paths, f"{package}."):
            importlib.import_module(module.name)
    for entry in importlib.metadata.entry_points(group="caffejax.layers"):
        entry.load()
