"""Import hooks that find a package under another name."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from .errors import CaffejaxError


class Alias(MetaPathFinder, Loader):
    """Import hook for `alias` and `alias.x.y` as a package and its modules: one object under both names."""

    def __init__(self, alias: str, package: str) -> None:
        self.alias, self.package = alias, package
        self.given: set[str] = set()  # names that modules were imported by

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for the alias and what is in it; None for other names."""
        if fullname.partition(".")[0] != self.alias or importlib.util.find_spec(self._real(fullname)) is None:
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module itself, imported under its own name."""
        module = importlib.import_module(self._real(spec.name))
        self.given.add(spec.name)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module, which has run already, the spec back that the import system has overwritten."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state

    def _real(self, name: str) -> str:
        return self.package + name.removeprefix(self.alias)


_lock = threading.Lock()
_declared: dict[str, str] = {}


def declare(alias: str, package: str) -> None:
    """Say which package an alias stands for. Nothing is imported, and `import alias` does not find it by that."""
    _declared[alias] = package


def declared(alias: str) -> str:
    """Return the package that an alias was declared to stand for."""
    return _declared[alias]


def install(alias: str, package: str) -> None:
    """Have `import alias` give a package from now on. Calling it again does no harm.

    Raises:
        CaffejaxError: if another package of that name was imported already.
    """
    if (found := _another(alias, package)) is not None:
        raise CaffejaxError(
            f"another {alias}, from {getattr(found, '__file__', None) or 'an unknown place'}, was imported already; "
            f"let {package} take its name before anything imports {alias}"
        )
    with _lock:
        if not any(isinstance(finder, _Installed) and finder.alias == alias for finder in sys.meta_path):
            sys.meta_path.insert(0, _Installed(alias, package))


class _Installed(Alias):
    """An alias that stays."""


@contextmanager
def meanwhile(alias: str, package: str) -> Iterator[None]:
    """Have `import alias` give a package until the end, unless another package of that name was imported already.

    Threads may overlap: the last to end takes the names out of `sys.modules`.
    """
    if _another(alias, package) is not None:
        yield
        return
    own = Alias(alias, package)
    with _lock:
        sys.meta_path.insert(0, own)
    try:
        yield
    finally:
        with _lock:
            sys.meta_path.remove(own)
            others = [finder for finder in sys.meta_path if isinstance(finder, Alias) and finder.alias == alias]
            for name in own.given:
                if others:
                    others[0].given.add(name)
                else:
                    sys.modules.pop(name, None)


def _another(alias: str, package: str) -> ModuleType | None:
    found = sys.modules.get(alias)
    return None if found is sys.modules.get(package) else found
