"""Caffe's Python interface: `import caffejax.pycaffe as caffe`.

Modules that forks add to the package, such as SSD's `caffe.model_libs`, are found in folders `caffe` on Python's path.
"""

# ruff: noqa: E402

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

_random_state = np.random.get_state()  # it is put back below, because importing JAX draws numbers: scripts set the seed
# before they import caffe, and expect the same numbers as with Caffe

# isort: split
from ..base.errors import UnknownAttributeError
from ..core.layers.python.blob import Blob
from ..core.layers.python.layer import Layer
from . import _caffe, proto, pycaffe
from ._fork_files import find_in_fork
from ._global_state import (
    NCCL,
    TEST,
    TRAIN,
    Timer,
    has_nccl,
    init_log,
    install,
    layer_type_list,
    log,
    set_device,
    set_limits,
    set_logging,
    set_logging_disabled,
    set_mode_cpu,
    set_mode_gpu,
    set_multiprocess,
    set_random_seed,
    set_solver_count,
    set_solver_rank,
    solver_count,
    solver_rank,
)
from ._net import Net
from ._old_names import MODULE_NAMES
from .net_spec import NetSpec, layers, params, to_proto

np.random.set_state(_random_state)

with suppress(ImportError):  # scripts use PIL.Image without importing it, because Caffe's caffe.io imports it
    import PIL.Image  # noqa: F401

_SOLVERS = ("AdaDeltaSolver", "AdaGradSolver", "AdamSolver", "NesterovSolver", "RMSPropSolver", "SGDSolver")
_LAZY = {  # names from modules that are slow to import or rarely used, which are imported on first use
    **dict.fromkeys((*_SOLVERS, "Solver", "get_solver"), "._solver"),
    "Classifier": ".classifier",
    "Detector": ".detector",
}

__version__ = "1.0.0"  # the version of Caffe with this interface

__all__ = [
    "NCCL",
    "TEST",
    "TRAIN",
    "AdaDeltaSolver",
    "AdaGradSolver",
    "AdamSolver",
    "Blob",
    "Classifier",
    "Detector",
    "Layer",
    "NesterovSolver",
    "Net",
    "NetSpec",
    "RMSPropSolver",
    "SGDSolver",
    "Solver",
    "Timer",
    "_caffe",
    "get_solver",
    "has_nccl",
    "init_log",
    "install",
    "io",
    "layer_type_list",
    "layers",
    "log",
    "params",
    "proto",
    "pycaffe",
    "set_device",
    "set_limits",
    "set_logging",
    "set_logging_disabled",
    "set_mode_cpu",
    "set_mode_gpu",
    "set_multiprocess",
    "set_random_seed",
    "set_solver_count",
    "set_solver_rank",
    "solver_count",
    "solver_rank",
    "to_proto",
]


class _SearchPath(list[str]):
    """This package's folder, followed by the folder `caffe` in each folder on Python's path at the time of a search."""

    def __iter__(self) -> Iterator[str]:
        yield from super().__iter__()
        yield from (os.path.join(folder, "caffe") for folder in sys.path)


__path__ = _SearchPath(__path__)


def __getattr__(name: str) -> Any:
    if name == "io":  # it imports OpenCV
        return importlib.import_module(".io", __name__)
    if name in MODULE_NAMES:
        raise UnknownAttributeError(f"module '{__name__}' has no attribute '{name}'; {MODULE_NAMES[name]}")
    if name not in _LAZY:
        return find_in_fork(__name__, name)
    value = globals()[name] = getattr(importlib.import_module(_LAZY[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, "io"})
