"""Python layers that can be traced: functions of JAX arrays, compiled with the rest of the net."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from ...errors import LayerError
from ..context import Blob, Context
from ..registry import LayerType
from .user import give_settings, noted


def function_type(ctx: Context, function: Callable[..., Any], where: str) -> LayerType:
    """The type of a function `f(*bottoms)`, which gets `key=` too if it has a parameter of that name."""
    call = noted(function, ctx, where)
    takes_key = _takes_key(function)

    def forward(ctx: Context, *bottoms: Any) -> Any:
        return _checked(call(*bottoms, **_key(ctx, takes_key)), where)

    return replace(ctx.type, forward=forward, instance=function)


def class_type(ctx: Context, cls: Callable[[], Any], where: str) -> LayerType:
    """The type of a class whose instances are called like such a function.

    With `blobs(*bottoms)`, a list of `caffejax.Blob`, it has learnable blobs: a tuple of them is the first argument.
    With `backward`, a rule in the registry's form but without `ctx`, it has a hand-written Backward.
    """
    instance = noted(cls, ctx, where)()
    give_settings(instance, ctx)
    call = noted(instance, ctx, f"{where}.__call__")
    takes_key = _takes_key(instance.__call__)

    def forward(ctx: Context, *arrays: Any) -> Any:
        return _checked(call(*arrays, **_key(ctx, takes_key)), where)

    made = replace(ctx.type, forward=forward, instance=instance)
    if hasattr(instance, "blobs"):
        declare = noted(instance.blobs, ctx, f"{where}.blobs")

        def blobs(ctx: Context, *bottoms: Any) -> list[Blob]:
            return list(declare(*bottoms))

        made.declare_blobs = blobs
    if hasattr(instance, "backward"):
        backward = noted(instance.backward, ctx, f"{where}.backward")

        def rule(ctx: Context, *arrays: Any, y: Any, dy: Any) -> Sequence[Any]:
            return backward(*arrays, y=y, dy=dy)

        made.rule = rule
    return made


def _takes_key(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # of functions written in C
        return False
    return "key" in parameters


def _checked(tops: Any, where: str) -> Any:
    found = tops if isinstance(tops, tuple | list) else [tops]
    if wrong := [type(top).__name__ for top in found if not isinstance(top, jax.Array | np.ndarray)]:
        raise LayerError(f"{where} must return an array, or a tuple of one per top, but gave {', '.join(wrong)}")
    return tops


def _key(ctx: Context, takes_key: bool) -> dict[str, Any]:
    return {"key": ctx.key if ctx.base_key is not None else None} if takes_key else {}
