"""Calling what users wrote."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from ..context import Site
from .modules import importable

R = TypeVar("R")


def with_error_note(function: Callable[..., R], site: Site, what: str) -> Callable[..., R]:
    """Let the function import what its module could, and note layer and function on an exception that it raises."""
    note = f"in layer '{site.layer.name}' ({site.layer.type}): {what}"

    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> R:
        try:
            with importable(site.folder):
                return function(*args, **kwargs)
        except Exception as error:
            if note not in getattr(error, "__notes__", ()):
                error.add_note(note)
            raise

    return call


def set_settings(instance: Any, site: Site) -> None:
    """Set `param_str` (and `param_str_`, its earlier name) and `phase`, 0 for TRAIN and 1 for TEST."""
    instance.param_str = instance.param_str_ = site.layer.python_param.param_str
    instance.phase = 0 if site.training else 1
