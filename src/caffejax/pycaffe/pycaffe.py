"""Alias of `caffejax.pycaffe` under the name of Caffe's Python module: `from caffe.pycaffe import Net`."""

from __future__ import annotations

import sys
from typing import Any

from ._fork_files import find_in_fork


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    package = sys.modules[__name__.rpartition(".")[0]]
    return getattr(package, name) if hasattr(package, name) else find_in_fork(__name__, name)
