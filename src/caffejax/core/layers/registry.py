"""The registry of layer types by Caffe's type name.

The module of a type is imported when the type is first requested. `index.json`, written by
`scripts/make_layer_index.py`, maps BVLC Caffe's types to modules; other types are in the packages of `packages.py`. If
both lack a name, all modules of layers are imported.
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
import importlib
import json
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from ...base.errors import UNKNOWN_TYPE, GraphError, did_you_mean
from ..schema.caffe_pb2 import LayerParameter
from ..schema.fork_fields import sets_fork_field
from .packages import iterate_packages, list_own_packages
from .types import LayerType, Signature, Variants, unite_signatures


class HasType(Protocol):
    """A declaration of a type."""

    @property
    def type(self) -> LayerType:
        """The type."""


PLAIN = "BVLC's"  # the name of Caffe's own form among the variants of its type
_INDEX_PATH = Path(__file__).with_name("index.json")

_types: dict[str, LayerType] = {}
_aliases: dict[str, str] = {}  # {alias: name of the type}
_plain_types: dict[str, LayerType] = {}  # BVLC's forms of the types that got variants
_modules: dict[str, tuple[str, Any]] = {}  # name and spec of the module that registered a type
_builtin_types: list[LayerType] = []  # types of this package, including variants


def add_type(layer_type: LayerType, module: str) -> None:
    """Add a type to the registry; see `declaration.register`.

    Args:
        layer_type: the type.
        module: the name of the module that declares it. A type of `__main__`, such as a cell of a notebook, or of a
            module that is reloaded, replaces the type with the same name that the same module registered before.
    """
    validate(layer_type)
    module_spec = getattr(sys.modules.get(module), "__spec__", None)
    names = (layer_type.name, *layer_type.signature.aliases)
    for name in () if _is_own_module(module) else names:  # this package's index has no name twice
        _import_indexed(name)
    previous_module, previous_spec = _modules.get(layer_type.name, (None, None))
    # a module that is reloaded has a new spec of the same name; `__main__` may have none
    if module == previous_module and (module == "__main__" or module_spec is not previous_spec):
        previous = _types.pop(layer_type.name, layer_type)
        for alias in previous.signature.aliases:
            _aliases.pop(alias, None)
    if taken_names := [name for name in names if name in _types or name in _aliases]:
        registering_module = _modules.get(_aliases.get(taken_names[0], taken_names[0]), ("register_temporarily",))[0]
        raise ValueError(
            f"layer type '{taken_names[0]}' is already registered, by {registering_module}; use a different name"
        )
    _types[layer_type.name], _modules[layer_type.name] = layer_type, (module, module_spec)
    _aliases.update(dict.fromkeys(layer_type.signature.aliases, layer_type.name))
    if _is_own_module(module):
        _note_as_builtin(layer_type)


def replace_type(previous: LayerType, layer_type: LayerType) -> None:
    """Put a type in the place of a type of the same name in the registry, if it is there."""
    validate(layer_type)
    if is_builtin(previous):
        _note_as_builtin(layer_type)
    if _types.get(previous.name) is previous:
        _types[previous.name] = layer_type


def register_variants(
    name: str, select: Callable[[Any], str | None], types: Mapping[str, LayerType], selection_doc: str
) -> LayerType:
    """Add variants of forks to one of Caffe's types; return the type with all of them.

    Args:
        name: the name of the type.
        select: `select(layer)` returns the name of the variant that a LayerParameter belongs to, or None if it belongs
            to Caffe's type. It is called for layers that have other numbers of bottoms or tops than Caffe's, set a
            field of a fork that Caffe's type does not support, or store more than `Signature.max_blobs` blobs. When a
            net has had such a layer, it is called for all layers of the type.
        types: the variants, by their names, which documentation shows.
        selection_doc: a sentence that tells how the variants are distinguished.

    Raises:
        ValueError: if a variant has another type name.
    """
    plain, previous = plain_type(name), layer_type(name).implementation
    others = previous if isinstance(previous, Variants) else Variants(lambda layer: PLAIN, {PLAIN: plain}, "")
    united_type = replace(
        plain,
        signature=unite_signatures([t.signature for t in (*others.types.values(), *types.values())]),
        implementation=Variants(
            lambda layer: select(layer) or others.select(layer),
            {**others.types, **types},
            selection_doc=f"{others.selection_doc} {selection_doc}".strip(),
        ),
    )
    validate(united_type)
    _plain_types[name], _types[name] = plain, united_type
    if _is_own_module(sys._getframe(1).f_globals.get("__name__", "")):
        _note_as_builtin(united_type)
    return united_type


def _is_own_module(name: str) -> bool:
    return name.startswith(f"{__name__.partition('.')[0]}.")


def _note_as_builtin(layer_type: LayerType) -> None:
    impl = layer_type.implementation
    _builtin_types.extend([layer_type, *(impl.types.values() if isinstance(impl, Variants) else ())])


def is_builtin(layer_type: LayerType) -> bool:
    """Return whether a type is defined in this package, not by a user or another package."""
    return any(layer_type is builtin for builtin in _builtin_types)


@contextlib.contextmanager
def register_temporarily(layer_type: LayerType | HasType) -> Iterator[LayerType]:
    """Register a layer type in a `with` block, where it replaces any type of the same name, and yield the type.

    The type may be given by its declaration.
    """
    if not isinstance(layer_type, LayerType):
        layer_type = layer_type.type
    validate(layer_type)
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


def validate(layer_type: LayerType) -> None:
    """Raise an error with the type's name if its parts contradict each other."""
    if isinstance(layer_type.implementation, Variants):
        for variant in layer_type.implementation.types.values():
            if variant.name != layer_type.name:
                raise ValueError(
                    f"all variants of layer type '{layer_type.name}' must have this name, not '{variant.name}'"
                )
            validate(variant)
    signature = layer_type.signature
    if isinstance(layer_type.settings, type):
        if not is_dataclass(layer_type.settings) or any(
            field.default is MISSING and field.default_factory is MISSING for field in fields(layer_type.settings)
        ):
            raise TypeError(
                f"the settings of layer type '{layer_type.name}' must be a function, or a dataclass whose fields have "
                "defaults"
            )
        if signature.param != "python_param":
            raise ValueError(
                f"layer type '{layer_type.name}' has a dataclass of settings, which layers set in param_str: "
                'declare the type with param="python_param"'
            )
    for param in filter(None, (signature.param, *signature.further_params)):
        if param not in LayerParameter.DESCRIPTOR.fields_by_name:
            raise ValueError(f"layer type '{layer_type.name}': LayerParameter has no field '{param}'")


