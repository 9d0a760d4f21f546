"""Processes forked after JAX has run: what runs compiled code says there that it cannot, rather than wait for ever.

A fork copies no threads, and JAX's are what a compiled program runs on. Nothing is asked while programs run: in such a
child the methods themselves are replaced.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from .errors import CaffejaxError

_MESSAGE = (
    "this process was forked after JAX had run, and has none of the threads that compiled code needs: start processes "
    "by spawn or forkserver (multiprocessing.get_context), or fork before JAX is first used"
)
Kind = TypeVar("Kind", bound=type)

_methods: list[tuple[type, str]] = []


def refuse_in_forks(*names: str) -> Callable[[Kind], Kind]:
    """Have methods of a class raise `CaffejaxError` in processes that are forked after JAX has run.

    Args:
        names: of the methods.

    Returns:
        A decorator for the class, which stays as it is.
    """

    def listed(kind: Kind) -> Kind:
        _methods.extend((kind, name) for name in names)
        return kind

    return listed


def _refuse(*_: Any, **__: Any) -> Any:
    raise CaffejaxError(_MESSAGE)


def _after_fork() -> None:
    jax = sys.modules.get("jax._src.xla_bridge")  # there is no public name for whether it has devices
    if jax is not None and getattr(jax, "backends_are_initialized", bool)():
        for kind, name in _methods:
            setattr(kind, name, _refuse)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
