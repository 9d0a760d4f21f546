"""Dropout, which sets random elements to 0 (dropout_layer.cpp)."""

from __future__ import annotations

import jax
from jax import Array

from ...base.errors import require
from ..schema.caffe_pb2 import DropoutParameter
from .context import Context
from .declaration import register


@register(
    "Dropout",
    param="dropout_param",
    top_shapes=lambda x, *, phase: None if phase == "TRAIN" else [x.shape],
    row_wise=True,
    is_identity=lambda *, phase: phase == "TEST",
    dtype_policy="bottoms",
    spatial_map="same",
)
def dropout(p: DropoutParameter, x: Array, *, ctx: Context) -> Array:
    """Set elements to 0 with probability dropout_ratio in TRAIN, and divide the others by 1 - dropout_ratio.

    In TEST the top equals the bottom. The top has the shape of the bottom. Caffe's rule: dropout_layer.cpp.
    """
    return x * (sample_mask(ctx, x) / (1 - p.dropout_ratio)) if ctx.training else x


@dropout.backward
def dropout_backward(p: DropoutParameter, x: Array, *, y: Array, dy: Array, ctx: Context) -> Array:
    return dy * (sample_mask(ctx, x) / (1 - p.dropout_ratio)) if ctx.training else dy


@dropout.check
def check_dropout(p: DropoutParameter) -> None:
    require(0 <= p.dropout_ratio < 1, f"dropout_ratio must be at least 0 and less than 1, not {p.dropout_ratio:g}")


def sample_mask(ctx: Context, x: Array) -> Array:
    """Return an array like `x` of random elements: 0 with probability dropout_ratio, otherwise 1."""
    return jax.random.bernoulli(ctx.key, 1 - ctx.param.dropout_ratio, x.shape).astype(x.dtype)
