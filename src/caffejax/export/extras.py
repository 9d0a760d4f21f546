"""Packages that only exporting needs, and that the extra `export` brings."""

from __future__ import annotations

from importlib import import_module

from ..errors import CaffejaxError


def require_package(name: str, purpose: str) -> None:
    """Check that a package is there.

    Args:
        name: the package.
        purpose: what it is needed for, in words.

    Raises:
        CaffejaxError: naming the extra that brings it.
    """
    try:
        import_module(name)
    except ImportError as error:
        message = f"the package {name}, which {purpose}, is missing: pip install 'caffejax[export]'"
        raise CaffejaxError(message) from error
