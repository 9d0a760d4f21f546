"""Caffe's update rules as optax transformations.

A rule computes the update u that is subtracted from a parameter. It takes the gradient g, the rate r = learning rate *
lr_mult, and the slots, which are arrays of the parameter's shape that the rule carries from step to step. It also takes
the solver's settings p, and t, the number of the update, from 1. Before the rule, gradients are clipped, divided by
iter_size and regularized, in this order. `update` requires the arguments `rate` and `iteration`:

    updates, state = tx.update(grads, state, params, rate=0.01, iteration=0)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from ...base.errors import did_you_mean
from ..ops.compilation import zeros_like
from ..ops.implementations import find_form

Array = jax.Array
Slots = tuple[Array, ...]


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


class History(NamedTuple):
    """The slots of a rule. For each slot, `history` contains a tree with one array for each parameter."""

    history: tuple[Any, ...]


def find_history(opt_state: Any) -> History:
    """Return the `History` inside an optimizer's state."""
    leaves = jax.tree.leaves(opt_state, is_leaf=lambda x: isinstance(x, History))
    (history,) = (leaf for leaf in leaves if isinstance(leaf, History))
    return history


def with_history(opt_state: Any, history: History) -> Any:
    """Return an optimizer's state with its `History` replaced by `history`."""
    return jax.tree.map(
        lambda x: history if isinstance(x, History) else x, opt_state, is_leaf=lambda x: isinstance(x, History)
    )


RULES: dict[str, Rule] = {}


def rule(
    name: str,
    *,
    num_slots: int,
    uses_momentum: bool = True,
    continues: str = "",
    nonnegative_slots: tuple[int, ...] = (),
) -> Callable[[Callable[..., tuple[Array, ...]]], Callable[..., tuple[Array, ...]]]:
    """Return a decorator that registers an update function as the solver type `name`. For the arguments, see `Rule`."""

    def decorate(update: Callable[..., tuple[Array, ...]]) -> Callable[..., tuple[Array, ...]]:
        RULES[name] = Rule(name, num_slots, update, uses_momentum, continues, nonnegative_slots)
        return update

    return decorate


@rule("SGD", num_slots=1)
def sgd(p: Any, g: Array, r: Array, t: Array, h: Array) -> tuple[Array, ...]:
    """Return the update of SGD with momentum and the new slot, which accumulates rate * gradient, as in Caffe."""
    h = r * g + p.momentum * h
    return h, h


@rule("Nesterov", num_slots=1, continues="SGD")
def nesterov(p: Any, g: Array, r: Array, t: Array, h: Array) -> tuple[Array, ...]:
    """Return the update of Nesterov's accelerated gradient, and the new slot, which is the same as in `sgd`."""
    new_slot = r * g + p.momentum * h
    return (1 + p.momentum) * new_slot - p.momentum * h, new_slot


@rule("AdaGrad", num_slots=1, uses_momentum=False, nonnegative_slots=(0,))
def adagrad(p: Any, g: Array, r: Array, t: Array, h: Array) -> tuple[Array, ...]:
    """Return AdaGrad's update, r * g / (sqrt(h) + delta), and the new slot h, the sum of all squared gradients."""
    h = h + g * g
    return r * g / (jnp.sqrt(h) + p.delta), h


@rule("RMSProp", num_slots=1, uses_momentum=False, nonnegative_slots=(0,))
def rmsprop(p: Any, g: Array, r: Array, t: Array, h: Array) -> tuple[Array, ...]:
    """Return RMSProp's update, r * g / (sqrt(h) + delta), and the new slot h, a running mean of squared gradients."""
    h = p.rms_decay * h + (1 - p.rms_decay) * g * g
    return r * g / (jnp.sqrt(h) + p.delta), h


@rule("AdaDelta", num_slots=2, nonnegative_slots=(0, 1))
def adadelta(p: Any, g: Array, r: Array, t: Array, h1: Array, h2: Array) -> tuple[Array, ...]:
    """Return AdaDelta's update and new slots, the running means of squared gradients (h1) and squared steps (h2)."""
    h1 = p.momentum * h1 + (1 - p.momentum) * g * g
    v = g * jnp.sqrt((h2 + p.delta) / (h1 + p.delta))
    h2 = p.momentum * h2 + (1 - p.momentum) * v * v
    return r * v, h1, h2