def layer_types() -> dict[str, LayerType]:
    """Return all types by name, in alphabetical order."""
    _import_all()
    return dict(sorted(_types.items()))


def layer_type(name: str, *, with_variants: bool = False) -> LayerType:
    """Return the type that has this name or alias.

    With `with_variants`, one of Caffe's types has the variants of forks. Otherwise it has them only if they were needed
    before.

    Raises:
        GraphError: if the name is unknown. The message suggests the most similar name.
    """
    if name not in _types and name not in _aliases:
        _import_indexed(name, of_other_packages=True)
    if name not in _types and name not in _aliases:
        _import_all()
    type_name = _aliases.get(name, name)
    if type_name not in _types:
        no_forks = "" if list_own_packages() else "; layer types of Caffe's forks are not built in"
        raise GraphError(f"{UNKNOWN_TYPE} '{name}'{did_you_mean(name, _types)}{no_forks}")
    if with_variants:
        _import_variants(type_name)
    return _types[type_name]


def plain_type(name: str) -> LayerType:
    """Return the type that has this name or alias, of Caffe's types without the variants of forks.

    Raises:
        GraphError: if the name is unknown.
    """
    named_type = layer_type(name)
    return _plain_types.get(named_type.name, named_type)


def type_of(layer: LayerParameter) -> LayerType:
    """Return the type of a layer, or the variant of the layer if the type has variants.

    Raises:
        GraphError: if the name of the type is unknown.
    """
    named_type = layer_type(layer.type)
    if not isinstance(named_type.implementation, Variants):
        fits = _fits(named_type.signature, len(layer.bottom), len(layer.top))
        if not fits or (not _may_be_plain(named_type, layer) and named_type.name in _types_with_variants()):
            _import_variants(named_type.name, of_other_packages=not fits)
            named_type = _types[named_type.name]
    impl = named_type.implementation
    return impl.types[impl.select(layer)] if isinstance(impl, Variants) else named_type


