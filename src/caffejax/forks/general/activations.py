"""Element-wise activations of forks: Mish, ReLU6, HardSigmoid and HardSwish."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ...core.layers.context import Context
from ...core.layers.neuron import define_elementwise


def mish(ctx: Context, x: jax.Array) -> jax.Array:
    """Return x * tanh(log(1 + exp(x)))."""
    return x * jnp.tanh(jax.nn.softplus(x))


def mish_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    gate = jnp.tanh(jax.nn.softplus(x))
    return dy * (gate + x * (1 - jnp.square(gate)) * jax.nn.sigmoid(x))


define_elementwise("Mish", mish, mish_backward, origin="YOLOv4")


def relu6(ctx: Context, x: jax.Array) -> jax.Array:
    """Return min(x, 6) where x > 0, else negative_slope * x. At 0 the gradient is the slope, and at 6 it is 0."""
    return jnp.where(x > 0, jnp.where(x < 6, x, 6), ctx.param.negative_slope * x)


def relu6_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * (((x > 0) & (x < 6)) + ctx.param.negative_slope * (x <= 0)).astype(dy.dtype)


define_elementwise("ReLU6", relu6, relu6_backward, param="relu6_param", origin="MobileNet-SSD, MobileNet-YOLO")


def hard_sigmoid(ctx: Context, x: jax.Array) -> jax.Array:
    """Clamp alpha * x + beta to [0, 1]. On both bounds the gradient is 0."""
    linear = ctx.param.alpha * x + ctx.param.beta
    return jnp.where(linear <= 0, 0, jnp.where(linear >= 1, 1, linear))  # NaN stays NaN, as in the fork


def hard_sigmoid_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return jnp.where((y > 0) & (y < 1), ctx.param.alpha * dy, 0)


define_elementwise(
    "HardSigmoid", hard_sigmoid, hard_sigmoid_backward, param="hard_sigmoid_param", origin="synopsys-caffe"
)


def hard_swish(ctx: Context, x: jax.Array) -> jax.Array:
    """Return x * min(max(x + 3, 0), 6) / 6."""
    return jnp.where(x <= -3, 0, jnp.where(x >= 3, x, x * (x + 3) / 6))  # NaN stays NaN, as in the fork


def hard_swish_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * jnp.where(x > -3, jnp.where(x < 3, (2 * x + 3) / 6, 1), 0)


define_elementwise("HardSwish", hard_swish, hard_swish_backward, aliases=("HSwish",), origin="MobileNetV3")
