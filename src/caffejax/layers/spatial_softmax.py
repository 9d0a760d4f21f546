"""SpatialSoftmax: probabilities over the plane of each channel."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..errors import require
from .context import Context
from .dtypes import promote
from .registry import register
from .sight import whole_plane
from .types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced


def spatial_softmax(ctx: Context, x: jax.Array) -> jax.Array:
    """Softmax of x / temperature over height and width."""
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not {x.shape}")
    require(ctx.param.dimension == "spatial", f'dimension "{ctx.param.dimension}" is not supported; use "spatial"')
    require(ctx.param.temperature > 0, f"temperature must be positive, not {ctx.param.temperature:g}")
    return jax.nn.softmax(promote(x) / ctx.param.temperature, axis=(2, 3)).astype(x.dtype)


def spatial_softmax_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    y, dy = promote(y), promote(dy)
    return y * (dy - jnp.sum(dy * y, axis=(2, 3), keepdims=True)) / ctx.param.temperature


register(
    LayerType(
        Signature("SpatialSoftmax", param="spatial_softmax_param"),
        Traced(spatial_softmax),
        Gradient(spatial_softmax_backward),
        LayerTraits(row_wise=True, dtype_policy="bottoms", spatial_map="same", receptive_window=whole_plane),
        docs=LayerDocs(origin="cbfinn/caffe"),
    )
)
