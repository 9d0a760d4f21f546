"""Import of the modules that Python layers name, and of the modules that these import."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from ...aliases import declared_package, temporary_alias
from ...errors import LayerError

_lock = threading.Lock()


def find_module(name: str, folder: Path | None) -> ModuleType:
    """Import a module from sys.path, the working directory or the net's folder, in this order.

    Raises:
        LayerError: if there is no such module. Exceptions of the module pass unchanged, with a note.
    """
    if name in sys.modules:
        return sys.modules[name]
    importlib.invalidate_caches()
    try:
        with importable(folder):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            error.add_note(f"while importing module '{name}' of a Python layer")
            raise
        raise LayerError(f"there is no Python module '{error.name}'; {_searched_text(folder)}") from None
    except Exception as error:
        error.add_note(f"while importing module '{name}' of a Python layer")
        raise


@contextmanager
def importable(folder: Path | None) -> Iterator[None]:
    """Return a context manager in which user code can import modules beside it, and caffejax as `caffe`.

    Within it, the working directory and the net's folder are appended to sys.path. The alias `caffe` is not used if the
    real Caffe was imported.
    """
    folders = _folders(folder)
    with temporary_alias("caffe", declared_package("caffe")):
        with _lock:
            sys.path.extend(folders)
        try:
            yield
        finally:
            with _lock:
                for path in folders:
                    _remove_last(sys.path, path)


def _remove_last(paths: list[str], path: str) -> None:
    if path in paths:  # user code may change the list, too
        del paths[len(paths) - 1 - paths[::-1].index(path)]


def get_dotted(module: ModuleType, name: str) -> Any:
    """Return the attribute of a module by a name that may contain dots, or None if it does not exist."""
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def _folders(folder: Path | None) -> list[str]:
    net_folder = [str(folder.resolve())] if folder is not None else []
    return list(dict.fromkeys([os.getcwd(), *net_folder]))


def _searched_text(folder: Path | None) -> str:
    return f"searched sys.path, {' and '.join(_folders(folder))}; add other folders to PYTHONPATH"
