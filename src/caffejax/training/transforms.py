"""What happens to gradients before the update rule, in Caffe's order: clip, normalise, regularise."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from .rules import transformation


def caffe_optimizer(param: Any, lr_mults: Any, decay_mults: Any) -> optax.GradientTransformationExtraArgs:
    """Chain all that a SolverParameter asks for.

    Args:
        param: a SolverParameter that `settings.check` found good.
        lr_mults, decay_mults: trees like the params, of each one's multipliers.

    Gradients are the sums over `iter_size` passes. Decay comes after clipping, and enters what the rules
    remember.
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
    """Give each blob a rate of its own, as NVIDIA's `larc`: larc_eta x |param| / |gradient|, decay not included.

    By `larc_policy` that is the rate's factor ("scale") or its limit ("clip"). Of lr_mult it only matters whether it
    is 0.
    """

    def run(grads: Any, state: Any, params: Any = None, *, rate: Any, **extra: Any) -> tuple[Any, Any]:
        def local(g: jax.Array, blob: jax.Array, mult: float) -> jax.Array:
            size, steepness = jnp.linalg.norm(blob.ravel()), jnp.linalg.norm(g.ravel())
            known = (size > 0) & (steepness > 0)
            own = jnp.where(known, param.larc_eta * size / jnp.where(known, steepness, 1), 1) * (mult > 0)
            return rate * own if param.larc_policy == "scale" else jnp.minimum(rate, own)

        rates = jax.tree.map(local, grads, params, lr_mults)
        return update.update(grads, state, params, rate=rate, rates=rates, **extra)

    return optax.GradientTransformationExtraArgs(update.init, run)


def clip_by_total_norm(limit: float) -> optax.GradientTransformation:
    """Scale all gradients down to a total L2 norm of `limit` where they exceed it; a negative limit is none."""
    if limit < 0:
        return optax.identity()

    def update(grads: Any, state: optax.EmptyState, params: Any = None) -> tuple[Any, optax.EmptyState]:
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(grads)))
        scale = jnp.where(norm > limit, limit / norm, 1)
        return jax.tree.map(lambda g: g * scale.astype(g.dtype), grads), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def add_decay(decay: float, kind: str, decay_mults: Any) -> optax.GradientTransformation:
    """Add decay x decay_mult x the param (L2), or x its signs (L1, 0 at 0)."""
    if not decay:
        return optax.identity()
    direction = jnp.sign if kind == "L1" else (lambda blob: blob)

    def update(grads: Any, state: optax.EmptyState, params: Any = None) -> tuple[Any, optax.EmptyState]:
        def one(g: jax.Array, blob: jax.Array, mult: float) -> jax.Array:
            return g + decay * mult * direction(blob) if mult else g

        return jax.tree.map(one, grads, params, decay_mults), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)