@rule("Adam", num_slots=2, nonnegative_slots=(1,))
def adam(p: Any, g: Array, r: Array, t: Array, m: Array, v: Array) -> tuple[Array, ...]:
    """Return Adam's update and new slots, the running means of gradients (m) and of squared gradients (v).

    As in Caffe, the rate is multiplied by the bias correction, and delta is added to sqrt(v).
    """
    m = p.momentum * m + (1 - p.momentum) * g
    v = p.momentum2 * v + (1 - p.momentum2) * g * g
    correction = jnp.sqrt(1 - p.momentum2**t) / (1 - p.momentum**t)
    return r * correction * m / (jnp.sqrt(v) + p.delta), m, v


# MyCaffe's type, whose weight decay is separate from the rule; see `decoupled_decay`
rule("AdamW", num_slots=2, continues="Adam", nonnegative_slots=(1,))(adam)


@rule("SAG", num_slots=1)
def sag(p: Any, g: Array, r: Array, t: Array, h: Array) -> tuple[Array, ...]:
    """Return the update of the NVIDIA fork's SAG, r * h, and the new slot h, a running mean of the gradients."""
    h = p.momentum * h + (1 - p.momentum) * g
    return r * h, h


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
        return [f"unknown solver type '{param.type}'{did_you_mean(param.type, RULES)}"]
    if param.momentum and not RULES[param.type].uses_momentum:
        return [f"momentum cannot be used with {param.type}; leave it out"]
    if param.type == "RMSProp" and not 0 <= param.rms_decay < 1:
        return [f"rms_decay should be between 0 and 1, not {param.rms_decay:g}"]
    return []


def make_transformation(param: Any, lr_mults: Any) -> optax.GradientTransformationExtraArgs:
    """Return the update rule of a SolverParameter's type as an optax transformation.

    Args:
        param: the SolverParameter.
        lr_mults: a tree with the structure of the parameters, which contains the lr_mult of each parameter.
    """
    update_rule = RULES[param.type]

    settings = SimpleNamespace(
        momentum=param.momentum, momentum2=param.momentum2, delta=param.delta, rms_decay=param.rms_decay
    )

    @partial(jax.jit, static_argnames="lr_mult")  # traced once for each shape
    def update_array(
        g: Array, lr_mult: float, rate: Any, t: Array, *slots: Array, momentum: Any = None
    ) -> tuple[Array, ...]:
        p = settings if momentum is None else SimpleNamespace(**vars(settings) | {"momentum": momentum.astype(g.dtype)})
        u, *new_slots = update_rule.update(p, g, jnp.asarray(rate, g.dtype) * lr_mult, t.astype(g.dtype), *slots)
        return -u, *new_slots

    def init(params: Any) -> History:
        return History(tuple(jax.tree.map(zeros_like, params) for _ in range(update_rule.num_slots)))

    def update(
        grads: Any, state: History, params: Any = None, *, rate: Any, iteration: Any, rates: Any = None, **extra: Any
    ) -> tuple[Any, History]:
        del params, extra
        t = jnp.asarray(iteration, jnp.float32) + 1
        momentum = compute_momentum(param, rate, iteration)
        run = update_array if isinstance(momentum, float) else partial(update_array, momentum=momentum)
        if rates is None:
            results = jax.tree.map(lambda g, m, *slots: run(g, m, rate, t, *slots), grads, lr_mults, *state.history)
        else:  # a rate for each parameter, with lr_mult applied
            results = jax.tree.map(lambda g, r, *slots: run(g, 1.0, r, t, *slots), grads, rates, *state.history)
        if not jax.tree.leaves(grads):
            return grads, state
        # from a tree of tuples to a tuple of trees
        updates, *history = jax.tree.transpose(
            jax.tree.structure(grads), jax.tree.structure((0,) * (1 + update_rule.num_slots)), results
        )
        return updates, History(tuple(history))

    return optax.GradientTransformationExtraArgs(init, update)


