"""Caffe's solvers and optax: a solver's learning rate and update in loops with optax, and optax's rules in a solver."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax

from ...base.errors import SolverError
from ..program.net import Net
from ..schema import read_solver, source_file
from ..schema.caffe_pb2 import SolverParameter
from .caffe_optimizer import make_optimizer
from .reporting import log
from .solver_param import check_solver
from .traced_schedules import traced_schedule
from .update_rules import FORK_UPDATE_SETTINGS

_UPDATE_SETTINGS = (
    *("type", "solver_type", "momentum", "momentum2", "delta", "rms_decay", "weight_decay", "regularization_type"),
    *("clip_gradients", "base_lr", "lr_policy", "gamma", "power", "stepsize", "stepvalue"),
    *FORK_UPDATE_SETTINGS,
)


def optimizer(
    solver: str | os.PathLike[str] | SolverParameter, net: Net | None
) -> optax.GradientTransformationExtraArgs:
    """Return Caffe's solver as an optax transformation, with its own count, learning rate and multipliers.

        tx = caffejax.optimizer("solver.prototxt", net)
        opt_state = tx.init(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)

    It clips and regularizes gradients, and applies the rule of the solver's `type` with the rate of its `lr_policy` and
    the net's lr_mult and decay_mult. It works on each array by the last keys of its path, the names of layer and blob,
    so it takes the net's params, a part of them, and trees of flax and optax that contain them. With None for the net
    it takes the params of any model, all with an lr_mult and a decay_mult of 1. Gradients are means over the
    `iter_size` passes of an iteration, and are clipped as Caffe clips the sums. The solver's nets, tests and snapshots
    are ignored.

    Args:
        solver: the path of a solver prototxt, its text, or a SolverParameter.
        net: the net whose params are updated, or None.

    Returns:
        The transformation. Its state has an int32 count and arrays with the shapes and dtypes of the params. `update`
        has the optional arguments `rate`, which replaces the learning rate, and `iteration`, which replaces the count.

    Raises:
        SolverError: if a setting is invalid, or if the learning rate depends on losses or tests, as with the policies
            `plateau` and `stepearly`. `init` and `update` raise it for arrays that do not belong to the net; the
            message names their paths.
        SchemaError: if the prototxt cannot be parsed.
    """
    if not isinstance(net, Net | None):
        raise SolverError(
            f"net must be a caffejax.Net, not {type(net).__name__}; None is for the params of other models"
        )
    param = _read_valid_solver(solver)
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
    return traced_schedule(_read_valid_solver(solver))


def _read_valid_solver(solver: str | os.PathLike[str] | SolverParameter) -> SolverParameter:
    param, path = read_solver(solver), source_file(solver)
    check_solver(param, os.fspath(path) if path else None, needs_net=False)
    return param


def drop_update_settings(param: SolverParameter, file: Path | None) -> SolverParameter:
    """Return a solver's settings without the settings of its update, which a user's optimizer replaces.

    `type` becomes "optax". One warning names the settings that are set.
    """
    fields = {f.name for f, _ in param.ListFields()}
    ignored = [name for name in _UPDATE_SETTINGS if name in fields]
    if ignored:
        names, location = ", ".join(ignored), f"{file}: " if file else ""
        log.warning("%sthe option optimizer replaces these settings, which only lr_schedule reads: %s", location, names)
    new_param = SolverParameter()
    new_param.CopyFrom(param)
    for name in ignored:
        new_param.ClearField(name)
    new_param.type = "optax"
    return new_param


def use_optax(optimizer: Any, net: Net) -> optax.GradientTransformationExtraArgs:
    """Return a user's optimizer in a form that trains a net in a solver.

    Parameters whose lr_mult is 0 stay, even if the optimizer decays weights. The arrays of the state are separate from
    the parameters, which training steps overwrite, and random keys in it are stored as their uint32 data.

    Raises:
        SolverError: if it is not an optax transformation.
    """
    if not isinstance(optimizer, optax.GradientTransformation):
        hint = ".gradient_transformation()" if isinstance(optimizer, optax.MultiSteps) else ""
        example = f"pass optimizer={type(optimizer).__name__}(...){hint}" if hint else "such as optax.adam(1e-3)"
        raise SolverError(f"optimizer must be an optax transformation, not {type(optimizer).__name__}; {example}")
    frozen = net.map_params(lambda p: p.lr_mult == 0 if p.spec.learnable else None)
    transformation = optax.chain(optimizer, optax.masked(optax.set_to_zero(), frozen))

    def init(params: Any) -> Any:
        return jax.tree.map(_to_storage, transformation.init(params))

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        types = jax.eval_shape(transformation.init, params)
        state = jax.tree.map(lambda x, like: jax.random.wrap_key_data(x) if _is_key(like) else x, state, types)
        updates, state = transformation.update(grads, state, params, **extra)
        return updates, jax.tree.map(lambda x: jax.random.key_data(x) if _is_key(x) else x, state)

    return optax.GradientTransformationExtraArgs(init, update)


def _to_storage(x: Any) -> jax.Array:
    array = jnp.array(x)
    return jax.random.key_data(array) if _is_key(array) else array


def _is_key(x: jax.Array | jax.ShapeDtypeStruct) -> bool:
    return bool(jnp.issubdtype(x.dtype, jax.dtypes.prng_key))
