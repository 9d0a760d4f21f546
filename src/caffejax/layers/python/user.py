"""Calls of user code: imports that it needs, and notes on its exceptions."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any, TypeVar

from ..context import Site
from .modules import importable

R = TypeVar("R")


def with_error_note(function: Callable[..., R], site: Site, function_name: str) -> Callable[..., R]:
    """Wrap a function of user code: its imports work as in its module, and its exceptions get a note with the layer."""
    note = f"in layer '{site.layer.name}' ({site.layer.type}): {function_name}"

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


class _Phase(enum.IntEnum):
    """The phase of a Python layer: a number as in Caffe, whose text is the name as in py-faster-rcnn's fork."""

    TRAIN = 0
    TEST = 1

    def __str__(self) -> str:
        return self.name


def set_settings(instance: Any, site: Site) -> None:
    """Set `param_str` (and `param_str_`, its earlier name) and `phase`, 0 for TRAIN and 1 for TEST."""
    instance.param_str = instance.param_str_ = site.layer.python_param.param_str
    instance.phase = _Phase.TRAIN if site.training else _Phase.TEST
