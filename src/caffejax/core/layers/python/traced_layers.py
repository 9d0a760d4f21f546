"""Python layers that are traced: functions of JAX arrays, compiled with the rest of the net."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from jax import Array

from ....base.errors import LayerError
from ..context import Context, LayerDefinition, ParamSpec
from ..helpers import as_tuple
from ..types import LayerType, Traced
from .user_code import set_layer_attributes, with_error_note


def make_function_type(
    python_type: LayerType, definition: LayerDefinition, function: Callable[..., Any], full_name: str
) -> LayerType:
    """Return a type for a layer computed by `function(*bottoms)`.

    The function also gets `key=`, a random key or None, if it has a parameter of that name.
    """
    forward = _make_forward(function, definition, full_name, full_name)
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
    call = _make_forward(instance, definition, full_name, f"{full_name}.__call__")
    has_blobs = hasattr(instance, "blobs")

    def forward(blobs: Any, *bottoms: Any, ctx: Context) -> Any:
        return call(*((blobs, *bottoms) if has_blobs else bottoms), ctx=ctx)

    def params(*bottoms: Any) -> list[ParamSpec]:
        return list(with_error_note(instance.blobs, definition, f"{full_name}.blobs")(*bottoms))

    gradient = replace(python_type.gradient, backward=None)
    if hasattr(instance, "backward"):
        backward = with_error_note(instance.backward, definition, f"{full_name}.backward")

        def rule_of_bottoms(*bottoms: Any, y: Any, dy: Any) -> Any:  # the user's parameters may have any names
            return backward(*bottoms, y=y, dy=dy)

        def rule(blobs: Any, *bottoms: Any, y: Any, dy: Any) -> Any:
            return backward(blobs, *bottoms, y=y, dy=dy)

        gradient = replace(gradient, backward=rule if has_blobs else rule_of_bottoms)
    traced = Traced(forward, params=params if has_blobs else None, instance=instance)
    return replace(python_type, implementation=traced, gradient=gradient)


def _make_forward(
    function: Callable[..., Any], definition: LayerDefinition, full_name: str, note_name: str
) -> Callable[..., Any]:
    """Return a function that passes the key to a user's function that takes one, and checks the tops."""
    call = with_error_note(function, definition, note_name)
    try:
        takes_key = "key" in inspect.signature(function).parameters
    except ValueError:  # some functions written in C have no signature
        takes_key = False

    def forward(*arrays: Any, ctx: Context) -> Any:
        key = {"key": None if ctx.fold_in_args is None else ctx.key} if takes_key else {}
        tops = call(*arrays, **key)
        if invalid_types := [type(top).__name__ for top in as_tuple(tops) if not isinstance(top, Array | np.ndarray)]:
            raise LayerError(
                f"{full_name} must return an array, or a tuple with an array for each top, not "
                f"{', '.join(invalid_types)}"
            )
        return tops

    return forward
