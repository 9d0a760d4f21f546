"""Element-wise activations of forks: Mish, ReLU6, HardSigmoid and HardSwish."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ...core.layers.neuron import define_elementwise
from ...core.schema.caffe_pb2 import HardSigmoidParameter, ReLUParameter


def mish(x: jax.Array) -> jax.Array:
    """Return x * tanh(log(1 + exp(x)))."""
    return x * jnp.tanh(jax.nn.softplus(x))


def mish_backward(x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    gate = jnp.tanh(jax.nn.softplus(x))
    return dy * (gate + x * (1 - jnp.square(gate)) * jax.nn.sigmoid(x))


define_elementwise("Mish", mish, mish_backward, origin="YOLOv4")


def relu6(p: ReLUParameter, x: jax.Array) -> jax.Array:
    """Return min(x, 6) where x > 0, else negative_slope * x. At 0 the gradient is the slope, and at 6 it is 0."""
    return jnp.where(x > 0, jnp.where(x < 6, x, 6), p.negative_slope * x)


def relu6_backward(p: ReLUParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * (((x > 0) & (x < 6)) + p.negative_slope * (x <= 0)).astype(dy.dtype)


define_elementwise("ReLU6", relu6, relu6_backward, param="relu6_param", origin="MobileNet-SSD, MobileNet-YOLO")


def hard_sigmoid(p: HardSigmoidParameter, x: jax.Array) -> jax.Array:
    """Clamp alpha * x + beta to [0, 1]. On both bounds the gradient is 0."""
    linear = p.alpha * x + p.beta
    return jnp.where(linear > 0, jnp.where(linear < 1, linear, 1), 0)


def hard_sigmoid_backward(p: HardSigmoidParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return jnp.where((y > 0) & (y < 1), p.alpha * dy, 0)


define_elementwise(
    "HardSigmoid", hard_sigmoid, hard_sigmoid_backward, param="hard_sigmoid_param", origin="synopsys-caffe"
)


def hard_swish(x: jax.Array) -> jax.Array:
    """Return x * min(max(x + 3, 0), 6) / 6."""
    return jnp.where(x > -3, jnp.where(x < 3, x * (x + 3) / 6, x), 0)


def hard_swish_backward(x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * jnp.where(x > -3, jnp.where(x < 3, (2 * x + 3) / 6, 1), 0)


define_elementwise("HardSwish", hard_swish, hard_swish_backward, aliases=("HSwish",), origin="MobileNetV3")