def caffe_optimizer(param: Any, lr_mults: Any, decay_mults: Any) -> optax.GradientTransformationExtraArgs:
    """Return the optimizer of a SolverParameter: clipping, division by iter_size, weight decay, update rule and limits.

    The optimizer takes gradients that are sums over `iter_size` passes. Weight decay is added after clipping and before
    the update rule. For SGD without settings of a fork, the form that is registered as "momentum_update" may give the
    optimizer a method `apply`, which also updates the parameters.

    Args:
        param: a SolverParameter that `check_solver` accepts.
        lr_mults, decay_mults: trees with the structure of the parameters: the lr_mult and the decay_mult of each.
    """
    update = optax.chain(add_decay(param, decay_mults), make_transformation(param, lr_mults))
    gradient_transforms = (
        clip_by_total_norm(param.clip_gradients),
        optax.scale(1 / param.iter_size) if param.iter_size > 1 else optax.identity(),
    )
    update_transforms = (
        decoupled_decay(param.adamw_decay, lr_mults, decay_mults) if param.type == "AdamW" else optax.identity(),
        limit_weights(param),
    )
    optimizer = optax.chain(
        *gradient_transforms,
        with_local_rates(update, param, lr_mults) if uses_local_rates(param) else update,
        *update_transforms,
    )
    fuse = find_form("momentum_update")
    if fuse is None or not _is_momentum_sgd(param):
        return optimizer
    decay = 0.0 if param.regularization_type == "NONE" else param.weight_decay
    decays = jax.tree.map(lambda mult: decay * mult, decay_mults)
    return fuse(optimizer, optax.chain(*gradient_transforms), param.momentum, lr_mults, decays)


def _is_momentum_sgd(param: Any) -> bool:
    """Return whether the update is SGD with a constant momentum and L2 decay, without settings of a fork."""
    is_constant = isinstance(compute_momentum(param, 0.0, 0), float) and param.weight_decay_policy != "poly"
    has_l1_decay = param.regularization_type == "L1" and param.weight_decay
    return (
        param.type == "SGD"
        and is_constant
        and not (uses_local_rates(param) or has_weight_limits(param) or has_l1_decay)
    )


def decoupled_decay(decay: float, lr_mults: Any, decay_mults: Any) -> optax.GradientTransformationExtraArgs:
    """Return a transformation for AdamW's weight decay, which subtracts rate * lr_mult * decay * decay_mult * p."""

    def update(
        updates: Any, state: optax.EmptyState, params: Any = None, *, rate: Any, **extra: Any
    ) -> tuple[Any, optax.EmptyState]:
        def decay_update(u: jax.Array, p: jax.Array, lr_mult: float, decay_mult: float) -> jax.Array:
            return u - jnp.asarray(rate, p.dtype) * (lr_mult * decay * decay_mult) * p

        return jax.tree.map(decay_update, updates, params, lr_mults, decay_mults), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def limit_weights(param: Any) -> optax.GradientTransformation:
    """Return a transformation that limits the updated weights, as the fork caffe-windows does.

    All weights are first scaled to a total L2 norm of at most `clip_weights`, and then clipped to the range from
    `clamp_weights_lower` to `clamp_weights_upper`.
    """
    if not has_weight_limits(param):
        return optax.identity()

    def update(updates: Any, state: optax.EmptyState, params: Any = None) -> tuple[Any, optax.EmptyState]:
        weights = jax.tree.map(jnp.add, params, updates)
        weights, _ = clip_by_total_norm(param.clip_weights).update(weights, state)  # no clipping if it is negative
        if _has_weight_range(param):
            limits = param.clamp_weights_lower, param.clamp_weights_upper
            weights = jax.tree.map(lambda w: jnp.clip(w, *limits), weights)
        return jax.tree.map(jnp.subtract, weights, params), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def has_weight_limits(param: Any) -> bool:
    """Return whether a solver's settings limit the weights; see `limit_weights`."""
    return param.clip_weights >= 0 or _has_weight_range(param)


def _has_weight_range(param: Any) -> bool:
    return any(map(param.HasField, ("clamp_weights_lower", "clamp_weights_upper")))


def uses_local_rates(param: Any) -> bool:
    """Return whether a solver's settings ask for a local learning rate for each blob; see `with_local_rates`."""
    return param.larc or param.local_lr_auto


