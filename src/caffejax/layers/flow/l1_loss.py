"""L1Loss: NVIDIA's sum of absolute differences, and FlowNet 2's, which leaves out what is not a number."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from .. import across
from ..context import Context
from ..dtypes import promote
from ..registry import register
from ..types import Gradient, LayerDocs, LayerType, Signature, Traced, Variants


def l1_loss(ctx: Context, a: jax.Array, b: jax.Array) -> jax.Array:
    """Sum of absolute differences over the length of the first axis; gradient 0 where the two are equal."""
    return jnp.sum(jnp.abs(_difference(a, b))) / max(a.shape[0], 1)


def l1_loss_backward(
    ctx: Context, a: jax.Array, b: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    diff = dy / max(a.shape[0], 1) * jnp.sign(_difference(a, b))
    return diff, -diff


def flow_l1_loss(ctx: Context, a: jax.Array, *b: jax.Array) -> jax.Array:
    """Sum of absolute differences, of the second bottom or of 0, over the length of the first axis; NaNs do not count.

    l2_per_location takes the root of the sum of squares over channels, plus epsilon, at each place. Differences, or
    roots, below plateau count as 0. normalize_by_num_entries divides by the numbers that are none NaN, over channels.
    """
    p = ctx.param
    d, there, divisor = numbers(ctx, a, *b)
    if p.l2_per_location:
        return jnp.sum(jnp.sqrt(_squares(ctx, d) + p.epsilon)) / divisor
    return jnp.sum(jnp.where(there & (jnp.abs(d) >= p.plateau), jnp.abs(d), 0)) / divisor


def flow_l1_loss_backward(ctx: Context, a: jax.Array, *b: jax.Array, y: jax.Array, dy: jax.Array) -> tuple[Any, ...]:
    p = ctx.param
    d, there, divisor = numbers(ctx, a, *b)
    if p.l2_per_location:
        squares = _squares(ctx, d)
        slope = jnp.where(squares > 0, d / jnp.sqrt(squares + p.epsilon), 0) * prescale(ctx, d)
    else:
        slope = jnp.where(there & (jnp.abs(d) >= p.plateau), jnp.where(d > 0, 1, -1), 0)
    diff = dy / divisor * slope
    return diff, *(-diff for _ in b)


def _variant(layer: Any) -> str:
    return "FlowNet 2" if layer.HasField("l1_loss_param") or len(layer.bottom) == 1 else "NVIDIA"


_TYPES = {
    "NVIDIA": LayerType(
        Signature("L1Loss", bottoms=2, loss=True),
        Traced(l1_loss),
        Gradient(l1_loss_backward, overrides_autodiff=True),
        docs=LayerDocs(origin="NVIDIA Caffe"),
    ),
    "FlowNet 2": LayerType(
        Signature("L1Loss", bottoms=(1, 2), param="l1_loss_param", loss=True),
        Traced(flow_l1_loss),
        Gradient(flow_l1_loss_backward, overrides_autodiff=True),
        docs=LayerDocs(origin="FlowNet 2"),
    ),
}

register(
    LayerType(
        Signature("L1Loss", bottoms=(1, 2), loss=True),
        Variants(_variant, _TYPES, selection_doc="With l1_loss_param, or one bottom, it is FlowNet 2's."),
        docs=LayerDocs(origin="NVIDIA Caffe, FlowNet 2"),
    )
)


def _difference(a: jax.Array, b: jax.Array) -> jax.Array:
    require(len(a.shape) > 0 and a.shape == b.shape, f"needs two bottoms of one shape: {a.shape} and {b.shape}")
    return promote(a) - promote(b)


def numbers(ctx: Context, a: jax.Array, *b: jax.Array) -> tuple[jax.Array, jax.Array, Any]:
    """Return differences, 0 for NaNs; where there are none; what the loss is divided by."""
    require(len(a.shape) == 4, f"needs bottoms with 4 axes (number, channels, height, width), not shape {a.shape}")
    difference = _difference(a, *b) if b else promote(a)
    there = ~jnp.isnan(difference)
    divisor: Any = max(a.shape[0], 1)
    if ctx.param.normalize_by_num_entries:
        divisor = across.mean(ctx, jnp.sum(there, dtype=jnp.float32)) / a.shape[1]
    return jnp.where(there, difference, 0), there, divisor


def prescale(ctx: Context, d: jax.Array) -> float:
    """Return what sums over channels are multiplied by."""
    return 1 / d.shape[1] if ctx.param.l2_prescale_by_channels else 1.0


def _squares(ctx: Context, d: jax.Array) -> jax.Array:
    """Return sums of squares over channels, 0 where their root is below the plateau."""
    squares = jnp.sum(jnp.square(d), axis=1, keepdims=True) * prescale(ctx, d)
    return jnp.where(squares < math.pow(ctx.param.plateau, 2), 0, squares)
