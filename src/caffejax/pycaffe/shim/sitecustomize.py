"""Install the import hook of `caffe_import_hook` when Python starts with this folder in PYTHONPATH."""

import os
import sys
from importlib.machinery import PathFinder

import caffe_import_hook  # type: ignore[import-not-found]  # noqa: F401

_other_paths = [path for path in sys.path if os.path.abspath(path) != os.path.dirname(os.path.abspath(__file__))]
if (
    _spec := PathFinder.find_spec("sitecustomize", _other_paths)
) and _spec.loader:  # the module of this name that this module hides
    _spec.loader.exec_module(sys.modules[__name__])
