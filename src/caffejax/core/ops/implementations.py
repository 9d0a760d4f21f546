"""The table of implementations: which function computes an operation on a platform.

An operation is defined in core or in a fork's layer, with a plain form in XLA's operations. Rooms that core does not
know, such as `cpu`, register further forms by operation and platform: "cpu", or "host" for NumPy without a compiled
program. A room lists its forms in its `__init__`, as names of functions, so that a function is imported when it is
needed first. Without the room, the plain form is used everywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

Platform = Literal["cpu", "host"]
Operation = str | Callable[..., Any]  # a name, or the plain form itself

_PROVIDERS: list[str] = []  # until their import has succeeded
_LOCK = threading.RLock()
_FORMS: dict[tuple[Operation, Platform], Any] = {}


def declare_provider(module: str) -> None:
    """Name a module that calls `register` when it is imported. It is imported when the table is first read.

    A module that does not exist is passed over, because the folder of a room may be deleted.
    """
    _PROVIDERS.append(module)


def register_forms(platform: Platform, forms: Mapping[Operation, Any]) -> None:
    """Register forms of operations for a platform.

    Args:
        platform: the platform.
        forms: a function, or its name as "module:function", by operation.
    """
    _FORMS.update({(operation, platform): form for operation, form in forms.items()})


def registered_operations() -> list[tuple[Operation, Platform]]:
    """Return the operations and platforms for which forms are registered."""
    with _LOCK:  # other threads wait until all forms are known
        for module in tuple(_PROVIDERS):
            if find_spec(module):
                import_module(module)
            with suppress(ValueError):  # this import has read the table itself
                _PROVIDERS.remove(module)
    return list(_FORMS)


def find_form(operation: Operation, platform: Platform = "cpu") -> Callable[..., Any] | None:
    """Return the function that is registered for an operation on a platform, or None."""
    if _PROVIDERS:
        registered_operations()
    form = _FORMS.get((operation, platform))
    if isinstance(form, str):
        module, _, function = form.partition(":")
        form = _FORMS[operation, platform] = getattr(import_module(module), function)
    return form


def cpu_form(operation: str, otherwise: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
    """Return an operation's form for CPUs.

    Args:
        operation: the name in the table. A registered function returns None for arguments that it does not support.
        otherwise: the function that computes the operation then, and where no function is registered.
        settings: keyword arguments of both functions.
    """
    return _CpuForm(operation, otherwise, tuple(settings.items()))


@dataclass(frozen=True)
class _CpuForm:
    """See `cpu_form`. Equal forms are equal, so that JAX knows an operation again."""

    operation: str
    otherwise: Callable[..., Any]
    settings: tuple[tuple[str, Any], ...]

    def __call__(self, *arrays: Any, **further_settings: Any) -> Any:
        settings = dict(self.settings, **further_settings)
        form = find_form(self.operation)
        results = None if form is None else form(*arrays, **settings)
        return self.otherwise(*arrays, **settings) if results is None else results
