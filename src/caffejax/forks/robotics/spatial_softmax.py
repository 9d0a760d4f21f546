"""SpatialSoftmax, the softmax over the positions of a plane, and Softmax with a temperature."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.layers.helpers import global_window
from ...core.layers.registry import register_variants
from ...core.layers.softmax import softmax, softmax_backward
from ...core.schema.caffe_pb2 import SpatialSoftmaxParameter


@register(
    "SpatialSoftmax",
    param="spatial_softmax_param",
    row_wise=True,
    dtype_policy="bottoms",
    spatial_map="same",
    receptive_window=global_window,
    origin="cbfinn/caffe",
)
def spatial_softmax(p: SpatialSoftmaxParameter, x: jax.Array) -> jax.Array:
    """Return the softmax of x / temperature, (N, C, H, W), over height and width."""
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not shape {x.shape}")
    require(p.dimension == "spatial", f'dimension "{p.dimension}" is not supported; use "spatial"')
    require(p.temperature > 0, f"temperature must be positive, not {p.temperature:g}")
    return jax.nn.softmax(promote(x) / p.temperature, axis=(2, 3)).astype(x.dtype)


@spatial_softmax.backward
def spatial_softmax_backward(p: SpatialSoftmaxParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    y, dy = promote(y), promote(dy)
    return y * (dy - jnp.sum(dy * y, axis=(2, 3), keepdims=True)) / p.temperature


@softmax.variant(fork_settings=("temperature",), origin="cbfinn/caffe")
def softmax_with_temperature(p: Any, x: jax.Array) -> jax.Array:
    """Return the softmax of x / temperature along `axis`. The top has the shape of the bottom."""
    require(p.temperature > 0, f"temperature must be positive, not {p.temperature:g}")
    return softmax(p, promote(x) / p.temperature).astype(x.dtype)


@softmax_with_temperature.backward
def softmax_with_temperature_backward(p: Any, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return softmax_backward(p, x, y=y, dy=dy) / p.temperature


register_variants(
    "Softmax",
    lambda layer: "with temperature" if layer.softmax_param.temperature != 1 else None,
    {"with temperature": softmax_with_temperature.type},
    "With `temperature` it is the variant with a temperature.",
)
