"""Protection against deadlocks in processes that are forked after JAX has started.

Compiled programs run on JAX's threads, and a fork copies no threads, so a call in the child process would wait forever.
In such a child process, the methods that are registered here are replaced by a function that raises an error. Calls in
other processes take no additional time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from .errors import CaffejaxError

_MESSAGE = (
    "this process was forked after JAX had started, so it lacks the threads that compiled code needs: start processes "
    "by spawn or forkserver (multiprocessing.get_context), or fork before JAX is first used"
)
Kind = TypeVar("Kind", bound=type)

_methods: list[tuple[type, str]] = []


def raise_after_fork(*names: str) -> Callable[[Kind], Kind]:
    """Return a class decorator that makes methods raise `CaffejaxError` in processes forked after JAX has started.

    Args:
        names: names of methods of the class. The class itself is returned unchanged.
    """

    def guard(kind: Kind) -> Kind:
        _methods.extend((kind, name) for name in names)
        return kind

    return guard


def _raise_error(*_: Any, **__: Any) -> Any:
    raise CaffejaxError(_MESSAGE)


def _replace_methods() -> None:
    jax = sys.modules.get("jax._src.xla_bridge")  # JAX has no public function for this
    if jax is not None and getattr(jax, "backends_are_initialized", bool)():
        for kind, name in _methods:
            setattr(kind, name, _raise_error)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_methods)
