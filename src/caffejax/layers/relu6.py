"""Neurons bounded on both sides, cheap to compute: ReLU6, HardSigmoid, HardSwish."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .context import Context
from .registry import register
from .types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced


def relu6(ctx: Context, x: jax.Array) -> jax.Array:
    """x held between 0 and 6, or negative_slope * x below 0. At 0 the gradient is the slope, at 6 it is 0."""
    return jnp.where(x > 0, jnp.where(x < 6, x, 6), ctx.param.negative_slope * x)


def relu6_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * (((x > 0) & (x < 6)) + ctx.param.negative_slope * (x <= 0)).astype(dy.dtype)


register(
    LayerType(
        Signature("ReLU6", param="relu6_param"),
        Traced(relu6),
        Gradient(relu6_backward),
        LayerTraits(elementwise=True, dtype_policy="bottoms"),
        docs=LayerDocs(origin="MobileNet-SSD, MobileNet-YOLO"),
    )
)


def hard_sigmoid(ctx: Context, x: jax.Array) -> jax.Array:
    """alpha * x + beta held between 0 and 1; on both bounds the gradient is 0."""
    line = ctx.param.alpha * x + ctx.param.beta
    return jnp.where(line > 0, jnp.where(line < 1, line, 1), 0)


def hard_sigmoid_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return jnp.where((y > 0) & (y < 1), ctx.param.alpha * dy, 0)


register(
    LayerType(
        Signature("HardSigmoid", param="hard_sigmoid_param"),
        Traced(hard_sigmoid),
        Gradient(hard_sigmoid_backward),
        LayerTraits(elementwise=True, dtype_policy="bottoms"),
        docs=LayerDocs(origin="synopsys-caffe"),
    )
)


def hard_swish(ctx: Context, x: jax.Array) -> jax.Array:
    """x times (x + 3 held between 0 and 6) / 6."""
    return jnp.where(x > -3, jnp.where(x < 3, x * (x + 3) / 6, x), 0)


def hard_swish_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * jnp.where(x > -3, jnp.where(x < 3, (2 * x + 3) / 6, 1), 0)


register(
    LayerType(
        Signature("HardSwish", aliases=("HSwish",)),
        Traced(hard_swish),
        Gradient(hard_swish_backward),
        LayerTraits(elementwise=True, dtype_policy="bottoms"),
        docs=LayerDocs(origin="MobileNetV3"),
    )
)
