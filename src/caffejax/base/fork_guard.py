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

_FORK_MESSAGE = (
    "this process was forked after JAX had started, so it lacks the threads that compiled code needs: start processes "
    "by spawn or forkserver (multiprocessing.get_context), or fork before JAX is first used. A spawned process whose "
    "script uses cv2.dnn must call caffejax.dnn.install() again"
)
ClassT = TypeVar("ClassT", bound=type)

_methods: list[tuple[type, str]] = []


def raise_after_fork(*names: str) -> Callable[[ClassT], ClassT]:
    """Return a class decorator that makes methods raise `CaffejaxError` in processes forked after JAX has started.

    Args:
        names: names of methods of the class. The class itself is returned unchanged.
    """

    def guard(cls: ClassT) -> ClassT:
        _methods.extend((cls, name) for name in names)
        return cls

    return guard


def _raise_error(*_: Any, **__: Any) -> Any:
    raise CaffejaxError(_FORK_MESSAGE)


def _replace_methods() -> None:
    xla_bridge = sys.modules.get("jax._src.xla_bridge")  # JAX has no public function for this
    if xla_bridge is not None and getattr(xla_bridge, "backends_are_initialized", bool)():
        for cls, name in _methods:
            setattr(cls, name, _raise_error)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_methods)
