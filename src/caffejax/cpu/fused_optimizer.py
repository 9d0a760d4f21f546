"""SGD with momentum that updates parameters and history in one pass over memory on CPUs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from ..core.ops.platform_dispatch import PlatformOp
from ..core.solver.update_rules import History, find_history, with_history
from .kernels import onednn

Array = jax.Array


class FusedOptimizer(optax.GradientTransformationExtraArgs):  # type: ignore[misc]
    """An optimizer that can also apply its updates to the parameters, in one pass over memory on CPUs.

    Attributes:
        apply: a function `apply(grads, state, params, *, rate, iteration)` that returns `(params, state)`. Except for
            rounding, the result is the same as from `update` and `optax.apply_updates`.
    """

    apply: Callable[..., tuple[Any, Any]]


def fuse(
    optimizer: optax.GradientTransformationExtraArgs,
    gradient_transform: optax.GradientTransformation,
    momentum: float,
    lr_mults: Any,
    decays: Any,
) -> FusedOptimizer:
    """Return an optimizer that is SGD with momentum as a `FusedOptimizer`; for the arguments, see `_apply_momentum`."""
    fused_optimizer = FusedOptimizer(*optimizer)
    fused_optimizer.apply = partial(_apply_momentum, gradient_transform, momentum, lr_mults, decays)
    return fused_optimizer


def _apply_momentum(
    gradient_transform: optax.GradientTransformation,
    momentum: float,
    lr_mults: Any,
    decays: Any,
    grads: Any,
    state: Any,
    params: Any,
    *,
    rate: Any,
    iteration: Any,
) -> tuple[Any, Any]:
    """Return parameters and state after SGD with momentum; see `FusedOptimizer`.

    Args:
        gradient_transform: the transformation of the gradients before weight decay is added.
        momentum: the momentum.
        lr_mults, decays: trees with the structure of the parameters: the lr_mult and the weight decay of each.
        grads, state, params, rate, iteration: the arguments of `optimizer.update`.
    """
    del iteration
    grads, _ = gradient_transform.update(grads, gradient_transform.init(params))
    (slots,) = find_history(state).history
    rate = jnp.asarray(rate, jnp.float32)
    results = jax.tree.map(
        lambda g, p, h, lr_mult, decay: _momentum_update(
            g, p, h, rate, lr_mult=lr_mult, decay=decay, momentum=momentum
        ),
        *(grads, params, slots, lr_mults, decays),
    )
    if not jax.tree.leaves(grads):
        return params, state
    params, slots = jax.tree.transpose(jax.tree.structure(grads), jax.tree.structure((0, 0)), results)
    return params, with_history(state, History((slots,)))


@partial(jax.jit, static_argnames=("lr_mult", "decay", "momentum"))  # traced once for each shape
def _momentum_update(g: Array, p: Array, h: Array, rate: Array, **settings: Any) -> tuple[Array, ...]:
    update = PlatformOp(
        partial(_plain_momentum_update, **settings), partial(_momentum_update_on_cpu, **settings), differentiable=False
    )
    return update(g, p, h, rate)


def _plain_momentum_update(
    g: Array, p: Array, h: Array, rate: Array, *, lr_mult: float, decay: float, momentum: float
) -> tuple[Array, ...]:
    h = rate.astype(g.dtype) * lr_mult * (g + decay * p) + momentum * h
    return p - h, h


def _momentum_update_on_cpu(g: Array, p: Array, h: Array, rate: Array, **settings: Any) -> tuple[Array, ...]:
    if onednn.supports(g, p, h):
        return onednn.momentum_update(g, p, h, rate, **settings)
    return _plain_momentum_update(g, p, h, rate, **settings)
