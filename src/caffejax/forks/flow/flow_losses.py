"""L1Loss of NVIDIA Caffe, and L1Loss and LpqLoss of FlowNet 2. The layers of FlowNet 2 ignore NaNs."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...core.layers import cross_replica
from ...core.layers.context import Context
from ...core.layers.declaration import declare, register
from ...core.layers.dtype_policy import promote
from ...core.layers.loss_helpers import batch_size, in_valid_rows, sum_rows
from ...core.layers.types import Variants
from ...core.schema.caffe_pb2 import L1LossParameter, LpqLossParameter


@declare("L1Loss", bottoms=2, loss=True, overrides_autodiff=True, counts_rows=True, origin="NVIDIA Caffe")
def l1_loss(a: jax.Array, b: jax.Array, *, ctx: Context) -> jax.Array:
    """Compute the sum of the absolute differences of two bottoms (N, ...), divided by N, as a scalar.

    The gradient is 0 where the bottoms are equal.
    """
    return jnp.sum(jnp.abs(_subtract(a, b))) / batch_size(ctx, a)


@l1_loss.backward
def l1_loss_backward(
    a: jax.Array, b: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context
) -> tuple[jax.Array, jax.Array]:
    diff = dy / batch_size(ctx, a) * jnp.sign(_subtract(a, b))
    return diff, -diff


@declare(
    "L1Loss",
    bottoms=(1, 2),
    param="l1_loss_param",
    loss=True,
    overrides_autodiff=True,
    counts_rows=True,
    origin="FlowNet 2",
)
def flow_l1_loss(p: L1LossParameter, a: jax.Array, *b: jax.Array, ctx: Context) -> jax.Array:
    """Compute the sum of |d|, divided by N, as a scalar. d is the difference of two bottoms, or the only bottom.

    Bottoms are (N, C, H, W). NaNs are ignored. Values of |d| below plateau count as 0. With l2_per_location, the loss
    is instead the sum over the positions of sqrt(sum of d**2 over the channels + epsilon), and a sum of squares counts
    as 0 if its root is below plateau. l2_prescale_by_channels divides sums over channels by C. With
    normalize_by_num_entries, the divisor is the number of entries that are not NaN, divided by C.
    """
    d, valid, divisor = prepare_differences(ctx, a, *b)
    if p.l2_per_location:
        return sum_rows(ctx, jnp.sqrt(_sum_squares(p, d) + p.epsilon)) / divisor
    return jnp.sum(jnp.where(valid & (jnp.abs(d) >= p.plateau), jnp.abs(d), 0)) / divisor


@flow_l1_loss.backward
def flow_l1_loss_backward(
    p: L1LossParameter, a: jax.Array, *b: jax.Array, y: jax.Array, dy: jax.Array, ctx: Context
) -> tuple[Any, ...]:
    d, valid, divisor = prepare_differences(ctx, a, *b)
    if p.l2_per_location:
        squares = _sum_squares(p, d)
        slope = jnp.where(squares > 0, d / jnp.sqrt(squares + p.epsilon), 0) * channel_prescale(p, d)
    else:
        slope = jnp.where(valid & (jnp.abs(d) >= p.plateau), jnp.where(d > 0, 1, -1), 0)
    diff = dy / divisor * slope
    return diff, *(-diff for _ in b)


def _select_variant(layer: Any) -> str:
    return "FlowNet 2" if layer.HasField("l1_loss_param") or len(layer.bottom) == 1 else "NVIDIA"


register(
    "L1Loss",
    Variants(
        _select_variant,
        {"NVIDIA": l1_loss.type, "FlowNet 2": flow_l1_loss.type},
        selection_doc="A layer with l1_loss_param, or with one bottom, is FlowNet 2's.",
    ),
    bottoms=(1, 2),
    loss=True,
    origin="NVIDIA Caffe, FlowNet 2",
)


def _subtract(a: jax.Array, b: jax.Array) -> jax.Array:
    require(len(a.shape) > 0 and a.shape == b.shape, f"needs two bottoms of equal shape, not {a.shape} and {b.shape}")
    return promote(a) - promote(b)


def prepare_differences(ctx: Context, a: jax.Array, *b: jax.Array) -> tuple[jax.Array, jax.Array, Any]:
    """Return a - b (a, if it is the only bottom) with NaNs replaced by 0, the mask of valid entries, and the divisor.

    The differences and the mask have shape (N, C, H, W). The mask is False where the difference is NaN.
    """
    require(len(a.shape) == 4, f"needs bottoms with 4 axes (number, channels, height, width), not shape {a.shape}")
    difference = _subtract(a, *b) if b else promote(a)
    valid = in_valid_rows(ctx, ~jnp.isnan(difference))
    divisor = batch_size(ctx, a)
    if ctx.param.normalize_by_num_entries:
        divisor = cross_replica.pmean(ctx, jnp.sum(valid, dtype=jnp.float32)) / a.shape[1]
    return jnp.where(valid, difference, 0), valid, divisor


def channel_prescale(p: Any, d: jax.Array) -> float:
    """Return the factor that multiplies sums over channels: 1 / C with l2_prescale_by_channels, otherwise 1."""
    return 1 / d.shape[1] if p.l2_prescale_by_channels else 1.0


def _sum_squares(p: L1LossParameter, d: jax.Array) -> jax.Array:
    """Return the sum of the squares of d over the channels, (N, 1, H, W), or 0 where its root is below plateau."""
    squares = jnp.sum(jnp.square(d), axis=1, keepdims=True) * channel_prescale(p, d)
    return jnp.where(squares < math.pow(p.plateau, 2), 0, squares)


@register(
    "LpqLoss",
    bottoms=(1, 2),
    param="lpq_loss_param",
    loss=True,
    overrides_autodiff=True,
    counts_rows=True,
    origin="FlowNet 2",
    restrictions="Only one p and one q are supported; powers that change with the iteration are an error.",
)
def lpq_loss(p: LpqLossParameter, a: jax.Array, *b: jax.Array, ctx: Context) -> jax.Array:
    """Compute the sum over positions of (sum over channels of (|d| + p_epsilon)^p + q_epsilon)^q, divided by N.

    The top is a scalar. d is the difference of two bottoms (N, C, H, W), or the only bottom, with NaNs replaced by 0.
    l2_prescale_by_channels divides sums over channels by C. With normalize_by_num_entries, the divisor is the number of
    entries that are not NaN, divided by C.
    """
    power, q = _read_powers(p)
    d, _, divisor = prepare_differences(ctx, a, *b)
    sums = jnp.sum(jnp.power(jnp.abs(d) + p.p_epsilon, power), axis=1) * channel_prescale(p, d)
    return sum_rows(ctx, jnp.power(sums + p.q_epsilon, q)) / divisor


@lpq_loss.backward
def lpq_loss_backward(
    p: LpqLossParameter, a: jax.Array, *b: jax.Array, y: jax.Array, dy: jax.Array, ctx: Context
) -> tuple[Any, ...]:
    power, q = _read_powers(p)
    d, valid, divisor = prepare_differences(ctx, a, *b)
    is_nonzero = valid & (d != 0)
    magnitude = jnp.where(is_nonzero, jnp.abs(d), 1) + p.p_epsilon
    sums = jnp.sum(jnp.power(jnp.abs(d) + p.p_epsilon, power), axis=1, keepdims=True) * channel_prescale(p, d)
    outer_slope = q * jnp.power(sums + p.q_epsilon, q - 1) * channel_prescale(p, d)
    diff = dy / divisor * jnp.where(is_nonzero, outer_slope * power * jnp.power(magnitude, power - 1) * jnp.sign(d), 0)
    return diff, *(-diff for _ in b)


def _read_powers(param: Any) -> tuple[float, float]:
    require(
        len(param.p) == 1 and len(param.q) == 1 and list(param.pq_episode_starts_at_iter) in ([], [0]),
        "supports one p and one q for all iterations, with pq_episode_starts_at_iter 0 or not set, but has "
        f"p: {list(param.p)}, q: {list(param.q)}, pq_episode_starts_at_iter: {list(param.pq_episode_starts_at_iter)}",
    )
    return param.p[0], param.q[0]
