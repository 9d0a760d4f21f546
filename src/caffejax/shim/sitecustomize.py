"""Install the import hook of `caffe_first` in each process whose PYTHONPATH has this folder, when Python starts."""

import os
import sys
from importlib.machinery import PathFinder

import caffe_first  # type: ignore[import-not-found]  # noqa: F401

_others = [path for path in sys.path if os.path.abspath(path) != os.path.dirname(os.path.abspath(__file__))]
if (_spec := PathFinder.find_spec("sitecustomize", _others)) and _spec.loader:  # the module that this one hides
    _spec.loader.exec_module(sys.modules[__name__])
