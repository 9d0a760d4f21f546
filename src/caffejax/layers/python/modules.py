"""Finding the modules that Python layers name, and what those modules import."""

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

from ...aliases import declared, meanwhile
from ...errors import LayerError

_lock = threading.Lock()


def find_module(name: str, folder: Path | None) -> ModuleType:
    """Import a module: as Python finds it, else from the working directory, else from the net's folder.

    Raises:
        LayerError: if there is no such module. What the module raises itself passes as it is, with a note.
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
        raise LayerError(f"there is no Python module '{error.name}'; {_looked_in(folder)}") from None
    except Exception as error:
        error.add_note(f"while importing module '{name}' of a Python layer")
        raise


@contextmanager
def importable(folder: Path | None) -> Iterator[None]:
    """Let what users wrote import its neighbours and `caffe`, unless the real one was imported, while it runs.

    The working directory and the net's folder are the last places to look in. Nothing of it stays.
    """
    places = _folders(folder)
    with meanwhile("caffe", declared("caffe")):
        with _lock:
            sys.path.extend(places)
        try:
            yield
        finally:
            with _lock:
                for place in places:
                    _remove_last(sys.path, place)


def _remove_last(path: list[str], place: str) -> None:
    if place in path:  # users change the list as well
        del path[len(path) - 1 - path[::-1].index(place)]


def get_dotted(module: ModuleType, name: str) -> Any:
    """Return what the module has under a name, which may have dots; None if nothing."""
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _folders(folder: Path | None) -> list[str]:
    own = [str(folder.resolve())] if folder is not None else []
    return list(dict.fromkeys([os.getcwd(), *own]))


def _looked_in(folder: Path | None) -> str:
    return f"looked in sys.path, {' and '.join(_folders(folder))}; PYTHONPATH can name more folders"
