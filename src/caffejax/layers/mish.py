"""Mish, the neuron of YOLOv4."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .context import Context
from .registry import register
from .types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced


def mish(ctx: Context, x: jax.Array) -> jax.Array:
    """x * tanh(log(1 + exp(x)))."""
    return x * jnp.tanh(jax.nn.softplus(x))


def mish_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    bend = jnp.tanh(jax.nn.softplus(x))
    return dy * (bend + x * (1 - jnp.square(bend)) * jax.nn.sigmoid(x))


register(
    LayerType(
        Signature("Mish"),
        Traced(mish),
        Gradient(mish_backward),
        LayerTraits(elementwise=True, dtype_policy="bottoms"),
        docs=LayerDocs(origin="YOLOv4"),
    )
)
