"""Caffe's update rules.

A rule computes the update u that is subtracted from a parameter. It takes the gradient g, the rate r = learning rate *
lr_mult, and the slots, which are arrays of the parameter's shape that the rule carries from step to step. It also takes
the solver's settings p, and t, the number of the update, from 1. `caffe_optimizer.py` clips and regularizes gradients
before the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import did_you_mean

Array = jax.Array

# the settings of forks that are supported, and that change the rate or the update
FORK_UPDATE_SETTINGS = (
    *("min_lr", "stagelr", "stageiter", "rampup_interval", "rampup_lr", "warmup_iter", "warmup_start_lr"),
    *("plateau_winsize", "stepearly", "larc", "larc_eta", "larc_policy", "local_lr_auto", "local_gw_ratio"),
    *("momentum_policy", "momentum_power", "max_momentum", "weight_decay_policy", "weight_decay_power"),
    *("max_weight_decay", "adamw_decay", "clip_weights", "clamp_weights_lower", "clamp_weights_upper"),
)


@dataclass(frozen=True)
class Rule:
    """An update rule.

    Attributes:
        name: Caffe's name of the type.
        num_slots: the number of slots, which are arrays that the rule stores for each parameter. They start at zero,
            and have the order of Caffe's history.
        update: a function `update(param, g, r, t, *slots)` that returns `(u, *new_slots)`; see the module's docstring.
            `param` has the solver's settings momentum, momentum2, delta and rms_decay, and t is the number of the
            update, from 1.
        uses_momentum: whether the rule uses the setting `momentum`.
        continues: the name of another rule whose slots have the same meaning, so that each of the two continues from
            the other's state, or "".
        nonnegative_slots: the indices of slots without negative numbers, such as sums of squares.
    """

    name: str
    num_slots: int
    update: Callable[..., tuple[Array, ...]]
    uses_momentum: bool = True
    continues: str = ""
    nonnegative_slots: tuple[int, ...] = ()

    @property
    def state_name(self) -> str:
        """The name that all rules share whose states have the same meaning."""
        return self.continues or self.name


def sgd(p: Any, g: Array, r: Array, t: Array, h: Array) -> tuple[Array, ...]:
    """Return the update of SGD with momentum and the new slot, which accumulates rate * gradient, as in Caffe."""
    h = r * g + p.momentum * h
    return h, h


def nesterov(p: Any, g: Array, r: Array, t: Array, h: Array) -> tuple[Array, ...]:
    """Return the update of Nesterov's accelerated gradient, and the new slot, which is the same as in `sgd`."""
    new_slot = r * g + p.momentum * h
    return (1 + p.momentum) * new_slot - p.momentum * h, new_slot


def adagrad(p: Any, g: Array, r: Array, t: Array, h: Array) -> tuple[Array, ...]:
    """Return AdaGrad's update, r * g / (sqrt(h) + delta), and the new slot h, the sum of all squared gradients."""
    h = h + g * g
    return r * g / (jnp.sqrt(h) + p.delta), h


def rmsprop(p: Any, g: Array, r: Array, t: Array, h: Array) -> tuple[Array, ...]:
    """Return RMSProp's update, r * g / (sqrt(h) + delta), and the new slot h, a running mean of squared gradients."""
    h = p.rms_decay * h + (1 - p.rms_decay) * g * g
    return r * g / (jnp.sqrt(h) + p.delta), h


def adadelta(p: Any, g: Array, r: Array, t: Array, h1: Array, h2: Array) -> tuple[Array, ...]:
    """Return AdaDelta's update and new slots, the running means of squared gradients (h1) and squared steps (h2)."""
    h1 = p.momentum * h1 + (1 - p.momentum) * g * g
    v = g * jnp.sqrt((h2 + p.delta) / (h1 + p.delta))
    h2 = p.momentum * h2 + (1 - p.momentum) * v * v
    return r * v, h1, h2


def adam(p: Any, g: Array, r: Array, t: Array, m: Array, v: Array) -> tuple[Array, ...]:
    """Return Adam's update and new slots, the running means of gradients (m) and of squared gradients (v).

    As in Caffe, the rate is multiplied by the bias correction, and delta is added to sqrt(v).
    """
    m = p.momentum * m + (1 - p.momentum) * g
    v = p.momentum2 * v + (1 - p.momentum2) * g * g
    correction = jnp.sqrt(1 - p.momentum2**t) / (1 - p.momentum**t)
    return r * correction * m / (jnp.sqrt(v) + p.delta), m, v


def sag(p: Any, g: Array, r: Array, t: Array, h: Array) -> tuple[Array, ...]:
    """Return the update of the NVIDIA fork's SAG, r * h, and the new slot h, a running mean of the gradients."""
    h = p.momentum * h + (1 - p.momentum) * g
    return r * h, h


RULES: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("SGD", 1, sgd),
        Rule("Nesterov", 1, nesterov, continues="SGD"),
        Rule("AdaGrad", 1, adagrad, uses_momentum=False, nonnegative_slots=(0,)),
        Rule("RMSProp", 1, rmsprop, uses_momentum=False, nonnegative_slots=(0,)),
        Rule("AdaDelta", 2, adadelta, nonnegative_slots=(0, 1)),
        Rule("Adam", 2, adam, nonnegative_slots=(1,)),
        # MyCaffe's type, whose weight decay is separate from the rule; see `caffe_optimizer.py`
        Rule("AdamW", 2, adam, continues="Adam", nonnegative_slots=(1,)),
        Rule("SAG", 1, sag),
    )
}


def compute_momentum(param: Any, rate: Any, iteration: Any) -> Any:
    """Return the momentum of an iteration as a float or a scalar array.

    It is the setting `momentum`, unless the NVIDIA fork's setting `momentum_policy` changes it from iteration to
    iteration. In the warm-up of the Intel fork, SGD multiplies the momentum by the rate of this iteration divided by
    the rate of the previous iteration.

    Args:
        param: the SolverParameter.
        rate: the learning rate of the iteration.
        iteration: the number of the iteration, from 0.
    """
    p = param
    warms_up = p.warmup_iter > 0 and p.type == "SGD"
    if p.momentum_policy not in ("poly", "opt") and not warms_up:
        return p.momentum  # tested first, because outside a trace the conversion below compiles a program
    i = jnp.asarray(iteration, jnp.float32)
    if p.momentum_policy == "poly":
        return p.momentum + (p.max_momentum - p.momentum) * (i / p.max_iter) ** p.momentum_power
    if p.momentum_policy == "opt":
        optimum = (1 - 0.5 * jnp.sqrt(rate)) ** 2
        return jnp.minimum(optimum, p.max_momentum) if p.HasField("max_momentum") else optimum
    previous = p.warmup_start_lr + (p.base_lr - p.warmup_start_lr) * (i - 1) / p.warmup_iter
    return p.momentum * jnp.where((i < p.warmup_iter) & (previous != 0), rate / jnp.where(previous, previous, 1), 1)


def check_rule(param: Any) -> list[str]:
    """Return a list with a message if the solver type is unknown or does not allow a setting, otherwise []."""
    if param.type not in RULES:
        hint = did_you_mean(param.type, RULES) or f"; the types are {', '.join(RULES)}"
        return [f"unknown solver type '{param.type}'{hint}; in Python, Solver(optimizer=...) takes rules of optax"]
    if param.momentum and not RULES[param.type].uses_momentum:
        return [f"momentum cannot be used with {param.type}; leave it out"]
    if param.type == "RMSProp" and not 0 <= param.rms_decay < 1:
        return [f"rms_decay should be between 0 and 1, not {param.rms_decay:g}"]
    return []
