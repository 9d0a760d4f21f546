"""Finding the modules that Python layers name."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from ...errors import LayerError


def find_module(name: str, folder: Path | None) -> ModuleType:
    """The module, imported: as Python finds it, else from the working directory, else from the net's folder.

    A folder that was needed stays in sys.path, as the module may import its neighbours later.

    Raises:
        LayerError: if there is no such module. What the module raises itself passes as it is, with a note.
    """
    if name in sys.modules:
        return sys.modules[name]
    _make_import_caffe_work()
    importlib.invalidate_caches()
    _reach(name.partition(".")[0], folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            error.add_note(f"while importing module '{name}' of a Python layer")
            raise
        raise LayerError(f"there is no Python module '{error.name}'; {_looked_in(folder)}") from None
    except Exception as error:
        error.add_note(f"while importing module '{name}' of a Python layer")
        raise


def named(module: ModuleType, name: str) -> Any:
    """What the module has under a name, which may have dots; None if nothing."""
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _folders(folder: Path | None) -> list[str]:
    own = [str(folder.resolve())] if folder is not None else []
    return list(dict.fromkeys([os.getcwd(), *own]))


def _reach(package: str, folder: Path | None) -> None:
    """Sees that the package can be imported, if it is anywhere."""
    if package in sys.modules or not package or importlib.util.find_spec(package) is not None:
        return
    for place in _folders(folder):
        if PathFinder.find_spec(package, [place]) is not None:
            sys.path.append(place)
            return


def _looked_in(folder: Path | None) -> str:
    return f"looked in sys.path, {' and '.join(_folders(folder))}; PYTHONPATH can name more folders"


def _make_import_caffe_work() -> None:
    """Lets the module say `import caffe`, unless the real one is here."""
    if "caffe" in sys.modules:
        return
    try:
        alias = importlib.import_module("caffejax.pycaffe._alias")
    except ModuleNotFoundError as error:
        if error.name != "caffejax.pycaffe._alias":
            raise
        return
    alias.install()
