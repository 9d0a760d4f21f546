"""Declarations of layer types: a function with the facts about it.

    @register("UnitRows", in_place=False, row_wise=True)
    def unit_rows(params, x):                     # arrays in, the top (or a tuple of tops) out
        ...

    @unit_rows.params
    def unit_rows_params(x):                      # the blobs that a layer has, from the bottoms' shapes
        ...

    @unit_rows.backward
    def unit_rows_backward(params, x, *, y, dy):  # Caffe's Backward, written by hand
        ...

A function takes, in this order: the layer's settings, if its first parameter is `p`; its learnable arrays by name, if
the next is `params`; its bottoms. It may name `state`, the arrays that are not learnable, attributes of the layer's
`Context`, such as `phase` and `key`, or `ctx` itself, as keyword-only parameters. A backward rule takes the same, the
result of the function (`y`) and the gradients of the tops (`dy`). It returns one gradient for `params`, a dict or a
tuple, and one for each bottom, where None stands for zero. With one top, `y` and `dy` are arrays, otherwise tuples.

Python layers, whose arrays have no names, and functions of stored arrays, such as `fold_scale_bias`, take `blobs`
instead of `params`: all arrays in Caffe's order.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import fields as list_fields
from dataclasses import replace
from typing import Any, Generic, ParamSpec, TypeVar, overload

from ...base.errors import describe_type, did_you_mean
from . import registry
from .helpers import no_gradient
from .types import (
    Gradient,
    HostFunction,
    Implementation,
    LayerDocs,
    LayerTraits,
    LayerType,
    PerLayer,
    Signature,
    Traced,
)

A = ParamSpec("A")
B = ParamSpec("B")
R = TypeVar("R")
Q = TypeVar("Q")
F = TypeVar("F", bound=Callable[..., Any])

_FUNCTIONS = ("params", "top_shapes", "backward", "settings", "check", "count_fusible", "fused", "window", "traced")
_PARTS = {"signature": Signature, "gradient": Gradient, "traits": LayerTraits, "docs": LayerDocs}
_PARTS_OF_FIELDS = {
    **{f.name: "implementation" for kind in (Traced, HostFunction) for f in list_fields(kind) if f.name != "forward"},
    **{f.name: part for part, kind in _PARTS.items() for f in list_fields(kind) if f.name != "name"},
    **{"settings": "", "check": ""},  # of the type itself
}


class Declaration(Generic[A, R]):
    """A layer type's function, which can be called, with decorators for the functions that belong to the type.

    Each field of `register` that is a function is also a decorator: `@lrn.backward`.

    Attributes:
        type: the type, so far.
        forward: the function.
    """

    def __init__(self, layer_type: LayerType, forward: Callable[A, R]) -> None:
        self.type = layer_type
        self.forward = forward
        self.__doc__ = forward.__doc__

    def __call__(self, *args: A.args, **kwargs: A.kwargs) -> R:
        """Call the function."""
        return self.forward(*args, **kwargs)

    def __repr__(self) -> str:
        return f"layer type {self.type.name}"

    def __getattr__(self, field: str) -> Callable[[F], F]:
        if field not in _PARTS_OF_FIELDS:
            raise AttributeError(f"a layer type has no field '{field}'{did_you_mean(field, _PARTS_OF_FIELDS)}")

        def declare_function(function: F = None) -> F:  # type: ignore[assignment]
            if function is None:
                raise TypeError(f"layer type '{self.type.name}': write @name.{field} without parentheses")
            layer_type = _with_fields(self.type, {field: function})
            registry.replace_type(self.type, layer_type)
            self.type = layer_type
            return function

        return declare_function

    @overload
    def variant(self, **fields: Any) -> Callable[[Callable[B, Q]], Declaration[B, Q]]: ...
    @overload
    def variant(self, implementation: Implementation, **fields: Any) -> Declaration[..., Any]: ...
    def variant(self, implementation: Implementation | None = None, **fields: Any) -> Any:
        """Declare a variant of the type, with another function, another documentation and different `fields`.

        It is not registered; see `registry.register_variants`. For the arguments, see `register`.
        """
        return _declare(replace(self.type, docs=LayerDocs()), implementation, **fields)


@overload
def register(name: str, **fields: Any) -> Callable[[Callable[A, R]], Declaration[A, R]]: ...
@overload
def register(name: str, implementation: Implementation, **fields: Any) -> Declaration[..., Any]: ...
def register(name: str, implementation: Implementation | None = None, **fields: Any) -> Any:
    """Register a layer type: a decorator of the function that computes its tops.

        @caffejax.register("Cube", row_wise=True)
        def cube(x):
            return x**3

        @cube.backward
        def cube_backward(x, *, y, dy):
            return 3 * x**2 * dy

    A function takes, in this order: `p`, the settings, and `params`, the arrays by name, if these are the names of its
    first parameters; its bottoms; and by keyword what it names: `phase`, `key`, `state`, `num_tops`, `ctx`.

    Args:
        name: Caffe's type name.
        implementation: how layers of the type are computed, instead of a function: a `SourceInput`, `CallerInput` or
            `Variants`.
        fields: fields of `Signature`, `Traced` or `HostFunction`, `Gradient`, `LayerTraits` and `LayerDocs`;
            `settings` and `check` of `LayerType`; `on_host=True` if the function takes and returns NumPy arrays outside
            of compiled code (see `HostFunction`); `per_layer=True` if it makes the type of each layer (see `PerLayer`).

    Raises:
        ValueError: if the name is already registered, or LayerParameter lacks the parameter message of the type.
        TypeError: if a field is unknown or has the wrong type.
    """
    module = sys._getframe(1).f_globals.get("__name__", "")

    def add(declaration: Declaration[..., Any]) -> Declaration[..., Any]:
        registry.add_type(declaration.type, module)
        return declaration

    declared = _declare(LayerType(Signature(name), Traced(_no_function)), implementation, **fields)
    return add(declared) if implementation is not None else lambda function: add(declared(function))


@overload
def declare(name: str, **fields: Any) -> Callable[[Callable[A, R]], Declaration[A, R]]: ...
@overload
def declare(name: str, implementation: Implementation, **fields: Any) -> Declaration[..., Any]: ...
def declare(name: str, implementation: Implementation | None = None, **fields: Any) -> Any:
    """Declare a layer type like `register`, without registering it: a variant, or a type for `register_temporarily`."""
    return _declare(LayerType(Signature(name), Traced(_no_function)), implementation, **fields)


def _declare(
    layer_type: LayerType,
    implementation: Implementation | None,
    *,
    on_host: bool = False,
    per_layer: bool = False,
    **fields: Any,
) -> Any:
    for field in fields:
        if field not in _PARTS_OF_FIELDS:
            hint = did_you_mean(field, _PARTS_OF_FIELDS)
            raise TypeError(f"layer type '{layer_type.name}': there is no field '{field}'{hint}")

    if fields.get("stops_gradient"):
        fields = {"backward": no_gradient, "overrides_autodiff": True, **fields}
    if not isinstance(layer_type.name, str):
        raise TypeError('a type is declared by its name: @register("UnitRows")')

    def make(kind: Implementation, forward: Callable[..., Any]) -> Declaration[..., Any]:
        _check_function(layer_type, "the function", forward)
        return Declaration(_with_fields(replace(layer_type, implementation=kind), fields), forward)

    def declare_function(function: Callable[..., Any]) -> Declaration[..., Any]:
        forward = function.forward if isinstance(function, Declaration) else function
        kind = PerLayer(forward, on_host) if per_layer else HostFunction(forward) if on_host else Traced(forward)
        return make(kind, forward)

    return declare_function if implementation is None else make(implementation, _no_function)


def _no_function(*args: Any, **kwargs: Any) -> Any:
    raise TypeError("this layer type has no function")


def _check_function(layer_type: LayerType, field: str, function: Any) -> None:
    if not callable(function):
        raise TypeError(f"layer type '{layer_type.name}': {field} must be a function, not {describe_type(function)}")
    code = getattr(function, "__code__", None)
    if code is not None and code.co_varnames[: min(1, code.co_argcount)] == ("ctx",):
        raise TypeError(f"layer type '{layer_type.name}': {field} must name ctx after `*`, as a keyword")
    if isinstance(function, type) and field != "settings":
        raise TypeError(f"layer type '{layer_type.name}': {field} must be a function, not a class")
    if field == "backward":
        parameters = inspect.signature(function).parameters.values()
        keywords = {x.name for x in parameters if x.kind is x.KEYWORD_ONLY}
        missing = [name for name in ("y", "dy") if name not in keywords]
        if missing and not any(x.kind is x.VAR_KEYWORD for x in parameters):
            raise TypeError(
                f"layer type '{layer_type.name}': backward must name {' and '.join(missing)} after `*`: y is the top, "
                "dy the gradient of the loss with respect to it"
            )


def _with_fields(layer_type: LayerType, fields: dict[str, Any]) -> LayerType:
    changes: dict[str, dict[str, Any]] = {}
    for field, value in fields.items():
        if value is not None and (field in _FUNCTIONS or callable(value)):
            _check_function(layer_type, field, value)
        changes.setdefault(_PARTS_OF_FIELDS[field], {})[field] = value
    own_changes = changes.pop("", {})
    try:
        parts = {part: replace(getattr(layer_type, part), **values) for part, values in changes.items()}
    except (TypeError, ValueError) as error:
        raise type(error)(f"layer type '{layer_type.name}': {error}") from error
    return replace(layer_type, **parts, **own_changes)
