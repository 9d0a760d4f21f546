"""Upgrades of old nets and solvers, step by step, as Caffe's upgrade tools make them."""

from __future__ import annotations

from ..errors import SchemaError
from .caffe_pb2 import NetParameter, SolverParameter
from .upgrade_forks import upgrade_memory_data, upgrade_softmax, upgrade_statistics
from .upgrade_inputs import upgrade_batch_norms, upgrade_inputs, upgrade_transforms
from .upgrade_v0 import upgrade_v0
from .upgrade_v1 import upgrade_v1

_STEPS = (
    *(upgrade_v0, upgrade_transforms, upgrade_v1, upgrade_inputs, upgrade_batch_norms),
    *(upgrade_softmax, upgrade_memory_data, upgrade_statistics),
)

_SOLVER_TYPES = {
    SolverParameter.SGD: "SGD",
    SolverParameter.NESTEROV: "Nesterov",
    SolverParameter.ADAGRAD: "AdaGrad",
    SolverParameter.RMSPROP: "RMSProp",
    SolverParameter.ADADELTA: "AdaDelta",
    SolverParameter.ADAM: "Adam",
    SolverParameter.SAG: "SAG",
}


def upgrade_net(net: NetParameter) -> list[str]:
    """Bring `net` up to date, in place.

    Returns:
        Warnings: what was old, and what was dropped because nothing corresponds to it.

    Raises:
        SchemaError: for nets that mix old and new layers, V0 layers of unknown type, inputs without shapes.
    """
    if net.layer and net.layers:
        raise SchemaError(
            f"the net has both 'layer' (current) and 'layers' (old); write all as layer {{ type: \"...\" }} "
            f"(first 'layers' entry: '{net.layers[0].name or net.layers[0].layer.name}')"
        )
    warnings = ["'layers' is old; write layer { type: \"ReLU\" ... }"] if net.layers else []
    for step in _STEPS:
        warnings += step(net)
    return warnings


def upgrade_solver(solver: SolverParameter) -> list[str]:
    """Bring `solver` and the nets inside it up to date, in place.

    Returns:
        Warnings, as `upgrade_net`.

    Raises:
        SchemaError: where `type` and `solver_type` are both given, and as `upgrade_net`.
    """
    warnings = []
    if solver.HasField("solver_type"):
        if solver.HasField("type"):
            raise SchemaError(f"the solver has both type ('{solver.type}') and the old solver_type; remove the latter")
        solver.type = _SOLVER_TYPES[solver.solver_type]
        solver.ClearField("solver_type")
        warnings.append(f'solver_type is old; write type: "{solver.type}"')
    nets = [getattr(solver, name) for name in ("net_param", "train_net_param") if solver.HasField(name)]
    for net in [*nets, *solver.test_net_param]:
        warnings += upgrade_net(net)
    return warnings
