"""Power, Exp and Log: of scale * x + shift, element by element."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ..errors import require
from .context import Context
from .registry import register
from .tops import same_shape
from .types import Gradient, LayerTraits, LayerType, Signature, Traced


def power(ctx: Context, x: jax.Array) -> jax.Array:
    """(shift + scale * x) ** power. With scale or power 0 a constant, whatever x is."""
    p = ctx.param
    if p.power == 0:
        return jnp.ones_like(x)
    inner = _affine(p, x) if p.scale else jnp.full_like(x, p.shift)
    return inner if p.power == 1 else inner**p.power


def power_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array | None:
    p = ctx.param
    if p.power * p.scale == 0:
        return None
    if p.power == 1:
        return dy * p.scale
    return dy * (p.power * p.scale) * _affine(p, x) ** (p.power - 1)


register(
    LayerType(
        Signature("Power", param="power_param"),
        Traced(power, top_shapes=same_shape),
        Gradient(power_backward),
        LayerTraits(elementwise=True),
    )
)


def exp(ctx: Context, x: jax.Array) -> jax.Array:
    """base ** (shift + scale * x); base -1 stands for e."""
    return jnp.exp(log_base(ctx.param) * _affine(ctx.param, x))


def exp_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * y * (log_base(ctx.param) * ctx.param.scale)


register(
    LayerType(Signature("Exp", param="exp_param"), Traced(exp), Gradient(exp_backward), LayerTraits(elementwise=True))
)


def log(ctx: Context, x: jax.Array) -> jax.Array:
    """The logarithm of shift + scale * x to a base; base -1 stands for e."""
    require(ctx.param.base != 1, "there is no logarithm to base 1")
    return jnp.log(_affine(ctx.param, x)) / log_base(ctx.param)


def log_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    p = ctx.param
    return dy * (p.scale / log_base(p)) / _affine(p, x)


register(
    LayerType(Signature("Log", param="log_param"), Traced(log), Gradient(log_backward), LayerTraits(elementwise=True))
)


def _affine(p: Any, x: jax.Array) -> jax.Array:
    return p.scale * x + p.shift


def log_base(p: Any) -> float:
    """Return the logarithm of the base to e.

    Raises:
        LayerError: if it has none.
    """
    require(p.base == -1 or 0 < p.base < math.inf, f"base must be positive, or -1 for e, not {p.base:g}")
    return 1.0 if p.base == -1 else math.log(p.base)
