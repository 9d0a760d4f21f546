"""Dropout, which sets random elements to 0 (dropout_layer.cpp)."""

from __future__ import annotations

import jax

from ...base.errors import require
from .context import Context
from .registry import define_layer
from .types import Gradient, LayerTraits, Signature, Traced


def dropout(ctx: Context, x: jax.Array) -> jax.Array:
    """Set elements to 0 with probability dropout_ratio in TRAIN, and divide the others by 1 - dropout_ratio.

    In TEST the top equals the bottom. The top has the shape of the bottom. Forks have two settings. With `scale_train:
    false`, TRAIN does not divide, and TEST multiplies by 1 - dropout_ratio instead. With `sample_weights_test: true`,
    TEST drops elements, too. Caffe's rule: dropout_layer.cpp.
    """
    factor = _dropout_factor(ctx, x)
    return x if factor is None else x * factor


def dropout_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    factor = _dropout_factor(ctx, x)
    return dy if factor is None else dy * factor


def dropout_is_identity(ctx: Context) -> bool:
    return not (ctx.training or ctx.param.sample_weights_test) and bool(ctx.param.scale_train)


define_layer(
    Signature("Dropout", param="dropout_param", fork_settings=("scale_train", "sample_weights_test")),
    Traced(dropout, top_shapes=lambda ctx, x: [x.shape] if dropout_is_identity(ctx) else None),
    Gradient(dropout_backward),
    LayerTraits(row_wise=True, is_identity=dropout_is_identity, dtype_policy="bottoms", spatial_map="same"),
)


def _dropout_factor(ctx: Context, x: jax.Array) -> jax.Array | float | None:
    ratio, scales_in_training = ctx.param.dropout_ratio, ctx.param.scale_train
    require(0 <= ratio < 1, f"dropout_ratio must be at least 0 and less than 1, not {ratio:g}")
    if dropout_is_identity(ctx):
        return None
    if not (ctx.training or ctx.param.sample_weights_test):
        return 1 - ratio
    mask = jax.random.bernoulli(ctx.key, 1 - ratio, x.shape)
    return mask.astype(x.dtype) / ((1 - ratio) if scales_in_training else 1)
