"""Element-wise activations of forks: Mish, ReLU6, HardSigmoid and HardSwish."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ...core.layers.neuron import register_elementwise
from ...core.schema.caffe_pb2 import HardSigmoidParameter


def _mish_slope(x: jax.Array, y: jax.Array) -> jax.Array:
    gate = jnp.tanh(jax.nn.softplus(x))
    return gate + x * (1 - jnp.square(gate)) * jax.nn.sigmoid(x)


register_elementwise(
    "Mish",
    "Return x * tanh(log(1 + exp(x))).",
    lambda x: x * jnp.tanh(jax.nn.softplus(x)),
    _mish_slope,
    dtype_policy="bottoms",
    origin="YOLOv4",
)
register_elementwise(
    "ReLU6",
    "Return min(x, 6) where x > 0, else negative_slope * x. At 0 the gradient is the slope, and at 6 it is 0.",
    lambda p, x: jnp.where(x > 0, jnp.where(x < 6, x, 6), p.negative_slope * x),
    lambda p, x, y: ((x > 0) & (x < 6)) + p.negative_slope * (x <= 0),
    param="relu6_param",
    dtype_policy="bottoms",
    origin="MobileNet-SSD, MobileNet-YOLO",
)


def _hard_sigmoid(p: HardSigmoidParameter, x: jax.Array) -> jax.Array:
    linear = p.alpha * x + p.beta
    return jnp.where(linear <= 0, 0, jnp.where(linear >= 1, 1, linear))  # NaN stays NaN, as in the fork


register_elementwise(
    "HardSigmoid",
    "Clamp alpha * x + beta to [0, 1]. On both bounds the gradient is 0.",
    _hard_sigmoid,
    lambda p, x, y: jnp.where((y > 0) & (y < 1), p.alpha, 0),
    param="hard_sigmoid_param",
    dtype_policy="bottoms",
    origin="synopsys-caffe",
)
register_elementwise(
    "HardSwish",
    "Return x * min(max(x + 3, 0), 6) / 6.",
    lambda x: jnp.where(x <= -3, 0, jnp.where(x >= 3, x, x * (x + 3) / 6)),  # NaN stays NaN, as in the fork
    lambda x, y: jnp.where(x > -3, jnp.where(x < 3, (2 * x + 3) / 6, 1), 0),
    aliases=("HSwish",),
    dtype_policy="bottoms",
    origin="MobileNetV3",
)
