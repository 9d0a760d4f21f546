"""Optax transformations that replace Caffe's update rules: `Solver(..., optimizer=optax.adam(1e-3))`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax

from ...base.errors import SolverError
from ..program.net import Net
from ..schema.caffe_pb2 import SolverParameter
from .reporting import log

_UPDATE_SETTINGS = (
    *("type", "solver_type", "momentum", "momentum2", "delta", "rms_decay", "weight_decay", "regularization_type"),
    *("clip_gradients", "base_lr", "lr_policy", "gamma", "power", "stepsize", "stepvalue", "stagelr", "stageiter"),
    *("min_lr", "rampup_interval", "rampup_lr", "warmup_iter", "warmup_start_lr", "plateau_winsize", "stepearly"),
    *("larc", "larc_eta", "larc_policy", "local_lr_auto", "local_gw_ratio", "momentum_policy", "momentum_power"),
    *("max_momentum", "weight_decay_policy", "weight_decay_power", "max_weight_decay", "adamw_decay"),
    *("clip_weights", "clamp_weights_lower", "clamp_weights_upper"),
)


def drop_update_settings(param: SolverParameter, file: Path | None) -> SolverParameter:
    """Return a solver's settings without the settings of its update, which a user's optimizer replaces.

    `type` becomes "optax". One warning names the settings that are set.
    """
    fields = {f.name for f, _ in param.ListFields()}
    ignored = [name for name in _UPDATE_SETTINGS if name in fields]
    if ignored:
        names, location = ", ".join(ignored), f"{file}: " if file else ""
        log.warning("%sthe solver has the option optimizer, so these settings are ignored: %s", location, names)
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
