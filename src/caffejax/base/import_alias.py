"""Import hooks that let a package be imported under a second name, such as `caffejax.pycaffe` as `caffe`."""

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


class AliasFinder(MetaPathFinder, Loader):
    """An import hook that finds a package's modules under a second name: `alias.x` is the module `package.x` itself."""

    def __init__(self, alias: str, package: str) -> None:
        self.alias, self.package = alias, package
        self.imported_names: set[str] = set()  # full names of the modules imported through the alias

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for the alias or a module in it, or None for other names and for modules that do not exist."""
        if fullname.partition(".")[0] != self.alias or self._would_hide_attribute(fullname):
            return None
        if importlib.util.find_spec(self._get_real_name(fullname)) is None:
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the module under its real name and return that module."""
        module = importlib.import_module(self._get_real_name(spec.name))
        self.imported_names.add(spec.name)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's real spec, which the import system has overwritten. The module has already run."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state

    def _would_hide_attribute(self, name: str) -> bool:
        """Return whether a module of this name would replace an attribute of the package, such as `layers`."""
        package, _, attribute = name.rpartition(".")
        module = sys.modules.get(package)
        return not isinstance(getattr(module, attribute, sys), ModuleType)

    def _get_real_name(self, name: str) -> str:
        return self.package + name.removeprefix(self.alias)


_lock = threading.Lock()
declared_packages: dict[str, str] = {}
"""The packages that aliases stand for. `import alias` works only after `install_alias`."""


def install_alias(alias: str, package: str) -> None:
    """Make `import alias` return `package` until the process ends. Repeated calls have no further effect.

    Raises:
        CaffejaxError: if a different package named `alias` has already been imported.
    """
    if (module := _find_conflicting_module(alias, package)) is not None:
        file = getattr(module, "__file__", None) or "a module without a file"
        raise CaffejaxError(
            f"a different package '{alias}' has already been imported: {file}; import {package} before any code "
            f"imports {alias}"
        )
    with _lock:
        if not any(isinstance(finder, _PermanentAlias) and finder.alias == alias for finder in sys.meta_path):
            sys.meta_path.insert(0, _PermanentAlias(alias, package))


class _PermanentAlias(AliasFinder):
    """The hook of `install_alias`, which stays in `sys.meta_path`."""


@contextmanager
def temporary_alias(alias: str, package: str) -> Iterator[None]:
    """Make `import alias` return `package` within a `with` block.

    If a different package named `alias` has already been imported, the block does not change it. Blocks of several
    threads may overlap: the block that ends last removes the alias from `sys.modules`.
    """
    if _find_conflicting_module(alias, package) is not None:
        yield
        return
    finder = AliasFinder(alias, package)
    with _lock:
        sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        with _lock:
            sys.meta_path.remove(finder)
            hooks = [hook for hook in sys.meta_path if isinstance(hook, AliasFinder) and hook.alias == alias]
            for name in finder.imported_names:
                if hooks:
                    hooks[0].imported_names.add(name)
                else:
                    sys.modules.pop(name, None)


def _find_conflicting_module(alias: str, package: str) -> ModuleType | None:
    module = sys.modules.get(alias)
    return None if module is sys.modules.get(package) else module
