"""Caffe's update rules as optax transformations.

A rule computes the update u that is subtracted from a parameter. It takes the gradient g, the rate r = learning rate *
lr_mult, and the slots: arrays of the parameter's shape that the rule keeps from step to step. Before the rule,
gradients are clipped, divided by iter_size and regularized, in this order. `update` needs the arguments `rate` and
`iteration`:

    updates, state = tx.update(grads, state, params, rate=0.01, iteration=0)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from ..errors import did_you_mean
from ..kernels.compiling import zeros_like

Array = jax.Array
Slots = tuple[Array, ...]


@dataclass(frozen=True)
class Rule:
    """An update rule.

    Attributes:
        name: Caffe's name of the type.
        slots: the number of arrays that the rule keeps for each parameter. They start at zero. Their order is the order
            of Caffe's history.
        update: a function `update(param, g, r, t, *slots)` that returns `(u, *new_slots)`. `param` is the
            SolverParameter, t the number of the update, from 1.
        momentum: whether the rule uses the setting `momentum`.
    """

    name: str
    slots: int
    update: Callable[..., tuple[Array, ...]]
    momentum: bool = True


class History(NamedTuple):
    """The slots of a rule. For each slot, `history` has a tree of arrays like the parameters."""

    history: tuple[Any, ...]


def find_history(opt_state: Any) -> History:
    """Return the `History` inside an optimizer's state."""
    leaves = jax.tree.leaves(opt_state, is_leaf=lambda x: isinstance(x, History))
    (history,) = (leaf for leaf in leaves if isinstance(leaf, History))
    return history


def with_history(opt_state: Any, history: History) -> Any:
    """Return an optimizer's state with its `History` replaced."""
    return jax.tree.map(
        lambda x: history if isinstance(x, History) else x, opt_state, is_leaf=lambda x: isinstance(x, History)
    )


RULES: dict[str, Rule] = {}


def rule(
    name: str, *, slots: int, momentum: bool = True
) -> Callable[[Callable[..., tuple[Array, ...]]], Callable[..., tuple[Array, ...]]]:
    """Return a decorator that registers an update function as the solver type `name`; see `Rule` for the arguments."""

    def decorate(update: Callable[..., tuple[Array, ...]]) -> Callable[..., tuple[Array, ...]]:
        RULES[name] = Rule(name, slots, update, momentum)
        return update

    return decorate


@rule("SGD", slots=1)
def sgd(p: Any, g: Array, r: Array, t: Array, h: Array) -> tuple[Array, ...]:
    """SGD with momentum. As in Caffe, the momentum buffer sums gradients that are multiplied by the rate."""
    h = r * g + p.momentum * h
    return h, h


@rule("Nesterov", slots=1)
def nesterov(p: Any, g: Array, r: Array, t: Array, h: Array) -> tuple[Array, ...]:
    """Nesterov's accelerated gradient, with the momentum buffer of SGD."""
    new = r * g + p.momentum * h
    return (1 + p.momentum) * new - p.momentum * h, new


@rule("AdaGrad", slots=1, momentum=False)
def adagrad(p: Any, g: Array, r: Array, t: Array, h: Array) -> tuple[Array, ...]:
    """AdaGrad: the rate is divided by the root of the sum of all squared gradients."""
    h = h + g * g
    return r * g / (jnp.sqrt(h) + p.delta), h


@rule("RMSProp", slots=1, momentum=False)
def rmsprop(p: Any, g: Array, r: Array, t: Array, h: Array) -> tuple[Array, ...]:
    """RMSProp: the rate is divided by the root of a running mean of squared gradients."""
    h = p.rms_decay * h + (1 - p.rms_decay) * g * g
    return r * g / (jnp.sqrt(h) + p.delta), h


@rule("AdaDelta", slots=2)
def adadelta(p: Any, g: Array, r: Array, t: Array, h1: Array, h2: Array) -> tuple[Array, ...]:
    """AdaDelta: the gradient is scaled by the root of a ratio: running means of squared steps and squared gradients."""
    h1 = p.momentum * h1 + (1 - p.momentum) * g * g
    v = g * jnp.sqrt((h2 + p.delta) / (h1 + p.delta))
    h2 = p.momentum * h2 + (1 - p.momentum) * v * v
    return r * v, h1, h2


@rule("Adam", slots=2)
def adam(p: Any, g: Array, r: Array, t: Array, m: Array, v: Array) -> tuple[Array, ...]:
    """Adam. As in Caffe, the bias correction multiplies the rate, and delta is added to the uncorrected root."""
    m = p.momentum * m + (1 - p.momentum) * g
    v = p.momentum2 * v + (1 - p.momentum2) * g * g
    correction = jnp.sqrt(1 - p.momentum2**t) / (1 - p.momentum**t)
    return r * correction * m / (jnp.sqrt(v) + p.delta), m, v


def check_rule(param: Any) -> list[str]:
    """Return a message for an unknown solver type or for a setting that the type does not allow; else an empty list."""
    if param.type not in RULES:
        return [f"unknown solver type '{param.type}'{did_you_mean(param.type, RULES)}"]
    if param.momentum and not RULES[param.type].momentum:
        return [f"momentum cannot be used with {param.type}; leave it out"]
    if param.type == "RMSProp" and not 0 <= param.rms_decay < 1:
        return [f"rms_decay should lie between 0 and 1, not be {param.rms_decay:g}"]
    return []


