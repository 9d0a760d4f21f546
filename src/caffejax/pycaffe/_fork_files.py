"""Names that the Python files of a fork's package `caffe` add, such as functions of its `caffe/io.py`."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from ..base.errors import UnknownAttributeError
from ..base.import_alias import temporary_alias

_PACKAGE = __name__.rpartition(".")[0]
_modules: dict[str, ModuleType] = {}
_lock = threading.RLock()


def fall_back_to_fork(module: str) -> Callable[[str], Any]:
    """Return a function `__getattr__` for a module of this package, such as "caffejax.pycaffe.io".

    A name that the module lacks comes from the file of the same name in the first folder `caffe` on Python's path that
    defines it, such as `python/caffe/io.py` of a fork. The file is run when such a name is first used.
    """

    def get_attribute(name: str) -> Any:
        return find_in_fork(module, name)

    return get_attribute


def find_in_fork(module: str, name: str) -> Any:
    """Return an attribute of the file of a fork that has the name of a module of this package.

    Raises:
        AttributeError: if no file defines the name, or if the file cannot be run; the message gives the reason.
    """
    message = f"module '{module}' has no attribute '{name}'"
    if name.startswith("__"):
        raise UnknownAttributeError(message)
    stem = "__init__" if module == _PACKAGE else module.rpartition(".")[2]
    for path in _find_files(f"{stem}.py"):
        try:
            if name in _read_names(path, os.stat(path).st_mtime_ns):
                return getattr(_run(path, stem), name)
        except SyntaxError as error:
            message += f"; {path} is not Python 3 (line {error.lineno}: {error.msg}); 2to3 converts it"
        except Exception as error:
            raise UnknownAttributeError(
                f"{message}; {path} defines it, but fails: {type(error).__name__}: {error}"
            ) from error
    raise UnknownAttributeError(message)


def _find_files(name: str) -> Iterator[str]:
    """Yield the files of this name in the folders `caffe` on Python's path, except those of caffejax."""
    for folder in sys.path:
        path = os.path.join(folder, "caffe", name)
        if os.path.isfile(path) and b"caffejax.pycaffe" not in Path(path).read_bytes():
            yield path


@cache
def _read_names(path: str, modified: int) -> frozenset[str]:
    """Return the names that a file defines or imports at its top level, without running it."""
    names: set[str] = set()
    nodes: list[ast.AST] = [ast.parse(Path(path).read_bytes(), path)]
    while nodes:
        match nodes.pop():
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {alias.asname or alias.name.partition(".")[0] for alias in aliases}
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case node:
                nodes += ast.iter_child_nodes(node)
    return frozenset(names)


def _run(path: str, stem: str) -> ModuleType:
    """Return the module of a fork's file, in which relative imports and `import caffe` give this package."""
    with _lock:
        if path not in _modules:
            name = f"{_PACKAGE}._fork_{stem}"
            spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=None)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            with temporary_alias("caffe", _PACKAGE):
                spec.loader.exec_module(module)
            _modules[path] = module
        return _modules[path]
