"""Makes `import caffe` mean this package."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from ..errors import CaffejaxError

_ALIAS = "caffe"
_REAL = __name__.rpartition(".")[0]


class _Finder(MetaPathFinder, Loader):
    """Finds `caffe` and `caffe.x.y` as this package and its modules: one object under both names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where the import system asks."""
        if fullname.partition(".")[0] != _ALIAS or importlib.util.find_spec(_real(fullname)) is None:
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself, imported under its own name."""
        module = importlib.import_module(_real(spec.name))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has run already; gives it back the spec that the import system has overwritten."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


def _real(name: str) -> str:
    return _REAL + name.removeprefix(_ALIAS)


def install() -> None:
    """From now on `import caffe`, `import caffe.io` and so on give this package and its modules.

    They are found before a Caffe that is installed. Calling it again does no harm.

    Raises:
        CaffejaxError: if another `caffe` was imported already.
    """
    found = sys.modules.get(_ALIAS)
    if found is not None and found is not sys.modules[_REAL]:
        raise CaffejaxError(
            f"another caffe, from {getattr(found, '__file__', None) or 'an unknown place'}, was imported already; "
            "call caffejax.pycaffe.install() before anything imports caffe"
        )
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
