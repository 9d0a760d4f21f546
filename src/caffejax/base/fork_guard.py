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
    if _has_started_jax():
        for cls, name in _methods:
            setattr(cls, name, _raise_error)


def _has_started_jax() -> bool:
    """Return whether JAX has started its backends, after which it refuses to change the number of CPU devices."""
    config: Any = getattr(sys.modules.get("jax"), "config", None)
    if config is None:
        return False
    number = config.values["jax_num_cpu_devices"]
    try:
        config.update("jax_num_cpu_devices", max(0, number) + 1)
    except RuntimeError:
        return True
    config.update("jax_num_cpu_devices", number)
    return False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_methods)
