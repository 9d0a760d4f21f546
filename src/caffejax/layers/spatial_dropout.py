"""ENet's SpatialDropoutLayer, a Python layer that is built in: Dropout of whole channels."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ..errors import require
from .context import Context
from .param_str import settings
from .types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced


def spatial_dropout(ctx: Context, x: jax.Array) -> jax.Array:
    """Each channel of each item dropped with probability `p` and divided by 1 - p otherwise.

    The param_str's own `phase` counts, not the net's. In TEST every channel is divided by 1 - p, as in ENet's layer.
    """
    return (x * _factor(ctx, x)).astype(x.dtype)


def spatial_dropout_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return dy * _factor(ctx, x)


SPATIAL_DROPOUT_LAYER = LayerType(
    Signature("Python", param="python_param"),
    Traced(spatial_dropout),
    Gradient(spatial_dropout_backward),
    LayerTraits(dtype_policy="bottoms", spatial_map="same"),
    docs=LayerDocs(origin="ENet"),
)


def _factor(ctx: Context, x: jax.Array) -> Any:
    found = settings(ctx.param.param_str, {"phase": "TRAIN", "p": None})
    try:
        p = float(found["p"])
    except (TypeError, ValueError):
        p = math.nan
    require(0 < p < 1, f"param_str's p must lie between 0 and 1, not be {found['p']!r}")
    require(len(x.shape) >= 2, f"needs a bottom with channels, not of shape {x.shape}")
    if found["phase"] != "TRAIN":
        return 1 / (1 - p)
    shape = (*x.shape[:2], *(1,) * (len(x.shape) - 2))
    return jnp.where(jax.random.bernoulli(ctx.key, 1 - p, shape), 1 / (1 - p), 0).astype(x.dtype)
