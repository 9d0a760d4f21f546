"""caffejax: a compiler that takes Caffe models and runs them on JAX.

    net = caffejax.Net("train_val.prototxt", phase="TRAIN")
    params, state = net.init(jax.random.key(0))
    loss, outputs = net.loss(params, state, batch, jax.random.key(1))

    solver = caffejax.Solver("solver.prototxt")
    solver.solve()

Names are imported when first used, so that `import caffejax` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import aliases
from ._version import __version__

if TYPE_CHECKING:
    from .checkpoints.caffemodel import read_caffemodel, write_caffemodel
    from .checkpoints.loading import load_weights, save_weights
    from .errors import (
        CaffejaxError,
        DataError,
        GraphError,
        LayerError,
        Problem,
        SchemaError,
        SolverError,
        WeightsError,
    )
    from .gradcheck import check_gradients
    from .graph import Graph, build_graph
    from .layers import (
        SAME_AS_BOTTOMS,
        ByChannel,
        Context,
        Facts,
        Fed,
        Fusion,
        Gradient,
        Indices,
        LayerType,
        Look,
        OnHost,
        ParamSpec,
        PerLayer,
        Reads,
        Signature,
        Site,
        Traced,
        layer_types,
        register,
    )
    from .net import Net, Outputs, Variables
    from .options import Reading, Run
    from .process import tune_process
    from .schema import read_net, read_solver
    from .solvers import Solver

_PLACES = {
    "checkpoints.caffemodel": ("read_caffemodel", "write_caffemodel"),
    "checkpoints.loading": ("load_weights", "save_weights"),
    "errors": (
        "CaffejaxError",
        "DataError",
        "GraphError",
        "LayerError",
        "Problem",
        "SchemaError",
        "SolverError",
        "WeightsError",
    ),
    "gradcheck": ("check_gradients",),
    "graph": ("Graph", "build_graph"),
    "layers": (
        "SAME_AS_BOTTOMS",
        "ByChannel",
        "Context",
        "Facts",
        "Fed",
        "Fusion",
        "Gradient",
        "Indices",
        "LayerType",
        "Look",
        "OnHost",
        "ParamSpec",
        "PerLayer",
        "Reads",
        "Signature",
        "Site",
        "Traced",
        "layer_types",
        "register",
    ),
    "net": ("Net", "Outputs", "Variables"),
    "options": ("Reading", "Run"),
    "process": ("tune_process",),
    "schema": ("read_net", "read_solver"),
    "solvers": ("Solver",),
}
_MODULE_OF = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "SAME_AS_BOTTOMS",
    "ByChannel",
    "CaffejaxError",
    "Context",
    "DataError",
    "Facts",
    "Fed",
    "Fusion",
    "Gradient",
    "Graph",
    "GraphError",
    "Indices",
    "LayerError",
    "LayerType",
    "Look",
    "Net",
    "OnHost",
    "Outputs",
    "ParamSpec",
    "PerLayer",
    "Problem",
    "Reading",
    "Reads",
    "Run",
    "SchemaError",
    "Signature",
    "Site",
    "Solver",
    "SolverError",
    "Traced",
    "Variables",
    "WeightsError",
    "__version__",
    "build_graph",
    "check_gradients",
    "layer_types",
    "load_weights",
    "read_caffemodel",
    "read_net",
    "read_solver",
    "register",
    "save_weights",
    "tune_process",
    "write_caffemodel",
]

# what `caffe` is to Python layers and, from `pycaffe.install()` on, to all of the process
aliases.declare("caffe", f"{__name__}.pycaffe")


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'caffejax' has no attribute '{name}'")
    value = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
