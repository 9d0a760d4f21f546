"""Import of user modules for Python layers, and wrappers that add the name of the layer to exceptions."""

from __future__ import annotations

import enum
import functools
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from ....base.errors import LayerError
from ....base.import_alias import declared_packages, temporary_alias
from ..context import LayerDefinition

_lock = threading.Lock()


def import_user_module(name: str, folder: Path | None) -> ModuleType:
    """Import a module from sys.path, the working directory or the net's folder, searched in this order.

    Exceptions that the module raises get a note with its name.

    Raises:
        LayerError: if the module is not found.
    """
    if name in sys.modules:
        return sys.modules[name]
    importlib.invalidate_caches()
    try:
        with user_import_path(folder):
            return importlib.import_module(name)
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is None or not f"{name}.".startswith(f"{missing}."):
            error.add_note(f"while importing module '{name}' of a Python layer")
            raise
        folders = " and ".join(_list_search_folders(folder))
        search = f"searched sys.path, {folders}; add other folders to PYTHONPATH"
        raise LayerError(f"there is no Python module '{missing}'; {search}") from None


@contextmanager
def user_import_path(folder: Path | None) -> Iterator[None]:
    """Return a context manager in which user code can import modules next to the net, and caffejax as `caffe`.

    Within it, the working directory and the net's folder are appended to sys.path. The alias `caffe` is not used if the
    real Caffe was imported.
    """
    folders = _list_search_folders(folder)
    with temporary_alias("caffe", declared_packages["caffe"]):
        with _lock:
            sys.path.extend(folders)
        try:
            yield
        finally:
            with _lock:
                for path in folders:
                    if path in sys.path:  # user code may have removed the path
                        del sys.path[len(sys.path) - 1 - sys.path[::-1].index(path)]


def get_dotted(module: ModuleType, name: str) -> Any:
    """Return the attribute `name` of a module, or None if it does not exist. The name may contain dots."""
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def _list_search_folders(folder: Path | None) -> list[str]:
    net_folder = [str(folder.resolve())] if folder is not None else []
    return list(dict.fromkeys([os.getcwd(), *net_folder]))


R = TypeVar("R")


def with_error_note(function: Callable[..., R], definition: LayerDefinition, function_name: str) -> Callable[..., R]:
    """Wrap a user's function, so that its exceptions get a note that names the layer and `function_name`.

    The function runs inside `user_import_path`.
    """
    note = f"in layer '{definition.layer.name}' ({definition.layer.type}): {function_name}"

    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> R:
        try:
            with user_import_path(definition.folder):
                return function(*args, **kwargs)
        except Exception as error:
            if note not in getattr(error, "__notes__", ()):
                error.add_note(note)
            raise

    return call


class _Phase(enum.IntEnum):
    """The phase of a Python layer: a number, as in Caffe, that prints as its name, as in py-faster-rcnn's fork."""

    TRAIN = 0
    TEST = 1

    def __str__(self) -> str:
        return self.name


def set_layer_attributes(instance: Any, definition: LayerDefinition) -> None:
    """Set the attributes `param_str`, `param_str_` (its earlier name) and `phase` (0 for TRAIN, 1 for TEST)."""
    instance.param_str = instance.param_str_ = definition.layer.python_param.param_str
    instance.phase = _Phase.TRAIN if definition.training else _Phase.TEST
