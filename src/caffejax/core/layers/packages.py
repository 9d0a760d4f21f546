"""Packages of layer types outside of core: Caffe's forks, and packages of other distributions.

A package is found by an entry point of the group `caffejax.layers`. This names a module that has a `LayerPackage`
called `LAYERS`, or a module that registers types when it is imported. Listing entry points takes about 10 ms, so it is
done only for types that core lacks, and for layers that are not BVLC Caffe's.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from ...base.errors import CaffejaxError

GROUP = "caffejax.layers"
_DISTRIBUTION = __name__.partition(".")[0]
_FORKS = EntryPoint("forks", f"{_DISTRIBUTION}.forks", GROUP)  # where there is no metadata, or older metadata


@dataclass(frozen=True)
class LayerPackage:
    """The layer types of a package, by the modules that register them. A module is imported when it is needed.

    Attributes:
        types: the module that registers each type, by the type's names and aliases.
        variants: the modules that call `register_variants`, by the name of the type that gets the variants.
        python_layers: a module with a function `find_builtin_type(module, name)`, which returns the `LayerType` that
            computes Python layers of that module and class, or None. Default: there are no such types.
        fillers: a module with `FILLERS`, a dictionary of `fillers.Filler`s by their names, if the package is of this
            distribution. Default: there are none.
    """

    types: Mapping[str, str]
    variants: Mapping[str, Sequence[str]] = field(default_factory=dict)
    python_layers: str | None = None
    fillers: str | None = None

    @classmethod
    def read(cls, index: Path, python_layers: str | None = None, fillers: str | None = None) -> LayerPackage:
        """Return a package whose `types` and `variants` are in a JSON file, {"types": ..., "variants": ...}."""
        return cls(**json.loads(index.read_text()), python_layers=python_layers, fillers=fillers)


def list_own_packages() -> list[LayerPackage]:
    """Return the packages of this distribution: `caffejax.forks`, or nothing if the folder is absent."""
    return [package for entry in _list_entries()[0] if (package := _load(entry)) is not None]


def iterate_packages() -> Iterator[LayerPackage]:
    """Yield the packages of this distribution, then of others; import modules that register types by themselves.

    Only the entry points up to the last package that is asked for are loaded.
    """
    for entry in (*_list_entries()[0], *_list_entries()[1]):
        if (package := _load(entry)) is not None:
            yield package


def find_builtin_type(module: str, name: str) -> Any:
    """Return the `LayerType` that replaces class `name` of a Python layer's `module`, or None if none is built in."""
    for package in iterate_packages():
        if package.python_layers is not None:
            layer_type = importlib.import_module(package.python_layers).find_builtin_type(module, name)
            if layer_type is not None:
                return layer_type
    return None


@functools.cache
def _list_entries() -> tuple[Sequence[EntryPoint], Sequence[EntryPoint]]:
    """Return the entry points of this distribution whose modules exist, and the entry points of others."""
    own: list[EntryPoint] = []
    others: list[EntryPoint] = []
    for entry in importlib.metadata.entry_points(group=GROUP):
        is_own = entry.dist is not None and entry.dist.name == _DISTRIBUTION
        (own if is_own else others).append(entry)
    specs = ((entry, importlib.util.find_spec(entry.module)) for entry in own or [_FORKS])
    # a folder without an `__init__.py` has no origin
    return [entry for entry, spec in specs if spec is not None and spec.origin is not None], others


def _load(entry: EntryPoint) -> LayerPackage | None:
    """Import the module of an entry point; return its `LAYERS`, or None if it registers types by itself."""
    try:
        package = getattr(entry.load(), "LAYERS", None)
    except Exception as error:  # whatever the code of another package raises
        owner = f" of the package {entry.dist.name}" if entry.dist is not None else ""
        raise CaffejaxError(f"the layer types {entry.value}{owner} cannot be imported: {error!r}") from error
    return package if isinstance(package, LayerPackage) else None
