"""LpqLoss: FlowNet 2's norms with powers of choice."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from ..context import Context
from ..registry import register
from ..types import Gradient, LayerDocs, LayerType, Signature, Traced
from .l1_loss import numbers, prescale


def lpq_loss(ctx: Context, a: jax.Array, *b: jax.Array) -> jax.Array:
    """Sum over places of (sum over channels of (|d| + p_epsilon)^p + q_epsilon)^q, over the length of the first axis.

    d is the difference of two bottoms, or one bottom, with 0 for NaNs. normalize_by_num_entries and
    l2_prescale_by_channels are as for L1Loss.
    """
    p, q = _powers(ctx.param)
    d, _, divisor = numbers(ctx, a, *b)
    sums = jnp.sum(jnp.power(jnp.abs(d) + ctx.param.p_epsilon, p), axis=1) * prescale(ctx, d)
    return jnp.sum(jnp.power(sums + ctx.param.q_epsilon, q)) / divisor


def lpq_loss_backward(ctx: Context, a: jax.Array, *b: jax.Array, y: jax.Array, dy: jax.Array) -> tuple[Any, ...]:
    p, q = _powers(ctx.param)
    d, there, divisor = numbers(ctx, a, *b)
    some = there & (d != 0)
    size = jnp.where(some, jnp.abs(d), 1) + ctx.param.p_epsilon
    sums = jnp.sum(jnp.power(jnp.abs(d) + ctx.param.p_epsilon, p), axis=1, keepdims=True) * prescale(ctx, d)
    outer = q * jnp.power(sums + ctx.param.q_epsilon, q - 1) * prescale(ctx, d)
    diff = dy / divisor * jnp.where(some, outer * p * jnp.power(size, p - 1) * jnp.sign(d), 0)
    return diff, *(-diff for _ in b)


register(
    LayerType(
        Signature("LpqLoss", bottoms=(1, 2), param="lpq_loss_param", loss=True),
        Traced(lpq_loss),
        Gradient(lpq_loss_backward, overrides_autodiff=True),
        docs=LayerDocs(
            origin="FlowNet 2", restrictions="One p and one q: powers that change with the iteration are refused."
        ),
    )
)


def _powers(param: Any) -> tuple[float, float]:
    require(
        len(param.p) == 1 and len(param.q) == 1 and list(param.pq_episode_starts_at_iter) in ([], [0]),
        f"needs one p and one q, from iteration 0 on, not p: {list(param.p)}, q: {list(param.q)} from iterations "
        f"{list(param.pq_episode_starts_at_iter)}",
    )
    return param.p[0], param.q[0]
