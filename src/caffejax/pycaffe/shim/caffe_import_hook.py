"""Import hook with which `import caffe` imports the package in this folder instead of a Caffe that is not compiled.

Scripts put the folder `python` of a Caffe checkout first on Python's path. If the package `caffe` in it lacks the
compiled module `_caffe`, it cannot be imported. A Caffe with this module is imported as usual.

If this module is installed in the same folder as the package, it is imported whenever Python starts. Its import must
therefore be fast.
"""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from types import ModuleType


class CaffeImportHook:
    """Finder that prefers the package `caffe` in `folder` to a Caffe that is not compiled."""

    folder = os.path.dirname(os.path.abspath(__file__))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the package in `folder`, or None for other names and for a compiled Caffe."""
        spec = PathFinder.find_spec(fullname) if fullname == "caffe" else None
        if spec is None or not spec.submodule_search_locations:
            return None
        names = [os.path.join(folder, "_caffe") for folder in spec.submodule_search_locations]
        if any(os.path.exists(name + suffix) for name in names for suffix in EXTENSION_SUFFIXES):
            return None
        return PathFinder.find_spec(fullname, [self.folder])


sys.meta_path.insert(0, CaffeImportHook())
