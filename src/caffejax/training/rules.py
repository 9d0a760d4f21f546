"""Caffe's update rules as optax transformations.

A rule says what is subtracted from a param, u, given its gradient g, its rate r = learning rate x lr_mult, and
what it remembers of it. `transformation` runs a rule over all params; `update` wants `rate` and `iteration`
as extra arguments:

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
from ..kernels.filled import zeros_like

Array = jax.Array
Slots = tuple[Array, ...]


@dataclass(frozen=True)
class Rule:
    """An update rule.

    Attributes:
        name: Caffe's name of the type.
        slots: how many arrays it remembers per param; they start at zero, in the order of Caffe's history.
        update: `update(param, g, r, t, *slots) -> (u, *new slots)`, t counting from 1.
        momentum: whether the momentum setting means anything to it.
    """

    name: str
    slots: int
    update: Callable[..., tuple[Array, ...]]
    momentum: bool = True


class History(NamedTuple):
    """What a rule remembers: one tree like the params for each slot."""

    history: tuple[Any, ...]


def find_history(opt_state: Any) -> History:
    """Return the history inside a whole optimizer's state."""
    leaves = jax.tree.leaves(opt_state, is_leaf=lambda x: isinstance(x, History))
    (found,) = (leaf for leaf in leaves if isinstance(leaf, History))
    return found


def with_history(opt_state: Any, history: History) -> Any:
    """Replace the history inside a whole optimizer's state."""
    return jax.tree.map(
        lambda x: history if isinstance(x, History) else x, opt_state, is_leaf=lambda x: isinstance(x, History)
    )


RULES: dict[str, Rule] = {}


def rule(
    name: str, *, slots: int, momentum: bool = True
) -> Callable[[Callable[..., tuple[Array, ...]]], Callable[..., tuple[Array, ...]]]:
    """Register an update function as a solver type; a decorator."""

    def decorate(update: Callable[..., tuple[Array, ...]]) -> Callable[..., tuple[Array, ...]]:
        RULES[name] = Rule(name, slots, update, momentum)
        return update

    return decorate


@rule("SGD", slots=1)
def sgd(p: Any, g: Array, r: Array, t: Array, h: Array) -> tuple[Array, ...]:
    """Keep momentum over updates: the rate is inside the history."""
    h = r * g + p.momentum * h
    return h, h


@rule("Nesterov", slots=1)
def nesterov(p: Any, g: Array, r: Array, t: Array, h: Array) -> tuple[Array, ...]:
    """Look one step ahead with SGD's history."""
    new = r * g + p.momentum * h
    return (1 + p.momentum) * new - p.momentum * h, new


@rule("AdaGrad", slots=1, momentum=False)
def adagrad(p: Any, g: Array, r: Array, t: Array, h: Array) -> tuple[Array, ...]:
    """Divide the rate by the root of the sum of squared gradients."""
    h = h + g * g
    return r * g / (jnp.sqrt(h) + p.delta), h


@rule("RMSProp", slots=1, momentum=False)
def rmsprop(p: Any, g: Array, r: Array, t: Array, h: Array) -> tuple[Array, ...]:
    """Do as AdaGrad, with a running mean in place of the sum."""
    h = p.rms_decay * h + (1 - p.rms_decay) * g * g
    return r * g / (jnp.sqrt(h) + p.delta), h


@rule("AdaDelta", slots=2)
def adadelta(p: Any, g: Array, r: Array, t: Array, h1: Array, h2: Array) -> tuple[Array, ...]:
    """Size steps by the ratio of two running means: of squared steps, and of squared gradients."""
    h1 = p.momentum * h1 + (1 - p.momentum) * g * g
    v = g * jnp.sqrt((h2 + p.delta) / (h1 + p.delta))
    h2 = p.momentum * h2 + (1 - p.momentum) * v * v
    return r * v, h1, h2


@rule("Adam", slots=2)
def adam(p: Any, g: Array, r: Array, t: Array, m: Array, v: Array) -> tuple[Array, ...]:
    """Keep running means of gradient and square, corrected for their start in the rate; delta after the root."""
    m = p.momentum * m + (1 - p.momentum) * g
    v = p.momentum2 * v + (1 - p.momentum2) * g * g
    correction = jnp.sqrt(1 - p.momentum2**t) / (1 - p.momentum**t)
    return r * correction * m / (jnp.sqrt(v) + p.delta), m, v


def problems(param: Any) -> list[str]:
    """Return what is wrong with the type and the settings that only some types take."""
    if param.type not in RULES:
        return [f"unknown solver type '{param.type}'{did_you_mean(param.type, RULES)}"]
    if param.momentum and not RULES[param.type].momentum:
        return [f"momentum cannot be used with {param.type}; leave it out"]
    if param.type == "RMSProp" and not 0 <= param.rms_decay < 1:
        return [f"rms_decay should lie between 0 and 1, not be {param.rms_decay:g}"]
    return []


def transformation(param: Any, lr_mults: Any) -> optax.GradientTransformationExtraArgs:
    """Make the rule of a SolverParameter's type a transformation of all params.

    Args:
        param: the SolverParameter: type and hyper-parameters.
        lr_mults: a tree like the params, of each one's lr_mult.
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
        else:  # each its own, multiplier and all
            results = jax.tree.map(lambda g, r, *slots: one(g, 1.0, r, t, *slots), grads, rates, *state.history)
        if not jax.tree.leaves(grads):
            return grads, state
        # from a tree of tuples to a tuple of trees
        updates, *history = jax.tree.transpose(
            jax.tree.structure(grads), jax.tree.structure((0,) * (1 + chosen.slots)), results
        )
        return updates, History(tuple(history))

    return optax.GradientTransformationExtraArgs(init, update)