def _may_be_plain(named_type: LayerType, layer: LayerParameter) -> bool:
    """Return whether a layer with the right counts has the form of a type; else it may be a fork's variant of it."""
    s = named_type.signature
    params = [name for name in (s.param, *s.further_params, "loss_param", "transform_param") if name]
    has_more_blobs = s.max_blobs is not None and len(layer.blobs) > s.max_blobs
    return not (has_more_blobs or sets_fork_field(layer, params, s.fork_settings))


@functools.lru_cache(1024)
def _fits(signature: Signature, num_bottoms: int, num_tops: int) -> bool:
    return not any(signature.iterate_count_problems(num_bottoms, num_tops))


def _restore_type(name: str, variant: str | None) -> LayerType:
    """Return a variant of the type of this name, or the type with all variants if `variant` is None."""
    if variant == PLAIN:
        return plain_type(name)
    restored_type = layer_type(name, with_variants=True)
    impl = restored_type.implementation
    return impl.types[variant] if variant is not None and isinstance(impl, Variants) else restored_type


def _reduce_type(reduced_type: LayerType) -> tuple[Any, tuple[str, str | None]]:
    name = reduced_type.name
    registered_type = _types.get(name)
    if name in _plain_types and reduced_type is registered_type:
        return _restore_type, (name, None)
    impl = registered_type.implementation if registered_type is not None else None
    variants = impl.types if isinstance(impl, Variants) else {}
    return _restore_type, (name, next((v for v, variant in variants.items() if variant is reduced_type), PLAIN))


# a type is pickled as its name, because it may contain functions or objects that cannot be pickled
copyreg.pickle(LayerType, _reduce_type)


@functools.cache
def _read_index() -> Mapping[str, str]:
    """Return the modules that register Caffe's types, by the names of the types."""
    return json.loads(_INDEX_PATH.read_text()) if _INDEX_PATH.exists() else {}


def find_module(name: str) -> str | None:
    """Return the name of the module that registers a type of this package, or None if its index lacks the type."""
    if name in _read_index():
        return _read_index()[name]
    return next((package.types[name] for package in list_own_packages() if name in package.types), None)


def _import_indexed(name: str, *, of_other_packages: bool = False) -> None:
    """Import the module that registers a type, or alias, according to the index of core or of a package."""
    module = find_module(name)
    if module is None and of_other_packages:
        module = next((package.types[name] for package in iterate_packages() if name in package.types), None)
    if module is not None:
        importlib.import_module(module)


@functools.cache
def _types_with_variants() -> frozenset[str]:
    return frozenset(name for package in list_own_packages() for name in package.variants)


@functools.cache
def _import_variants(name: str, *, of_other_packages: bool = True) -> None:
    """Import all modules that register variants of a type; of other packages only for layers that lack a form here."""
    for package in iterate_packages() if of_other_packages else list_own_packages():
        for module in package.variants.get(name, ()):
            importlib.import_module(module)


@functools.cache
def _import_all() -> None:
    for package_name in sorted({__package__, *(".".join(module.split(".")[:3]) for module in _read_index().values())}):
        paths = importlib.import_module(package_name).__path__
        for found_module in pkgutil.walk_packages(paths, f"{package_name}."):
            importlib.import_module(found_module.name)
    for package in iterate_packages():
        for module in (*package.types.values(), *(m for modules in package.variants.values() for m in modules)):
            importlib.import_module(module)
