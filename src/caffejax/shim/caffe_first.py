"""Import hook: `import caffe` imports the package beside this file instead of a Caffe that was never compiled.

Scripts put a checkout's folder `python` first on Python's path. Its package `caffe` lacks the compiled module `_caffe`,
without which it cannot be imported. A Caffe that has it is imported as usual.

Installed beside the package, the module is imported whenever Python starts, so it must be imported quickly.
"""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from types import ModuleType


class CaffeFirst:
    """Finder that prefers the package `caffe` in `folder` to one that was never compiled."""

    folder = os.path.dirname(os.path.abspath(__file__))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the package in `folder`, or None for other names and if a built Caffe comes first."""
        spec = PathFinder.find_spec(fullname) if fullname == "caffe" else None
        if spec is None or not spec.submodule_search_locations:
            return None
        names = [os.path.join(folder, "_caffe") for folder in spec.submodule_search_locations]
        if any(os.path.exists(name + suffix) for name in names for suffix in EXTENSION_SUFFIXES):
            return None
        return PathFinder.find_spec(fullname, [self.folder])


sys.meta_path.insert(0, CaffeFirst())