def with_local_rates(
    update: optax.GradientTransformationExtraArgs, param: Any, lr_mults: Any
) -> optax.GradientTransformationExtraArgs:
    """Return the update rule with a local learning rate for each blob.

    The setting `larc` of the NVIDIA fork and the setting `local_lr_auto` of the Intel fork request local rates. Norms
    are L2 norms, and gradients exclude weight decay. The local rate is

    - (1 - momentum) * larc_eta * |parameter| / |gradient| for NVIDIA,
    - local_gw_ratio * |parameter| / (|gradient| + weight_decay * |parameter|) for Intel, and
    - 1 if a norm is 0.

    With NVIDIA's larc_policy "clip", the local rate is an upper limit on the learning rate. Otherwise, the learning
    rate is multiplied by the local rate. If lr_mult is 0, the local rate is 0; other values of lr_mult have no effect.
    """

    def update_with_local_rates(
        grads: Any, state: Any, params: Any = None, *, rate: Any, iteration: Any, **extra: Any
    ) -> tuple[Any, Any]:
        p = param
        factor = (1 - compute_momentum(p, rate, iteration)) * p.larc_eta if p.larc else p.local_gw_ratio
        decay = 0 if p.larc else p.weight_decay

        def scale_rate(g: jax.Array, blob: jax.Array, mult: float) -> jax.Array:
            blob_norm, gradient_norm = jnp.linalg.norm(blob.ravel()), jnp.linalg.norm(g.ravel())
            is_nonzero = (blob_norm > 0) & (gradient_norm > 0)
            divisor = jnp.where(is_nonzero, gradient_norm + decay * blob_norm, 1)
            local_rate = jnp.where(is_nonzero, factor * blob_norm / divisor, 1) * (mult > 0)
            return jnp.minimum(rate, local_rate) if p.larc and p.larc_policy == "clip" else rate * local_rate

        rates = jax.tree.map(scale_rate, grads, params, lr_mults)
        return update.update(grads, state, params, rate=rate, rates=rates, iteration=iteration, **extra)

    return optax.GradientTransformationExtraArgs(update.init, update_with_local_rates)


def compute_total_norm(grads: Any) -> jax.Array:
    """Return the L2 norm of all arrays of a tree together."""
    return jnp.sqrt(sum((jnp.sum(jnp.square(g)) for g in jax.tree.leaves(grads)), start=jnp.zeros(())))


def clip_by_total_norm(limit: float) -> optax.GradientTransformation:
    """Return a transformation that scales all gradients to a total L2 norm of at most `limit`.

    A negative limit disables clipping.
    """
    if limit < 0:
        return optax.identity()

    def update(grads: Any, state: optax.EmptyState, params: Any = None) -> tuple[Any, optax.EmptyState]:
        norm = compute_total_norm(grads)
        scale = jnp.where(norm > limit, limit / norm, 1)
        return jax.tree.map(lambda g: g * scale.astype(g.dtype), grads), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def add_decay(param: Any, decay_mults: Any) -> optax.GradientTransformationExtraArgs:
    """Return a transformation that adds weight decay to gradients.

    It adds decay * decay_mult * p for L2 regularization, or decay * decay_mult * sign(p) for L1 regularization. The
    decay is the setting `weight_decay`. With the NVIDIA fork's weight_decay_policy "poly", it changes to
    `max_weight_decay` until max_iter.

    Args:
        param: the SolverParameter.
        decay_mults: a tree with the structure of the parameters, which contains the decay_mult of each parameter.
    """
    is_poly = param.weight_decay_policy == "poly"
    if not (param.weight_decay or is_poly) or param.regularization_type == "NONE":
        return optax.with_extra_args_support(optax.identity())
    direction = jnp.sign if param.regularization_type == "L1" else (lambda blob: blob)

    def update(
        grads: Any, state: optax.EmptyState, params: Any = None, *, iteration: Any, **extra: Any
    ) -> tuple[Any, optax.EmptyState]:
        decay = param.weight_decay
        if is_poly:
            fraction = (jnp.asarray(iteration, jnp.float32) / param.max_iter) ** param.weight_decay_power
            decay += (param.max_weight_decay - decay) * fraction

        def decay_gradient(g: jax.Array, blob: jax.Array, mult: float) -> jax.Array:
            return g + jnp.asarray(decay * mult, g.dtype) * direction(blob) if mult else g

        return jax.tree.map(decay_gradient, grads, params, decay_mults), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
