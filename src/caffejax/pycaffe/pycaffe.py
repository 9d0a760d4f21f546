"""Alias of `caffejax.pycaffe` under the name of Caffe's Python module: `from caffe.pycaffe import Net`."""

from __future__ import annotations

import sys
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(sys.modules[__name__.rpartition(".")[0]], name)
