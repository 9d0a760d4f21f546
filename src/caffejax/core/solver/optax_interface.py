"""A solver prototxt for training loops with optax: its learning rate as a schedule, its update as a transformation."""

from __future__ import annotations

import os

import optax

from ...base.errors import SolverError
from ..program.net import Net
from ..schema import read_solver, source_file
from ..schema.caffe_pb2 import SolverParameter
from .caffe_optimizer import make_optimizer
from .solver_param import check_solver
from .traced_schedules import traced_schedule


def optimizer(solver: str | os.PathLike[str] | SolverParameter, net: Net) -> optax.GradientTransformationExtraArgs:
    """Return Caffe's solver as an optax transformation, with its own count, learning rate and multipliers.

        tx = caffejax.optimizer("solver.prototxt", net)
        opt_state = tx.init(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)

    It clips and regularizes gradients, and applies the rule of the solver's `type` with the rate of its `lr_policy` and
    the net's lr_mult and decay_mult. It works on each array by the last keys of its path, the names of layer and blob,
    so it takes the net's params, a part of them, and trees of flax and optax that contain them. Gradients are means
    over the `iter_size` passes of an iteration, and are clipped as Caffe clips the sums. The solver's nets, tests and
    snapshots are ignored.

    Args:
        solver: the path of a solver prototxt, its text, or a SolverParameter.
        net: the net whose params are updated.

    Returns:
        The transformation. Its state has an int32 count and arrays with the shapes and dtypes of the params. `update`
        has the optional arguments `rate`, which replaces the learning rate, and `iteration`, which replaces the count.

    Raises:
        SolverError: if a setting is invalid, or if the learning rate depends on losses or tests, as with the policies
            `plateau` and `stepearly`. `init` and `update` raise it for arrays that do not belong to the net; the
            message names their paths.
        SchemaError: if the prototxt cannot be parsed.
    """
    if not isinstance(net, Net):
        raise SolverError(f"net must be a caffejax.Net, not {type(net).__name__}")
    param = read_valid_solver(solver)
    traced_schedule(param)  # raises the error of a policy that is not a function of the iteration
    return make_optimizer(param, net)


def lr_schedule(solver: str | os.PathLike[str] | SolverParameter) -> optax.Schedule:
    """Return the learning rate of a solver as a function of the iteration, which JAX can trace.

        optax.adam(caffejax.lr_schedule("solver.prototxt"))

    It is the rate of Caffe's `lr_policy`, warm-ups of forks included, within 3e-7 of the rate that `Solver` computes on
    the host.

    Args:
        solver: the path of a solver prototxt, its text, or a SolverParameter. It need not name a net.

    Returns:
        A function of the iteration, counted from 0, an integer or an int32 array of any shape. It returns float32 rates
        of the same shape.

    Raises:
        SolverError: if a setting is invalid, or if the rate depends on losses or tests, as with the policies `plateau`
            and `stepearly`, which only `Solver` follows.
        SchemaError: if the prototxt cannot be parsed.
    """
    return traced_schedule(read_valid_solver(solver))


def read_valid_solver(solver: str | os.PathLike[str] | SolverParameter) -> SolverParameter:
    """Read and validate a solver's settings, which need not name a net."""
    param, path = read_solver(solver), source_file(solver)
    check_solver(param, os.fspath(path) if path else None, needs_net=False)
    return param