def transformation(param: Any, lr_mults: Any) -> optax.GradientTransformationExtraArgs:
    """Return the update rule of a SolverParameter's type as an optax transformation.

    Args:
        param: the SolverParameter.
        lr_mults: a tree like the parameters, with the lr_mult of each parameter.
    """
    chosen = RULES[param.type]

    @partial(jax.jit, static_argnames="lr_mult")  # traced once for each shape
    def one(g: Array, lr_mult: float, rate: Any, t: Array, *slots: Array) -> tuple[Array, ...]:
        u, *new = chosen.update(param, g, jnp.asarray(rate, g.dtype) * lr_mult, t.astype(g.dtype), *slots)
        return -u, *new

    def init(params: Any) -> History:
        return History(tuple(jax.tree.map(zeros_like, params) for _ in range(chosen.slots)))

    def update(
        grads: Any, state: History, params: Any = None, *, rate: Any, iteration: Any, rates: Any = None, **extra: Any
    ) -> tuple[Any, History]:
        del params, extra
        t = jnp.asarray(iteration, jnp.float32) + 1
        if rates is None:
            results = jax.tree.map(lambda g, m, *slots: one(g, m, rate, t, *slots), grads, lr_mults, *state.history)
        else:  # a rate for each parameter, with lr_mult applied
            results = jax.tree.map(lambda g, r, *slots: one(g, 1.0, r, t, *slots), grads, rates, *state.history)
        if not jax.tree.leaves(grads):
            return grads, state
        # from a tree of tuples to a tuple of trees
        updates, *history = jax.tree.transpose(
            jax.tree.structure(grads), jax.tree.structure((0,) * (1 + chosen.slots)), results
        )
        return updates, History(tuple(history))

    return optax.GradientTransformationExtraArgs(init, update)


def caffe_optimizer(param: Any, lr_mults: Any, decay_mults: Any) -> optax.GradientTransformationExtraArgs:
    """Return the optimizer of a SolverParameter: clipping, division by iter_size, weight decay and update rule.

    The optimizer takes gradients that are sums over `iter_size` passes. Weight decay is added after clipping, so the
    slots of the update rule include it.

    Args:
        param: a SolverParameter that `check_solver` accepts.
        lr_mults, decay_mults: trees like the parameters, with the multipliers of each parameter.
    """
    update = optax.chain(
        add_decay(param.weight_decay, param.regularization_type, decay_mults), transformation(param, lr_mults)
    )
    return optax.chain(
        clip_by_total_norm(param.clip_gradients),
        optax.scale(1 / param.iter_size) if param.iter_size > 1 else optax.identity(),
        with_local_rates(update, param, lr_mults) if param.larc else update,
    )


def with_local_rates(
    update: optax.GradientTransformationExtraArgs, param: Any, lr_mults: Any
) -> optax.GradientTransformationExtraArgs:
    """Return the update rule with a local rate for each blob, the setting `larc` of the NVIDIA fork.

    The local rate is larc_eta * |parameter| / |gradient|, with L2 norms and without weight decay. With the larc_policy
    "scale" it multiplies the learning rate, with "clip" it is an upper limit. A blob with lr_mult 0 has the local rate
    0; other values of lr_mult have no effect.
    """

    def run(grads: Any, state: Any, params: Any = None, *, rate: Any, **extra: Any) -> tuple[Any, Any]:
        def local(g: jax.Array, blob: jax.Array, mult: float) -> jax.Array:
            size, steepness = jnp.linalg.norm(blob.ravel()), jnp.linalg.norm(g.ravel())
            nonzero = (size > 0) & (steepness > 0)
            local_rate = jnp.where(nonzero, param.larc_eta * size / jnp.where(nonzero, steepness, 1), 1) * (mult > 0)
            return rate * local_rate if param.larc_policy == "scale" else jnp.minimum(rate, local_rate)

        rates = jax.tree.map(local, grads, params, lr_mults)
        return update.update(grads, state, params, rate=rate, rates=rates, **extra)

    return optax.GradientTransformationExtraArgs(update.init, run)


def clip_by_total_norm(limit: float) -> optax.GradientTransformation:
    """Return a transformation that scales all gradients down to a total L2 norm of at most `limit`.

    A negative limit disables clipping.
    """
    if limit < 0:
        return optax.identity()

    def update(grads: Any, state: optax.EmptyState, params: Any = None) -> tuple[Any, optax.EmptyState]:
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(grads)))
        scale = jnp.where(norm > limit, limit / norm, 1)
        return jax.tree.map(lambda g: g * scale.astype(g.dtype), grads), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def add_decay(decay: float, kind: str, decay_mults: Any) -> optax.GradientTransformation:
    """Return a transformation that adds weight decay to gradients.

    It adds decay * decay_mult * p for L2 regularization, and decay * decay_mult * sign(p) for L1.

    Args:
        decay: the setting `weight_decay`.
        kind: "L1" or "L2".
        decay_mults: a tree like the parameters, with the decay_mult of each parameter.
    """
    if not decay:
        return optax.identity()
    direction = jnp.sign if kind == "L1" else (lambda blob: blob)

    def update(grads: Any, state: optax.EmptyState, params: Any = None) -> tuple[Any, optax.EmptyState]:
        def one(g: jax.Array, blob: jax.Array, mult: float) -> jax.Array:
            return g + decay * mult * direction(blob) if mult else g

        return jax.tree.map(one, grads, params, decay_mults), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)
