"""Python layers that are traced: functions of JAX arrays, compiled with the rest of the net."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from ....base.errors import LayerError
from ..context import Context, LayerDefinition, ParamSpec
from ..types import LayerType, Traced
from .user_code import set_layer_attributes, with_error_note


def make_function_type(
    python_type: LayerType, definition: LayerDefinition, function: Callable[..., Any], full_name: str
) -> LayerType:
    """Return a type for a layer computed by `function(*bottoms)`.

    The function also gets `key=`, a random key or None, if it has a parameter of that name.
    """
    call = with_error_note(function, definition, full_name)
    takes_key = _takes_key(function)

    def forward(*bottoms: Any, ctx: Context) -> Any:
        return _check_tops(call(*bottoms, **_key_argument(ctx, takes_key)), full_name)

    return replace(python_type, implementation=Traced(forward, instance=function))


def make_class_type(
    python_type: LayerType, definition: LayerDefinition, cls: Callable[[], Any], full_name: str
) -> LayerType:
    """Return a type for a layer computed by an instance of `cls`.

    The instance is called like the function of `make_function_type`.

    If the class has a method `blobs(*bottoms)`, which returns a list of `caffejax.ParamSpec`, the layer has these
    learnable blobs, and the instance takes them as a tuple before the bottoms. If it has a method `backward`, a
    backward rule as in `layers.types`, the layer has a hand-written gradient.
    """
    instance = with_error_note(cls, definition, full_name)()
    set_layer_attributes(instance, definition)
    call = with_error_note(instance, definition, f"{full_name}.__call__")
    takes_key = _takes_key(instance.__call__)

    def forward(blobs: Any, *bottoms: Any, ctx: Context) -> Any:
        arrays = bottoms if params is None else (blobs, *bottoms)
        return _check_tops(call(*arrays, **_key_argument(ctx, takes_key)), full_name)

    params = _make_params(instance, definition, full_name) if hasattr(instance, "blobs") else None
    backward_rule = None
    if hasattr(instance, "backward"):
        backward = with_error_note(instance.backward, definition, f"{full_name}.backward")
        backward_rule = _make_backward_rule(backward, params is not None)
    gradient = replace(python_type.gradient, backward=backward_rule)
    return replace(python_type, implementation=Traced(forward, params=params, instance=instance), gradient=gradient)


def _make_params(instance: Any, definition: LayerDefinition, full_name: str) -> Callable[..., list[ParamSpec]]:
    declare = with_error_note(instance.blobs, definition, f"{full_name}.blobs")

    def params(*bottoms: Any) -> list[ParamSpec]:
        return list(declare(*bottoms))

    return params


def _make_backward_rule(function: Callable[..., Any], has_blobs: bool) -> Callable[..., Any]:
    def rule_of_bottoms(*bottoms: Any, y: Any, dy: Any) -> Any:  # the user's parameters may have any names
        return function(*bottoms, y=y, dy=dy)

    def rule(blobs: Any, *bottoms: Any, y: Any, dy: Any) -> Any:
        return function(blobs, *bottoms, y=y, dy=dy)

    return rule if has_blobs else rule_of_bottoms


def _takes_key(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # some functions written in C have no signature
        return False
    return "key" in parameters


def _check_tops(tops: Any, full_name: str) -> Any:
    arrays = tops if isinstance(tops, tuple | list) else [tops]
    if invalid_types := [type(top).__name__ for top in arrays if not isinstance(top, jax.Array | np.ndarray)]:
        raise LayerError(
            f"{full_name} must return an array, or a tuple with an array for each top, not {', '.join(invalid_types)}"
        )
    return tops


def _key_argument(ctx: Context, takes_key: bool) -> dict[str, Any]:
    return {"key": ctx.key if ctx.fold_in_args is not None else None} if takes_key else {}
